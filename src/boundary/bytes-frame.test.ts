import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { encodeFrame } from "../common/frames.ts";
import { boundary } from "../wire/index.ts";
import { bytesFields, encodeBytesFrame } from "./bytes-frame.ts";

describe("a frame of bytes", () => {
  it("is what the general encoder writes, for every length around a varint's steps", () => {
    const lengths = [0, 1, 126, 127, 128, 129, 16_379, 16_380, 16_381, 16_382, 16_383, 16_384, 65_536, 300_000];
    for (const length of lengths) {
      const value = new Uint8Array(length).fill(7);
      expect(
        same(
          encodeBytesFrame(bytesFields.stdin, value),
          encodeFrame(boundary.ExecInputSchema, { payload: { case: "stdin", value } }),
        ),
      ).toBe(true);
    }
  });

  it("is so for any bytes and for each message that carries bulk data", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (value) => {
        expect(
          same(
            encodeBytesFrame(bytesFields.stdout, value),
            encodeFrame(boundary.ExecOutputSchema, { payload: { case: "stdout", value } }),
          ),
        ).toBe(true);
        expect(
          same(
            encodeBytesFrame(bytesFields.stderr, value),
            encodeFrame(boundary.ExecOutputSchema, { payload: { case: "stderr", value } }),
          ),
        ).toBe(true);
        expect(
          same(
            encodeBytesFrame(bytesFields.uploaded, value),
            encodeFrame(boundary.FilesRequestSchema, { payload: { case: "data", value } }),
          ),
        ).toBe(true);
        expect(
          same(
            encodeBytesFrame(bytesFields.downloaded, value),
            encodeFrame(boundary.FilesReplySchema, { payload: { case: "data", value } }),
          ),
        ).toBe(true);
      }),
    );
  });
});

/** Buffer's own comparison; a matcher takes seconds over arrays of this size. */
function same(left: Uint8Array, right: Uint8Array): boolean {
  return Buffer.compare(left, right) === 0;
}
