/**
 * The closed set of error codes: gRPC's status codes under readable names, so that an error keeps its meaning from the place where it
 * happened to the client's exit code.
 */
export type ErrorCode =
  | "cancelled"
  | "unknown"
  | "invalid-argument"
  | "deadline-exceeded"
  | "not-found"
  | "already-exists"
  | "permission-denied"
  | "resource-exhausted"
  | "failed-precondition"
  | "aborted"
  | "out-of-range"
  | "unimplemented"
  | "internal"
  | "unavailable"
  | "data-loss"
  | "unauthenticated";

/** One field of a request or a settings file that was refused. */
export interface FieldViolation {
  /** Path in the input's own words, e.g. `spec.template.driver_config.kubernetes.pod.affinity`. */
  readonly field: string;
  /** What was wrong and what is accepted. */
  readonly description: string;
}

/** What an error carries besides its sentence. */
export interface ErrorDetails {
  /** A stable word a program can branch on, e.g. `RuntimeClassNotFound`. */
  readonly reason?: string;
  readonly violations?: readonly FieldViolation[];
  /** When it makes sense to try again, in milliseconds from now. */
  readonly retryAfterMs?: number;
  readonly metadata?: Readonly<Record<string, string>>;
}

export interface OpenShellErrorOptions extends ErrorDetails {
  /** For logs only; never shown to a caller. */
  readonly cause?: unknown;
}

/** The one error class of the project: a code, a sentence its reader can act on, and the cause for logs. */
export class OpenShellError extends Error {
  override readonly name = "OpenShellError";
  readonly code: ErrorCode;
  readonly details: ErrorDetails;

  constructor(code: ErrorCode, message: string, options: OpenShellErrorOptions = {}) {
    const { cause, ...details } = options;
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.details = details;
  }

  /** An OpenShellError as it is; an abort as `cancelled`; anything else as `internal` with the original as cause. */
  static from(error: unknown): OpenShellError {
    if (error instanceof OpenShellError) return error;
    if (error instanceof Error && error.name === "TimeoutError") {
      return new OpenShellError("deadline-exceeded", "the operation did not finish in time", { cause: error });
    }
    if (error instanceof Error && error.name === "AbortError") {
      return new OpenShellError("cancelled", "the operation was cancelled", { cause: error });
    }
    const message = error instanceof Error ? error.message : String(error);
    const internal = new OpenShellError("internal", `internal error: ${message}`, { cause: error });
    foreign.add(internal);
    return internal;
  }
}

const foreign = new WeakSet<OpenShellError>();

/** True for what `from` made of an error that is none of ours: nobody wrote its text for a caller. */
export function isForeign(error: OpenShellError): boolean {
  return foreign.has(error);
}

/** True when `error` is an OpenShellError with one of `codes`. */
export function hasCode(error: unknown, ...codes: readonly ErrorCode[]): error is OpenShellError {
  return error instanceof OpenShellError && codes.includes(error.code);
}
