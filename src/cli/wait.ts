/** Waiting until a sandbox is where a command wants it. */
import { type BackoffOptions, backoffMs, failuresAfter, sleep } from "../common/async.ts";
import { hasCode, OpenShellError } from "../common/errors.ts";
import type { GatewayClient } from "./connection.ts";
import { sandboxFailedReason } from "./exit-codes.ts";
import { reasonsOf, type SandboxData, sandboxData } from "./sandbox-view.ts";
import type { ProgressLine } from "./terminal.ts";

/** What ends a wait. */
export interface WaitGoal {
  /** In a sentence: "until it is ready". */
  readonly text: string;
  /** Phases that end the wait well. */
  readonly phases: readonly string[];
  /** Phases from which the goal cannot be reached any more. */
  readonly failures: readonly string[];
  /** A sandbox that is gone ends the wait well. @default false */
  readonly gone?: boolean;
  /** So does a main process that ended with an exit code, whichever. @default false */
  readonly exit?: boolean;
}

export const untilReady: WaitGoal = {
  text: "ready",
  phases: ["READY", "COMPLETED"],
  failures: ["ERROR", "STOPPED", "DELETING"],
};
/** The main process runs, or has ended already. */
export const untilRun: WaitGoal = { ...untilReady, exit: true };
export const untilEnded: WaitGoal = {
  text: "done",
  phases: ["COMPLETED"],
  failures: ["ERROR", "STOPPED", "DELETING"],
  exit: true,
};
export const untilStopped: WaitGoal = {
  text: "stopped",
  phases: ["STOPPED", "COMPLETED"],
  failures: ["ERROR", "DELETING"],
};
export const untilDeleted: WaitGoal = { text: "deleted", phases: [], failures: [], gone: true };

export interface WaitOptions {
  readonly client: GatewayClient;
  readonly workspace: string;
  readonly name: string;
  /** The sandbox that is meant; another one of the same name counts as gone. */
  readonly id: string;
  /** As the call that began the change returned it: the first thing to show. */
  readonly initial?: SandboxData;
  readonly progress: ProgressLine;
  readonly signal: AbortSignal;
  /** @default no end */
  readonly timeoutMs?: number;
  /** Before a lost connection is opened again. */
  readonly backoff?: BackoffOptions;
  /** Milliseconds of a clock that nobody sets. @default performance.now */
  readonly now?: () => number;
}

/**
 * Follows the sandbox with WatchSandbox until `goal` is reached; a lost connection is opened again.
 * @returns the sandbox as it was last seen; undefined when it is gone
 * @throws deadline-exceeded after the timeout; failed-precondition with reason SandboxFailed when the goal is out of reach
 */
export async function waitFor(goal: WaitGoal, options: WaitOptions): Promise<SandboxData | undefined> {
  const { name, progress } = options;
  const timeout = options.timeoutMs === undefined ? undefined : AbortSignal.timeout(options.timeoutMs);
  const signal = timeout === undefined ? options.signal : AbortSignal.any([options.signal, timeout]);
  let last = options.initial;
  const show = (sandbox: SandboxData) => {
    const reasons = reasonsOf(sandbox);
    progress.show(`${name}: ${sandbox.phase}${reasons === "" ? "" : ` (${reasons})`}`);
  };
  if (last !== undefined && !goal.phases.includes(last.phase)) show(last);
  try {
    for await (const sandbox of follow(options, signal)) {
      last = sandbox;
      if (goal.phases.includes(sandbox.phase)) return sandbox;
      if (goal.exit && hasEnded(sandbox)) return sandbox;
      if (goal.failures.includes(sandbox.phase)) throw failed(sandbox, goal);
      show(sandbox);
    }
    if (goal.gone) return undefined;
    throw new OpenShellError("not-found", `the sandbox "${name}" was deleted while it was waited for`);
  } catch (error) {
    if (timeout?.aborted && !options.signal.aborted) {
      const state = last === undefined ? "" : `: it is ${last.phase}${reasonsOf(last) && ` (${reasonsOf(last)})`}`;
      throw new OpenShellError(
        "deadline-exceeded",
        `the sandbox "${name}" was not ${goal.text} within ${(options.timeoutMs ?? 0) / 1000} s${state}; it goes on, "openshell sandbox get ${name}" shows how`,
      );
    }
    throw error;
  } finally {
    progress.clear();
  }
}

/** The main process is over, and its exit code known. */
export function hasEnded({ phase, exit_code }: SandboxData): boolean {
  return phase === "COMPLETED" || (phase === "ERROR" && exit_code !== null);
}

/** The sandbox at each change, the present state first; ends when it is gone. */
async function* follow(options: WaitOptions, signal: AbortSignal): AsyncGenerator<SandboxData, void, undefined> {
  const { client, workspace, name, id, backoff, now = () => performance.now() } = options;
  const request = {
    workspaceScope: { selection: { case: "workspace" as const, value: workspace } },
    sandbox: name,
    followStatus: true,
  };
  for (let failures = 0; ; failures += 1) {
    let answeredAt: number | undefined;
    let lost: unknown;
    try {
      for await (const { payload } of client.watchSandbox(request, { signal })) {
        answeredAt ??= now();
        if (payload.case !== "sandbox") continue;
        if (payload.value.metadata?.id !== id) return;
        yield sandboxData(payload.value);
      }
    } catch (error) {
      if (signal.aborted) throw OpenShellError.from(signal.reason);
      if (hasCode(error, "not-found")) return;
      // The deadline is that of a new connection: a watch has none.
      if (!hasCode(error, "unavailable", "aborted", "resource-exhausted", "deadline-exceeded")) throw error;
      lost = error;
    }
    if (answeredAt !== undefined) failures = failuresAfter(failures, now() - answeredAt);
    if (lost !== undefined && failures >= 10) throw lost;
    // The stream also ends when the sandbox is gone: the next watch says so.
    await sleep(backoffMs(failures, { initialMs: 200, maxMs: 5_000, ...backoff }), signal);
  }
}

function failed(sandbox: SandboxData, goal: WaitGoal): OpenShellError {
  const reasons = reasonsOf(sandbox);
  const because =
    reasons !== "" ? reasons : sandbox.exit_code === null ? "no reason given" : `exit code ${sandbox.exit_code}`;
  const text =
    sandbox.phase === "ERROR"
      ? `the sandbox "${sandbox.name}" failed: ${because}`
      : `the sandbox "${sandbox.name}" is ${sandbox.phase} and will not be ${goal.text}`;
  return new OpenShellError("failed-precondition", text, { reason: sandboxFailedReason });
}
