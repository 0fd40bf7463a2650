import { type ErrorCode, OpenShellError } from "../common/errors.ts";

/** What the command's exit code tells a script. Part of the interface: numbers never change their meaning. */
export const exitCodes = {
  ok: 0,
  /** Anything that has no number of its own. */
  error: 1,
  /** The command line, or a value in it, is wrong. */
  usage: 2,
  notFound: 3,
  /** A deadline passed; the operation may still be going on. */
  timeout: 4,
  /** The gateway or the sandbox cannot be reached now; trying again may help. */
  unavailable: 5,
  /** Not authenticated, or not allowed. */
  denied: 6,
  /** The name is taken, or the sandbox is in the wrong phase for this. */
  conflict: 7,
  /** The sandbox itself failed: phase ERROR. */
  sandboxFailed: 8,
  /** `sandbox exec` only: the command was not run or its exit is unknown. Every other code is the command's own. */
  execFailed: 125,
  /** Interrupted from the keyboard: 128 + SIGINT. */
  interrupted: 130,
} as const;

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
