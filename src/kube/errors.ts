import { type ErrorCode, type FieldViolation, OpenShellError } from "../common/errors.ts";

/** What the API server said in its `Status`, as data; it is the `cause` of the error that a call throws. */
export interface KubeStatus {
  readonly kind: "KubeStatus";
  /** HTTP status. */
  readonly httpCode: number;
  /** `NotFound`, `AlreadyExists`, `Conflict`, `Invalid`, ...; empty when the answer was no Status. */
  readonly reason: string;
  /** The server's own text, unchanged. */
  readonly message: string;
  /** Fields at fault (`spec.containers[0].image`) with the reason and text for each. */
  readonly causes: readonly { readonly field?: string; readonly reason?: string; readonly message?: string }[];
  readonly retryAfterSeconds?: number;
}

/** The API server's answer behind an error, or undefined when the error is not one of the API server's. */
export function kubeStatusOf(error: unknown): KubeStatus | undefined {
  if (!(error instanceof OpenShellError) || !isRecord(error.cause)) return undefined;
  return error.cause.kind === "KubeStatus" ? (error.cause as unknown as KubeStatus) : undefined;
}

export const isNotFound = (error: unknown): boolean => kubeStatusOf(error)?.httpCode === 404;
export const isAlreadyExists = (error: unknown): boolean => kubeStatusOf(error)?.reason === "AlreadyExists";
/** A stale resourceVersion, or preconditions that name another object. */
export const isConflict = (error: unknown): boolean => kubeStatusOf(error)?.httpCode === 409 && !isAlreadyExists(error);
/** The resourceVersion or continue token is too old: list again. */
export const isGone = (error: unknown): boolean => kubeStatusOf(error)?.httpCode === 410;
/** RBAC, quota or admission said no; `refusalOf` tells which. */
export const isForbidden = (error: unknown): boolean => kubeStatusOf(error)?.httpCode === 403;
/** The object itself is at fault; also a failed JSON patch `test`. */
export const isInvalid = (error: unknown): boolean => kubeStatusOf(error)?.httpCode === 422;
export const isTooManyRequests = (error: unknown): boolean => kubeStatusOf(error)?.httpCode === 429;
/** The API server, or the way to it, is at fault: asked again it may answer. */
export const mayPass = (error: unknown): boolean =>
  (kubeStatusOf(error)?.httpCode ?? 0) >= 500 ||
  ["unavailable", "deadline-exceeded"].includes(OpenShellError.from(error).code);

/**
 * The error of a refused call. It is never `unauthenticated` or `permission-denied`: what is refused are this process's own credentials and
 * rights, and whoever asked something of this process would take those for his own.
 *
 * @param call what was tried, as in "create pods default/web"
 * @param body what the server answered: a Status, or anything else
 */
export function errorFromAnswer(call: string, httpCode: number, body: unknown, retryAfter?: string): OpenShellError {
  const status = readStatus(httpCode, body, retryAfter);
  const own = "the API server does not accept this process's own credentials";
  const why = httpCode === 401 ? `${own} (${status.message})` : status.message;
  return new OpenShellError(codeOf(status), `cannot ${call}: ${why}`, {
    cause: status,
    ...(status.reason === "" ? {} : { reason: status.reason }),
    ...(status.retryAfterSeconds === undefined ? {} : { retryAfterMs: status.retryAfterSeconds * 1000 }),
    ...(status.causes.length === 0 ? {} : { violations: status.causes.map(violationOf) }),
  });
}

/** The error of a call that got no answer. */
export function errorFromConnection(call: string, cause: unknown): OpenShellError {
  const text = cause instanceof Error ? cause.message : String(cause);
  return new OpenShellError("unavailable", `cannot ${call}: no answer from the API server (${text})`, { cause });
}

function violationOf(cause: KubeStatus["causes"][number]): FieldViolation {
  return { field: cause.field ?? "", description: cause.message ?? cause.reason ?? "" };
}

function readStatus(httpCode: number, body: unknown, retryAfter: string | undefined): KubeStatus {
  const status = isRecord(body) ? body : {};
  const details = isRecord(status.details) ? status.details : {};
  const seconds = Number(retryAfter ?? details.retryAfterSeconds ?? Number.NaN);
  return {
    kind: "KubeStatus",
    httpCode,
    reason: typeof status.reason === "string" ? status.reason : "",
    message: messageOf(httpCode, body, status),
    causes: Array.isArray(details.causes) ? details.causes.filter(isRecord) : [],
    ...(Number.isFinite(seconds) && seconds >= 0 ? { retryAfterSeconds: seconds } : {}),
  };
}

function messageOf(httpCode: number, body: unknown, status: Record<string, unknown>): string {
  if (typeof status.message === "string" && status.message !== "") return status.message;
  if (typeof body === "string" && body.trim() !== "") return `HTTP ${httpCode}: ${body.trim().slice(0, 300)}`;
  return `HTTP ${httpCode}`;
}

function codeOf({ httpCode, reason, message }: KubeStatus): ErrorCode {
  switch (httpCode) {
    case 400:
    case 413:
    case 422:
      return "invalid-argument";
    case 401:
      // It may have just begun, or the token was renewed a moment ago.
      return "unavailable";
    case 403:
      return /exceeded quota|failed quota/.test(message) ? "resource-exhausted" : "failed-precondition";
    case 404:
      return "not-found";
    case 405:
    case 406:
    case 415:
      return "unimplemented";
    case 409:
      return reason === "AlreadyExists" ? "already-exists" : "aborted";
    case 410:
      return "aborted";
    case 504:
      return "deadline-exceeded";
    default:
      return httpCode === 429 || httpCode === 503 ? "unavailable" : "internal";
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
