import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { BytesValueSchema, StringValueSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { decodeFrames, encodeFrame, FrameDecoder, maxFrameBytes } from "./frames.ts";

const schema = StringValueSchema;

describe("delimited frames", () => {
  it("survive any cut into chunks", () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ maxLength: 400 }), { maxLength: 20 }),
        fc.infiniteStream(fc.integer({ min: 1, max: 97 })),
        (texts, cuts) => {
          const bytes = Buffer.concat(texts.map((value) => encodeFrame(schema, { value })));
          const decoder = new FrameDecoder(schema);
          const seen: string[] = [];
          for (let offset = 0; offset < bytes.length; ) {
            const size = cuts.next().value;
            for (const message of decoder.push(bytes.subarray(offset, offset + size))) seen.push(message.value);
            offset += size;
          }
          expect(seen).toEqual(texts);
          expect(decoder.isEmpty).toBe(true);
        },
      ),
    );
  });

  it.each([1, 16, 1000])("take work in proportion to their bytes, in pieces of %i", (size) => {
    const bytes = encodeFrame(schema, { value: "x".repeat(64 * 1024) });
    const decoder = new FrameDecoder(schema);
    let copied = 0;
    const typedArrays: Pick<Uint8Array, "set"> = Object.getPrototypeOf(Uint8Array.prototype);
    const { set } = typedArrays;
    const counted = vi.spyOn(typedArrays, "set").mockImplementation(function (this: Uint8Array, source, offset) {
      copied += source.length;
      set.call(this, source, offset);
    });
    const seen: number[] = [];
    try {
      for (let at = 0; at < bytes.length; at += size) {
        for (const { value } of decoder.push(bytes.subarray(at, at + size))) seen.push(value.length);
      }
    } finally {
      counted.mockRestore();
    }
    expect(seen).toEqual([64 * 1024]);
    expect(copied).toBeGreaterThanOrEqual(bytes.length - size);
    expect(copied).toBeLessThan(3 * bytes.length);
  });

  it("leave the bytes of a message as they were when the next one comes", () => {
    const messages = ["first", "second"].map((text) => ({ value: Buffer.from(text) }));
    const bytes = Buffer.concat(messages.map((message) => encodeFrame(BytesValueSchema, message)));
    const decoder = new FrameDecoder(BytesValueSchema);
    const seen: Uint8Array[] = [];
    for (const byte of bytes) for (const { value } of decoder.push(Uint8Array.of(byte))) seen.push(value);
    expect(seen.map((value) => Buffer.from(value).toString())).toEqual(["first", "second"]);
  });

  it("are the delimited form that other protobuf libraries write", () => {
    const frame = encodeFrame(schema, { value: "x".repeat(300) });
    expect([...frame.subarray(0, 2)]).toEqual([0xaf, 0x02]);
    expect(fromBinary(schema, frame.subarray(2)).value).toHaveLength(300);
    expect(toBinary(schema, fromBinary(schema, frame.subarray(2)))).toHaveLength(0x2 * 128 + 0x2f);
  });

  it("refuse a length above the limit before its bytes arrive", () => {
    const decoder = new FrameDecoder(schema);
    expect(() => [...decoder.push(Uint8Array.of(0xff, 0xff, 0xff, 0x7f))]).toThrow(
      `above the limit of ${maxFrameBytes}`,
    );
  });

  it("refuse a length that is no 32-bit varint", () => {
    const decoder = new FrameDecoder(schema);
    expect(() => [...decoder.push(new Uint8Array(6).fill(0xff))]).toThrow("no 32-bit varint");
  });

  it("report a stream that ends inside a message", async () => {
    async function* cut() {
      yield encodeFrame(schema, { value: "whole" });
      yield encodeFrame(schema, { value: "half" }).subarray(0, 3);
    }
    const seen: string[] = [];
    const reading = (async () => {
      for await (const message of decodeFrames(schema, cut())) seen.push(message.value);
    })();
    await expect(reading).rejects.toMatchObject({ code: "data-loss" });
    expect(seen).toEqual(["whole"]);
  });

  it("hand over what follows a header message as raw bytes", () => {
    const decoder = new FrameDecoder(schema);
    const bytes = Buffer.concat([encodeFrame(schema, { value: "open" }), Buffer.from("raw")]);
    const first = decoder.push(bytes).next().value;
    expect(first?.value).toBe("open");
    expect(Buffer.from(decoder.takeRest()).toString()).toBe("raw");
  });
});
