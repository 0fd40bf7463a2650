import { create, type DescMessage, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { codecOf } from "./codec.ts";
import { boundary, openshell } from "./index.ts";

/** What the general encoder writes. */
function general<D extends DescMessage>(schema: D, value: MessageInitShape<D>): Buffer {
  return Buffer.from(toBinary(schema, create(schema, value)));
}

/** Compared by Buffer itself: a matcher takes seconds over arrays of this size. */
function sameBytes<D extends DescMessage>(schema: D, value: MessageInitShape<D>): boolean {
  const wanted = general(schema, value);
  const { encode } = codecOf(schema);
  return wanted.equals(encode(value)) && wanted.equals(encode(create(schema, value)));
}

const frames = (value: Uint8Array) =>
  [
    sameBytes(openshell.RelayFrameSchema, { payload: { case: "data", value } }),
    sameBytes(openshell.TcpForwardFrameSchema, { payload: { case: "data", value } }),
    sameBytes(boundary.ChannelFrameSchema, { payload: { case: "data", value } }),
    sameBytes(openshell.ExecSandboxEventSchema, { payload: { case: "stdout", value: { data: value } } }),
    sameBytes(openshell.ExecSandboxEventSchema, { payload: { case: "stderr", value: { data: value } } }),
    sameBytes(openshell.ExecSandboxInputSchema, { payload: { case: "stdin", value } }),
  ].every(Boolean);

describe("a codec", () => {
  it("writes bulk frames as the general encoder does, for every length around a varint's steps", () => {
    for (const length of [0, 1, 123, 124, 125, 126, 127, 128, 16_379, 16_380, 16_383, 16_384, 65_536, 2_097_152]) {
      expect([length, frames(new Uint8Array(length).fill(7))]).toEqual([length, true]);
    }
  });

  it("does so for any bytes", () => {
    fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), frames));
  });

  it("leaves everything else to the general encoder", () => {
    const { encode } = codecOf(openshell.RelayFrameSchema);
    expect(encode({}).length).toBe(0);
    expect(sameBytes(openshell.RelayFrameSchema, { payload: { case: "init", value: { channelId: "a" } } })).toBe(true);
    expect(sameBytes(openshell.ExecSandboxEventSchema, { payload: { case: "exit", value: { exitCode: 3 } } })).toBe(
      true,
    );
    expect(sameBytes(openshell.CreateSandboxRequestSchema, { name: "x", labels: { a: "b" } })).toBe(true);
  });

  it("keeps fields that this build does not know", () => {
    const known = general(openshell.RelayFrameSchema, { payload: { case: "data", value: Buffer.from("abc") } });
    const unknown = Buffer.from([(9 << 3) | 2, 2, 1, 2]);
    const { encode, decode } = codecOf(openshell.RelayFrameSchema);
    expect(encode(decode(Buffer.concat([known, unknown])))).toEqual(Buffer.concat([known, unknown]));
  });

  it("reads what it wrote, without copying the bytes", () => {
    const { encode, decode } = codecOf(openshell.ExecSandboxEventSchema);
    const bytes = encode({ payload: { case: "stdout", value: { data: Buffer.from("abc") } } });
    const event = decode(bytes) as openshell.ExecSandboxEvent;
    expect(event).toEqual(fromBinary(openshell.ExecSandboxEventSchema, bytes));
    const data = event.payload.case === "stdout" ? event.payload.value.data : undefined;
    expect(data?.buffer).toBe(bytes.buffer);
  });
});
