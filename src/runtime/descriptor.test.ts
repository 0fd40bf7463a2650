import { constants } from "node:os";
import { describe, expect, it, vi } from "vitest";
import { Descriptor } from "./descriptor.ts";
import type { Native } from "./native/index.ts";

/** A pipe's end that has so many bytes to read, `atOnce` at most by one call, and then none yet. */
function pipeWith(bytes: number, atOnce = Number.POSITIVE_INFINITY): Descriptor {
  let left = bytes;
  const native: Pick<Native, "read" | "watch" | "arm" | "unwatch" | "close"> = {
    read: (_fd, into, offset) => {
      const count = Math.min(left, into.length - offset, atOnce);
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

describe("output in small pieces", () => {
  /** An output whose process writes `pieces` pieces of 100 bytes, each when the one before has been looked for in vain. */
  function dripping(pieces: number) {
    let written = 0;
    let ready = false;
    let wake: (events: number) => void = () => {};
    const native: Pick<Native, "read" | "watch" | "arm" | "unwatch" | "close"> = {
      read: (_fd, _into) => {
        if (written === pieces) return 0;
        ready = !ready;
        if (!ready) return -constants.errno.EAGAIN;
        written += 1;
        return 100;
      },
      watch: (_fd, callback) => {
        wake = callback;
        return {};
      },
      arm: (_handle, events) => {
        queueMicrotask(() => wake(events));
        return 0;
      },
      unwatch: () => {},
      close: () => 0,
    };
    return new Descriptor(native as Native, 3);
  }

  it("of a terminal goes together as far as it is there", async () => {
    const terminal = pipeWith(100_000, 4095);
    terminal.finish();
    const lengths: number[] = [];
    for await (const { length } of terminal.read()) lengths.push(length);
    expect(lengths).toEqual([65_536, 34_464]);
  });

  it("is waited for once it comes rapidly, and not before", async () => {
    vi.useFakeTimers();
    try {
      const output = dripping(4).read();
      await output.next();
      await output.next();
      let third: unknown;
      const waiting = output.next().then((next) => {
        third = next;
      });
      await vi.advanceTimersByTimeAsync(0);
      expect(third).toBeUndefined();
      await vi.advanceTimersByTimeAsync(1);
      await waiting;
      expect(third).toMatchObject({ done: false });
      // Like keys: with time between them.
      vi.setSystemTime(Date.now() + 50);
      await vi.advanceTimersByTimeAsync(50);
      expect((await output.next()).done).toBe(false);
    } finally {
      vi.useRealTimers();
    }
  });

  it("is lent to who makes something of it, without a copy of it between", async () => {
    const pipe = pipeWith(10);
    pipe.finish();
    const lent: ArrayBufferLike[] = [];
    const chunks = pipe.read((bytes) => {
      lent.push(bytes.buffer);
      return Uint8Array.of(bytes.length);
    });
    expect((await chunks.next()).value).toEqual(Uint8Array.of(10));
    expect(lent[0]?.byteLength).toBe(64 * 1024);
  });
});
