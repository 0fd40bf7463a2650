import { type ErrorCode, OpenShellError } from "../common/errors.ts";

/** What the command's exit code tells a script. Part of the interface: numbers never change their meaning. Printed into docs/cli.md. */
export const exitCodeTable = [
  ["ok", 0, "done"],
  ["error", 1, "anything that has no number of its own"],
  [
    "usage",
    2,
    "the command line, or a value in it, is wrong (125 for exec, and for a create that waits for its command)",
  ],
  ["notFound", 3, "there is no such sandbox, gateway or file"],
  ["timeout", 4, "a deadline passed; the operation may still be going on"],
  ["unavailable", 5, "the gateway or the sandbox cannot be reached now; trying again may help"],
  ["denied", 6, "not authenticated, or not allowed"],
  ["conflict", 7, "the name is taken, or the sandbox is in the wrong phase for this, or nothing is configured"],
  ["sandboxFailed", 8, "the sandbox itself failed: phase ERROR"],
  [
    "execFailed",
    125,
    "`sandbox exec`, and `sandbox create` when it waits for the end of its command: the command was not run, or its exit is unknown; every other code but 130 and 141 is the command's own",
  ],
  ["interrupted", 130, "interrupted: SIGINT, SIGTERM or SIGHUP"],
  ["unread", 141, "whoever read standard output is gone"],
] as const;

type Exit = (typeof exitCodeTable)[number];

export const exitCodes = Object.fromEntries(exitCodeTable.map(([name, code]) => [name, code])) as {
  readonly [E in Exit as E[0]]: E[1];
};

const byErrorCode: Partial<Record<ErrorCode, number>> = {
  "invalid-argument": exitCodes.usage,
  "out-of-range": exitCodes.usage,
  "not-found": exitCodes.notFound,
  "deadline-exceeded": exitCodes.timeout,
  unavailable: exitCodes.unavailable,
  unauthenticated: exitCodes.denied,
  "permission-denied": exitCodes.denied,
  "already-exists": exitCodes.conflict,
  "failed-precondition": exitCodes.conflict,
  aborted: exitCodes.conflict,
  cancelled: exitCodes.interrupted,
};

/** Reason of an error that says that the sandbox itself failed. */
export const sandboxFailedReason = "SandboxFailed";

export function exitCodeOf(error: unknown): number {
  const { code, details } = OpenShellError.from(error);
  if (details.reason === sandboxFailedReason) return exitCodes.sandboxFailed;
  return byErrorCode[code] ?? exitCodes.error;
}
