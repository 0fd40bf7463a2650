/** `openshell sandbox exec`: a command in a sandbox, its streams ours, its exit code ours. */
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { AsyncQueue } from "../../common/async.ts";
import { OpenShellError } from "../../common/errors.ts";
import type { openshell } from "../../wire/index.ts";
import { parsePairs, parseSeconds } from "../arguments.ts";
import type { CommandContext } from "../context.ts";
import { type Terminal, write } from "../terminal.ts";

export interface ExecOptions {
  readonly workdir?: string;
  /** Seconds; 0 for none. */
  readonly timeout: string;
  /** @default true when stdin and stdout are terminals */
  readonly tty?: boolean;
  readonly env: readonly string[];
  /** False with --no-login-shell. */
  readonly loginShell: boolean;
}

/** @returns the command's exit code */
export async function execInSandbox(
  context: CommandContext,
  sandbox: string,
  command: readonly string[],
  options: ExecOptions,
): Promise<number> {
  const { terminal } = context;
  if (command.length === 0) {
    throw new OpenShellError(
      "invalid-argument",
      `what should run in ${sandbox}? Write it after --, as in: openshell sandbox exec ${sandbox} -- ls -l`,
    );
  }
  const tty = options.tty ?? (terminal.stdin.isTTY === true && terminal.stdout.isTTY === true);
  if (tty && terminal.stdin.isTTY !== true) {
    throw new OpenShellError(
      "invalid-argument",
      "--tty needs a terminal as standard input; leave it out, or write --no-tty",
    );
  }
  const timeoutMs = parseSeconds("--timeout", options.timeout);
  const request = {
    workspaceScope: context.workspaceScope,
    sandbox,
    command: [...command],
    workdir: options.workdir ?? "",
    environment: parsePairs("--env", options.env),
    tty,
    ...(tty ? { cols: terminal.stdout.columns ?? 80, rows: terminal.stdout.rows ?? 24 } : {}),
    noLoginShell: !options.loginShell,
    ...(timeoutMs === undefined ? {} : { executionTimeout: durationFromMs(timeoutMs) }),
  };
  using connection = await context.connect();
  const stop = new AbortController();
  const signal = AbortSignal.any([terminal.signal, stop.signal]);
  try {
    // A terminal that is not handed over has no end: its standard input stays here.
    if (!tty && terminal.stdin.isTTY === true) {
      return await exitCodeIn(connection.client.execSandbox(request, { signal }), terminal);
    }
    using _keyboard = tty ? rawMode(terminal) : undefined;
    const input = inputOf(terminal, tty, signal);
    async function* requests() {
      yield { payload: { case: "start" as const, value: request } };
      yield* input;
    }
    return await exitCodeIn(connection.client.execSandboxInteractive(requests(), { signal }), terminal);
  } finally {
    stop.abort();
  }
}

async function exitCodeIn(events: AsyncIterable<openshell.ExecSandboxEvent>, terminal: Terminal): Promise<number> {
  let code: number | undefined;
  for await (const { payload } of events) {
    if (payload.case === "stdout") await write(terminal.stdout, payload.value.data);
    else if (payload.case === "stderr") await write(terminal.stderr, payload.value.data);
    else if (payload.case === "exit") code = payload.value.exitCode;
  }
  if (code !== undefined) return code;
  throw new OpenShellError("unavailable", "the connection to the sandbox was lost before the command ended");
}

type InputMessage =
  | { payload: { case: "stdin"; value: Uint8Array } }
  | { payload: { case: "resize"; value: { cols: number; rows: number } } };

/** What is typed or piped, and changes of the window; ends with standard input. */
async function* inputOf(terminal: Terminal, tty: boolean, signal: AbortSignal): AsyncGenerator<InputMessage> {
  const queue = new AsyncQueue<InputMessage>(4);
  const resized = () => {
    const { columns = 80, rows = 24 } = terminal.stdout;
    queue.offer({ payload: { case: "resize", value: { cols: columns, rows } } });
  };
  const leave = () => queue.end();
  const reading = async () => {
    for await (const chunk of terminal.stdin) {
      const value = typeof chunk === "string" ? Buffer.from(chunk) : (chunk as Uint8Array);
      if (!(await queue.push({ payload: { case: "stdin", value } }))) return;
    }
    queue.end();
  };
  signal.addEventListener("abort", leave, { once: true });
  if (tty) terminal.stdout.on("resize", resized);
  reading().catch((error: unknown) => queue.end(error));
  try {
    yield* queue;
  } finally {
    signal.removeEventListener("abort", leave);
    terminal.stdout.off("resize", resized);
  }
}

/** Hands every key to the sandbox, Ctrl-C too; undone when disposed, and when the process exits some other way. */
function rawMode({ stdin }: Terminal): Disposable {
  const restore = () => {
    stdin.setRawMode?.(false);
    process.off("exit", restore);
  };
  stdin.setRawMode?.(true);
  process.on("exit", restore);
  return { [Symbol.dispose]: restore };
}
