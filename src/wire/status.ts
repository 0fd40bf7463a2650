import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { anyPack, anyUnpack, durationFromMs, durationMs } from "@bufbuild/protobuf/wkt";
import { Metadata, type ServiceError, status as Status } from "@grpc/grpc-js";
import { cut, longestText, longestWord } from "../common/cut.ts";
import { type ErrorCode, OpenShellError, type OpenShellErrorOptions } from "../common/errors.ts";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema, StatusSchema } from "./gen/rpc_pb.js";

const numbers: Readonly<Record<ErrorCode, number>> = {
  cancelled: Status.CANCELLED,
  unknown: Status.UNKNOWN,
  "invalid-argument": Status.INVALID_ARGUMENT,
  "deadline-exceeded": Status.DEADLINE_EXCEEDED,
  "not-found": Status.NOT_FOUND,
  "already-exists": Status.ALREADY_EXISTS,
  "permission-denied": Status.PERMISSION_DENIED,
  "resource-exhausted": Status.RESOURCE_EXHAUSTED,
  "failed-precondition": Status.FAILED_PRECONDITION,
  aborted: Status.ABORTED,
  "out-of-range": Status.OUT_OF_RANGE,
  unimplemented: Status.UNIMPLEMENTED,
  internal: Status.INTERNAL,
  unavailable: Status.UNAVAILABLE,
  "data-loss": Status.DATA_LOSS,
  unauthenticated: Status.UNAUTHENTICATED,
};

const codes = new Map<number, ErrorCode>(Object.entries(numbers).map(([code, number]) => [number, code as ErrorCode]));

/** Trailer in which gRPC carries google.rpc.Status. */
const detailsTrailer = "grpc-status-details-bin";
const errorDomain = "openshell.ai";

/** Longest message of an error, in characters, and how many violations are told with it: it counts the others. */
const longestMessage = 2048;
const toldViolations = 16;
/**
 * Bytes of all that is told beside the message. Of the 64 KiB that trailers may have, at three bytes a character, the message takes 18 KiB
 * escaped and 8 KiB as base64 in the details; these take 32 KiB as base64, and the rest is for other trailers.
 */
const longestDetails = 24 * 1024;
/** Of protobuf around one entry. */
const entryBytes = 16;

/** gRPC's status code number of an error code. */
export function statusNumber(code: ErrorCode): number {
  return numbers[code];
}

/** The error code of a gRPC status number; numbers outside the set are `unknown`. */
export function codeOfStatus(number: number): ErrorCode {
  return codes.get(number) ?? "unknown";
}

/**
 * What gRPC sends for an error. The rich details repeat code and message exactly, since clients drop details that disagree.
 * The cause of an internal error stays here. Whatever the error quotes, it fits into trailers: Node ends a connection with all its calls at
 * 64 KiB of them. The reason comes first, then violations, then metadata; what has no room is left out.
 */
export function toServiceError(error: OpenShellError): { code: number; details: string; metadata: Metadata } {
  const metadata = new Metadata();
  const code = numbers[error.code];
  const message = cut(error.message, longestMessage);
  const { violations, reason, retryAfterMs, metadata: info } = error.details;
  const details = [];
  const fits = roomFor(longestDetails);
  const told = cut(reason ?? "", longestWord);
  fits(told);
  if (violations !== undefined && violations.length > 0) {
    const fieldViolations = violations
      .slice(0, toldViolations)
      .map(({ field, description }) => ({ field: cut(field, longestWord), description: cut(description, longestWord) }))
      .filter(({ field, description }) => fits(field, description));
    details.push(anyPack(BadRequestSchema, create(BadRequestSchema, { fieldViolations })));
  }
  if (reason !== undefined || info !== undefined) {
    const entries = Object.entries(info ?? {})
      .map(([key, value]) => [key, cut(value, longestText)] as const)
      .filter(([key, value]) => fits(key, value));
    const given = { reason: told, domain: errorDomain, metadata: Object.fromEntries(entries) };
    details.push(anyPack(ErrorInfoSchema, create(ErrorInfoSchema, given)));
  }
  if (retryAfterMs !== undefined) {
    const retryDelay = durationFromMs(Math.ceil(retryAfterMs));
    details.push(anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelay })));
  }
  if (details.length > 0) {
    const status = create(StatusSchema, { code, message, details });
    metadata.set(detailsTrailer, Buffer.from(toBinary(StatusSchema, status)));
  }
  return { code, details: message, metadata };
}

/** Says of each entry whether there is room for it beside those before it. */
function roomFor(bytes: number): (...texts: readonly string[]) => boolean {
  let left = bytes;
  return (...texts) => {
    const taken = texts.reduce((sum, text) => sum + Buffer.byteLength(text), entryBytes);
    if (taken > left) return false;
    left -= taken;
    return true;
  };
}

/**
 * How grpc-js 1.14 tells of a call that ended without its server's status: a proxy reset it, since nothing was said for a while, or ended it.
 * Its own cancellation it tells in other words.
 */
const resetCall = /^(Received RST_STREAM with code \d|Call cancelled$)/;

/** What the system said of a connection that grpc-js 1.14 could not make, without what it puts around it; undefined in any other message. */
export function lastConnectionError(message: string): string | undefined {
  return /Last error: (?:Error: )?(.+?)\.? Resolution note:/s.exec(message)?.[1];
}

/** The OpenShellError a client sees for a gRPC failure. A call that was reset on its way is `unavailable`, as one whose connection was lost. */
export function fromServiceError(error: ServiceError): OpenShellError {
  const code = resetCall.test(error.details) ? "unavailable" : codeOfStatus(error.code);
  return new OpenShellError(code, error.details || error.message, { ...readDetails(error), cause: error });
}

function readDetails(error: ServiceError): OpenShellErrorOptions {
  const [trailer] = error.metadata?.get(detailsTrailer) ?? [];
  if (!(trailer instanceof Uint8Array)) return {};
  const found: { -readonly [K in keyof OpenShellErrorOptions]: OpenShellErrorOptions[K] } = {};
  try {
    for (const detail of fromBinary(StatusSchema, trailer).details) {
      const badRequest = anyUnpack(detail, BadRequestSchema);
      if (badRequest !== undefined) found.violations = badRequest.fieldViolations;
      const info = anyUnpack(detail, ErrorInfoSchema);
      if (info !== undefined) {
        found.reason = info.reason;
        found.metadata = info.metadata;
      }
      const retry = anyUnpack(detail, RetryInfoSchema);
      if (retry?.retryDelay !== undefined) found.retryAfterMs = durationMs(retry.retryDelay);
    }
  } catch {
    // A peer may send any bytes, and code and message are there without them. What is thrown here would end the process.
  }
  return found;
}
