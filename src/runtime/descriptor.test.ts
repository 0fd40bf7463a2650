import { constants } from "node:os";
import { describe, expect, it } from "vitest";
import { Descriptor } from "./descriptor.ts";
import type { Native } from "./native/index.ts";

/** A pipe's end that has so many bytes to read, and then none yet. */
function pipeWith(bytes: number): Descriptor {
  let left = bytes;
  const native: Pick<Native, "read" | "watch" | "arm" | "unwatch" | "close"> = {
    read: (_fd, into) => {
      const count = Math.min(left, into.length);
      left -= count;
      return count > 0 ? count : -constants.errno.EAGAIN;
    },
    watch: () => ({}),
    arm: () => 0,
    unwatch: () => {},
    close: () => 0,
  };
  return new Descriptor(native as Native, 3);
}

async function lengthOf(chunks: AsyncIterable<Uint8Array>): Promise<number> {
  let length = 0;
  for await (const chunk of chunks) length += chunk.length;
  return length;
}

const mebibyte = 1024 * 1024;

describe("the output of a process that is gone", () => {
  it("is read to its end", async () => {
    const pipe = pipeWith(300_000);
    pipe.finish();
    expect(await lengthOf(pipe.read())).toBe(300_000);
  });

  it("is no more than a pipe holds, although another process goes on writing to it", async () => {
    const pipe = pipeWith(100 * mebibyte);
    const chunks = pipe.read();
    for (let index = 0; index < 100; index += 1) await chunks.next();
    pipe.finish();
    expect(await lengthOf(chunks)).toBe(mebibyte);
  });

  it("ends when the process ends, for who waits for it", async () => {
    const pipe = pipeWith(0);
    const length = lengthOf(pipe.read());
    pipe.finish();
    expect(await length).toBe(0);
  });
});
