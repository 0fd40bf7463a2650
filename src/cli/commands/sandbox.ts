/** `openshell sandbox create|list|get|stop|start|delete`. */
import { hasCode, OpenShellError } from "../../common/errors.ts";
import { openshell } from "../../wire/index.ts";
import { parseSeconds } from "../arguments.ts";
import type { Connection } from "../connection.ts";
import { type CommandContext, outputFormat } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";
import { printResult, propertiesOf, tableOf } from "../output.ts";
import { type SandboxData, sandboxColumns, sandboxData, sandboxProperties } from "../sandbox-view.ts";
import { type CreateOptions, createRequest } from "../spec.ts";
import { oneLine, write } from "../terminal.ts";
import { untilDeleted, untilEnded, untilReady, untilRun, untilStopped, type WaitGoal, waitFor } from "../wait.ts";
import { checkedUpload, uploadPath } from "./files.ts";

interface OutputOption {
  readonly output?: string;
}

interface WaitOption {
  /** False with --no-wait. */
  readonly wait: boolean;
  /** Seconds. */
  readonly timeout: string;
}

export interface SandboxCreateOptions extends CreateOptions, OutputOption {
  readonly detach?: boolean;
  /** @default `ended` with a command, else `ready` */
  readonly until?: (typeof createGoals)[number];
  /** Seconds, 0 for never. @default 300 until it is ready, and as long as its command takes */
  readonly timeout?: string;
  readonly upload?: readonly string[];
  /** False with --no-git-ignore. */
  readonly gitIgnore: boolean;
  /** False with --no-keep. */
  readonly keep: boolean;
}

/** What `sandbox create --until` waits for. */
export const createGoals = ["ready", "ended"] as const;

/** @returns the exit code: that of the sandbox's command when it was waited for */
export async function createSandbox(
  context: CommandContext,
  options: SandboxCreateOptions,
  command: readonly string[],
): Promise<number> {
  const format = outputFormat(options.output);
  refuseIdleOptions(options, command);
  const goal = options.until ?? (command.length > 0 ? "ended" : "ready");
  if (!options.keep && (options.detach || goal === "ready")) {
    throw new OpenShellError("invalid-argument", "--no-keep needs a command after -- that is waited for");
  }
  const deadlines = createDeadlines(options.timeout);
  const request = createRequest(options, context.workspace, command);
  const uploads: Awaited<ReturnType<typeof checkedUpload>>[] = [];
  for (const text of options.upload ?? []) uploads.push(await checkedUpload(context, text, options.gitIgnore));
  using connection = await context.connect();
  // Without the answer nobody knows what there is to delete; an interrupt ends what comes after it.
  const call = options.keep ? context.call : context.callToEnd;
  const { sandbox } = await connection.client.createSandbox(request, call).catch((error: unknown) => {
    if (hasCode(error, "deadline-exceeded")) {
      context.terminal.stderr.write(`The sandbox may be made all the same; "openshell sandbox list" shows it.\n`);
    }
    throw error;
  });
  if (!sandbox?.metadata?.id) throw new OpenShellError("internal", "the gateway made no sandbox and gave no reason");
  let data = sandboxData(sandbox);
  try {
    if (!options.detach) {
      const first = goal === "ended" ? untilRun : untilReady;
      data = (await waitOn(context, connection, data, first, deadlines.ready())) ?? data;
    }
    for (const { local, destination } of uploads) {
      await uploadPath(context, connection, data.name, local, { destination, gitIgnore: options.gitIgnore });
    }
    if (!options.detach && goal === "ended") {
      data = (await waitOn(context, connection, data, untilEnded, deadlines.ended())) ?? data;
    }
  } catch (error) {
    const name = oneLine(data.name);
    // The errors of a wait name it.
    if (options.keep && !OpenShellError.from(error).message.includes(`sandbox "${data.name}"`)) {
      context.terminal.stderr.write(`The sandbox ${name} goes on; "openshell sandbox delete ${name}" removes it.\n`);
    }
    throw error;
  } finally {
    if (!options.keep) await discard(context, connection, data.name);
  }
  await printResult(context.terminal, format, data, () => tableOf(sandboxColumns(new Date(), false), [data]));
  return options.detach || goal === "ready" ? exitCodes.ok : (data.exit_code ?? exitCodes.ok);
}

/** @throws invalid-argument for an option that would do nothing beside the others */
function refuseIdleOptions(options: SandboxCreateOptions, command: readonly string[]): void {
  const waits = [
    ["--upload", options.upload !== undefined],
    ["--until", options.until !== undefined],
    ["--timeout", options.timeout !== undefined],
  ] as const;
  const [waiting] = waits.find(([, isGiven]) => isGiven) ?? [];
  if (options.detach && waiting !== undefined) {
    throw new OpenShellError("invalid-argument", `${waiting} needs a sandbox that is waited for: leave --detach out`);
  }
  if (options.until === "ended" && command.length === 0) {
    throw new OpenShellError("invalid-argument", "--until ended needs a command after --: without one nothing ends");
  }
  const ofCommand = options.restart !== undefined ? "--restart" : options.tty ? "--tty" : undefined;
  if (ofCommand !== undefined && command.length === 0) {
    throw new OpenShellError("invalid-argument", `${ofCommand} is for the command after --, and there is none`);
  }
  if (!options.gitIgnore && options.upload === undefined) {
    throw new OpenShellError("invalid-argument", "--no-git-ignore is for what --upload takes, and there is none");
  }
}

/** Deletes a sandbox that nobody is to keep, after an interrupt too; what became of its command is not changed by a failure. */
async function discard({ terminal, workspaceScope }: CommandContext, { client }: Connection, name: string) {
  try {
    await client.deleteSandbox({ workspaceScope, name, allowMissing: true }, { timeoutMs: 30_000 });
  } catch (error) {
    const { message } = OpenShellError.from(error);
    terminal.stderr.write(`openshell: the sandbox ${oneLine(name)} is still there: ${oneLine(message)}\n`);
  }
}

/** Milliseconds of `--timeout` for each of the two waits, which it bounds together; undefined for no end. */
function createDeadlines(timeout: string | undefined) {
  const given = timeout === undefined ? undefined : { ms: parseSeconds("--timeout", timeout) };
  let startedAt = 0;
  return {
    ready() {
      startedAt = performance.now();
      return given === undefined ? defaultTimeoutMs : given.ms;
    },
    ended: () => given?.ms && Math.max(1, given.ms - Math.round(performance.now() - startedAt)),
  };
}

const defaultTimeoutMs = 300_000;

export async function getSandbox(context: CommandContext, name: string, options: OutputOption): Promise<void> {
  const format = outputFormat(options.output);
  using connection = await context.connect();
  const data = await fetchSandbox(context, connection, name);
  await printResult(context.terminal, format, data, () => propertiesOf(sandboxProperties(data)));
}

export interface ListOptions extends OutputOption {
  readonly ids?: boolean;
  readonly names?: boolean;
  readonly selector?: string;
  readonly allWorkspaces?: boolean;
}

export async function listSandboxes(context: CommandContext, options: ListOptions): Promise<void> {
  const format = outputFormat(options.output);
  using connection = await context.connect();
  const sandboxes = await fetchSandboxes(context, connection, options);
  if (options.ids || options.names) {
    const lines = sandboxes.map((one) => `${options.ids ? one.id : one.name}\n`);
    return write(context.terminal.stdout, lines.join(""));
  }
  await printResult(context.terminal, format, sandboxes, () =>
    sandboxes.length === 0
      ? `No sandboxes in ${options.allWorkspaces ? "any workspace" : `the workspace ${context.workspace}`}.`
      : tableOf(sandboxColumns(new Date(), options.allWorkspaces ?? false), sandboxes),
  );
}

export async function stopSandbox(context: CommandContext, name: string, options: WaitOption & OutputOption) {
  await changeSandbox(context, name, options, untilStopped, (connection) =>
    connection.client.stopSandbox({ workspaceScope: context.workspaceScope, name }, context.call),
  );
}

export async function startSandbox(context: CommandContext, name: string, options: WaitOption & OutputOption) {
  await changeSandbox(context, name, options, untilReady, (connection) =>
    connection.client.startSandbox({ workspaceScope: context.workspaceScope, name }, context.call),
  );
}

async function changeSandbox(
  context: CommandContext,
  name: string,
  options: WaitOption & OutputOption,
  goal: WaitGoal,
  change: (connection: Connection) => Promise<openshell.SandboxResponse>,
): Promise<void> {
  const format = outputFormat(options.output);
  const timeoutMs = parseSeconds("--timeout", options.timeout);
  using connection = await context.connect();
  const { sandbox } = await change(connection);
  let data = sandbox === undefined ? await fetchSandbox(context, connection, name) : sandboxData(sandbox);
  if (options.wait) data = (await waitOn(context, connection, data, goal, timeoutMs)) ?? data;
  await printResult(context.terminal, format, data, () => tableOf(sandboxColumns(new Date(), false), [data]));
}

export interface DeleteOptions extends WaitOption {
  readonly all?: boolean;
  readonly ignoreMissing?: boolean;
}

export async function deleteSandboxes(
  context: CommandContext,
  names: readonly string[],
  options: DeleteOptions,
): Promise<void> {
  if (names.length > 0 && options.all) {
    throw new OpenShellError(
      "invalid-argument",
      "--all is every sandbox of the workspace: leave out --all, or the names",
    );
  }
  if (names.length === 0 && !options.all) {
    throw new OpenShellError("invalid-argument", "name the sandboxes to delete, or write --all for every one of them");
  }
  const timeoutMs = parseSeconds("--timeout", options.timeout);
  using connection = await context.connect();
  const wanted = options.all ? (await fetchSandboxes(context, connection, {})).map(({ name }) => name) : names;
  // What somebody else deleted since it was listed is gone, as was asked.
  const ignoreMissing = options.all === true || options.ignoreMissing === true;
  const failures: OpenShellError[] = [];
  const done: string[] = [];
  try {
    for (const name of wanted) {
      try {
        done.push(await deleteOne(context, connection, name, { ...options, ignoreMissing, timeoutMs }));
      } catch (error) {
        if (wanted.length === 1 || context.terminal.signal.aborted) throw error;
        failures.push(OpenShellError.from(error));
      }
    }
  } finally {
    // A reader that has seen enough of it, as `head` has, ends the command: after the work.
    await write(context.terminal.stdout, done.join(""));
  }
  const [first] = failures;
  if (first !== undefined) {
    const others = failures.length === 1 ? "" : ` (and ${failures.length - 1} more)`;
    throw new OpenShellError(first.code, `${first.message}${others}`, { cause: first });
  }
}

/** @returns the line that tells of it */
async function deleteOne(
  context: CommandContext,
  connection: Connection,
  name: string,
  options: DeleteOptions & { readonly timeoutMs: number | undefined },
): Promise<string> {
  const { outcome, sandboxId } = await connection.client.deleteSandbox(
    { workspaceScope: context.workspaceScope, name, allowMissing: options.ignoreMissing ?? false },
    context.call,
  );
  if (outcome === openshell.DeletionOutcome.ACCEPTED && options.wait) {
    await waitOn(context, connection, { name, id: sandboxId }, untilDeleted, options.timeoutMs);
  }
  const accepted = outcome === openshell.DeletionOutcome.ACCEPTED && !options.wait;
  const absent = outcome === openshell.DeletionOutcome.ALREADY_ABSENT;
  const what = absent ? "was not there" : accepted ? "is being deleted" : "deleted";
  return `Sandbox ${oneLine(name)} ${what}.\n`;
}

async function fetchSandbox(context: CommandContext, { client }: Connection, name: string): Promise<SandboxData> {
  const { sandbox } = await client.getSandbox({ workspaceScope: context.workspaceScope, name }, context.call);
  if (sandbox === undefined) throw new OpenShellError("not-found", `there is no sandbox "${name}"`);
  return sandboxData(sandbox);
}

async function fetchSandboxes(
  context: CommandContext,
  { client }: Connection,
  { selector, allWorkspaces }: ListOptions,
): Promise<SandboxData[]> {
  const workspaceScope = allWorkspaces
    ? { selection: { case: "allWorkspaces" as const, value: {} } }
    : context.workspaceScope;
  const found: SandboxData[] = [];
  let pageToken = "";
  do {
    const request = { workspaceScope, pageSize: 100, pageToken, labelSelector: selector ?? "" };
    const page = await client.listSandboxes(request, context.call);
    found.push(...page.sandboxes.map(sandboxData));
    if (page.nextPageToken === pageToken) break;
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return found;
}

function waitOn(
  context: CommandContext,
  { client }: Connection,
  sandbox: SandboxData | Pick<SandboxData, "name" | "id">,
  goal: WaitGoal,
  timeoutMs: number | undefined,
): Promise<SandboxData | undefined> {
  return waitFor(goal, {
    client,
    workspace: context.workspace,
    name: sandbox.name,
    id: sandbox.id,
    ...("phase" in sandbox ? { initial: sandbox } : {}),
    progress: context.progress,
    signal: context.terminal.signal,
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
  });
}
