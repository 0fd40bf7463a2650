import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { Metadata, status as Status } from "@grpc/grpc-js";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { OpenShellError, type OpenShellErrorOptions } from "../common/errors.ts";
import { RetryInfoSchema, StatusSchema } from "./gen/rpc_pb.js";
import { fromServiceError, toServiceError } from "./status.ts";

/** Bytes of what gRPC writes for an error into trailers: the message escaped, the details as base64. */
function trailerBytes(message: string, options: OpenShellErrorOptions): number {
  const { details, metadata } = toServiceError(new OpenShellError("not-found", message, options));
  const [status = ""] = metadata.get("grpc-status-details-bin");
  return encodeURI(details).length + Buffer.from(status).toString("base64").length;
}

/** What Node takes, less what the other trailers of an answer may need. */
const mostBytes = 60 * 1024;
/** Three bytes a character: more than any other has for its length. */
const many = "€".repeat(10_000);
const entriesOf = (count: number, text: string) =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`key-${index}`, text]));
const violationsOf = (count: number, text: string) =>
  Array.from({ length: count }, () => ({ field: text, description: text }));

describe("an error in trailers", () => {
  it.each([0, 1, 2, 3, 20, 2000])("fits, with %i entries of metadata", (count) => {
    const options = { reason: many, metadata: entriesOf(count, many), violations: violationsOf(20, many) };
    expect(trailerBytes(many, options)).toBeLessThan(mostBytes);
  });

  it("fits, whatever it quotes", () => {
    const text = fc.string({ unit: fc.constantFrom("€", "x", "%", "\n", "😀"), maxLength: 3000, size: "max" });
    const options = fc.record({
      reason: text,
      metadata: fc.dictionary(text, text, { maxKeys: 30 }),
      violations: fc.array(fc.record({ field: text, description: text }), { maxLength: 30 }),
    });
    fc.assert(
      fc.property(text, options, (message, given) => trailerBytes(message, given) < mostBytes),
      { numRuns: 50 },
    );
  });

  it.each([
    [999.7, 1000],
    [1999.5, 2000],
    [1500, 1500],
    [0.2, 1],
  ])("says of %d ms that it makes sense to try again after %d", (retryAfterMs, told) => {
    const { code, details, metadata } = toServiceError(new OpenShellError("unavailable", "busy", { retryAfterMs }));
    expect(fromServiceError(Object.assign(new Error(details), { code, details, metadata })).details).toEqual({
      retryAfterMs: told,
    });
    const [status = ""] = metadata.get("grpc-status-details-bin");
    const [retry] = fromBinary(StatusSchema, Buffer.from(status)).details;
    const delay = retry === undefined ? undefined : anyUnpack(retry, RetryInfoSchema)?.retryDelay;
    // google.protobuf.Duration has less than a second of them.
    expect(delay?.nanos).toBeLessThan(1_000_000_000);
  });

  it("leaves out what has no room, violations last of all", () => {
    const told = (metadata: Record<string, string>) => {
      const options = { reason: "Refused", metadata, violations: violationsOf(5, "€".repeat(200)) };
      const error = toServiceError(new OpenShellError("not-found", "no", options));
      return Buffer.from(error.metadata.get("grpc-status-details-bin")[0] ?? "").toString();
    };
    const all = told(entriesOf(3, "short"));
    for (const key of ["Refused", "key-0", "key-1", "key-2"]) expect(all).toContain(key);
    const some = told(entriesOf(20, many));
    expect(some.match(/€{200}/g)?.length).toBeGreaterThanOrEqual(10);
    for (const key of ["Refused", "key-0", "key-1"]) expect(some).toContain(key);
    expect(some).not.toContain("key-19");
  });
});

describe("an error as a client sees it", () => {
  const seen = (code: Status, details: string, trailer?: Uint8Array) => {
    const metadata = new Metadata();
    if (trailer !== undefined) metadata.set("grpc-status-details-bin", Buffer.from(trailer));
    return fromServiceError(Object.assign(new Error(details), { code, details, metadata }));
  };

  it.each([
    ["are no message", Uint8Array.of(0xff, 0xff, 0xff)],
    ["hold one of another type than they say", retryInfoOf(Uint8Array.of(0xff))],
  ])("has its code and message where the details %s", (_, trailer) => {
    expect(seen(Status.UNAVAILABLE, "try later", trailer)).toMatchObject({
      code: "unavailable",
      message: "try later",
      details: {},
    });
  });
});

/** google.rpc.Status with a RetryInfo of these bytes. */
function retryInfoOf(value: Uint8Array): Uint8Array {
  const typeUrl = "type.googleapis.com/google.rpc.RetryInfo";
  return toBinary(StatusSchema, create(StatusSchema, { code: 14, details: [{ typeUrl, value }] }));
}
