import { getEventListeners } from "node:events";
import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { AsyncQueue, abortable, backoffMs, failuresAfter, retry, withDeadline, within } from "./async.ts";
import { OpenShellError } from "./errors.ts";

describe("backoff", () => {
  it("stays between half of the capped exponential and all of it", () => {
    fc.assert(
      fc.property(fc.nat({ max: 60 }), fc.double({ min: 0, max: 0.999, noNaN: true }), (attempt, random) => {
        const full = Math.min(30_000, 100 * 2 ** attempt);
        const delay = backoffMs(attempt, { random: () => random });
        expect(delay).toBeGreaterThanOrEqual(full / 2);
        expect(delay).toBeLessThanOrEqual(full);
      }),
    );
  });
});

describe("abortable work", () => {
  const never = new Promise<never>(() => {});

  it("comes to what it comes to, and listens to the signal no longer", async () => {
    const { signal } = new AbortController();
    expect(await abortable(Promise.resolve(1), signal)).toBe(1);
    await expect(abortable(Promise.reject(new Error("its own")), signal)).rejects.toThrow("its own");
    expect(getEventListeners(signal, "abort")).toEqual([]);
  });

  it("ends with the signal's reason, when that aborts and when it had before, whatever becomes of it later", async () => {
    const stop = new AbortController();
    const { promise: late, reject } = Promise.withResolvers<never>();
    const ended = [abortable(never, stop.signal), abortable(late, stop.signal)];
    stop.abort(new Error("enough"));
    for (const one of ended) await expect(one).rejects.toThrow("enough");
    reject(new Error("too late"));
    await expect(abortable(Promise.resolve(1), stop.signal)).rejects.toThrow("enough");
  });
});

describe("failures in a row", () => {
  it("are forgotten once something lived a while, not when it began", () => {
    expect([0, 4_999, 5_000, 3_600_000].map((livedMs) => failuresAfter(7, livedMs))).toEqual([7, 7, 0, 0]);
  });
});

describe("retry", () => {
  it("returns the first success and has counted the attempts", async () => {
    const result = await retry(async (attempt) => (attempt < 2 ? Promise.reject(new Error("no")) : attempt), {
      initialMs: 1,
    });
    expect(result).toBe(2);
  });

  it("ends after its attempts with the last error", async () => {
    let calls = 0;
    const failing = retry(async () => Promise.reject(new Error(`call ${++calls}`)), { attempts: 3, initialMs: 1 });
    await expect(failing).rejects.toThrow("call 3");
  });

  it("does not repeat what is not retryable", async () => {
    let calls = 0;
    const failing = retry(async () => Promise.reject(new Error(`call ${++calls}`)), { retryable: () => false });
    await expect(failing).rejects.toThrow("call 1");
  });
});

describe("within", () => {
  it("is what the work comes to in time, and else the error that is made then", async () => {
    const late = vi.fn(() => new Error("late"));
    await expect(within(Promise.resolve(1), 1_000, late)).resolves.toBe(1);
    await expect(within(Promise.reject(new Error("its own")), 1_000, late)).rejects.toThrow("its own");
    expect(late).not.toHaveBeenCalled();
    const { promise, reject } = Promise.withResolvers<void>();
    await expect(within(promise, 5, late)).rejects.toThrow("late");
    // Of what comes of it later nobody hears.
    reject(new Error("unheard"));
  });
});

describe("withDeadline", () => {
  it("names what did not finish", async () => {
    const never = withDeadline("reading the Secret", 5, (signal) => {
      return new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    });
    await expect(never).rejects.toMatchObject({
      code: "deadline-exceeded",
      message: "reading the Secret did not finish within 5 ms",
    });
  });
});

describe("AsyncQueue", () => {
  it("delivers everything in order whatever its limit", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer(), { maxLength: 50 }),
        fc.integer({ min: 1, max: 5 }),
        async (items, limit) => {
          const queue = new AsyncQueue<number>(limit);
          const feeding = (async () => {
            for (const item of items) await queue.push(item);
            queue.end();
          })();
          const seen: number[] = [];
          for await (const item of queue) seen.push(item);
          await feeding;
          expect(seen).toEqual(items);
        },
      ),
    );
  });

  it("holds a producer back at its limit", async () => {
    const queue = new AsyncQueue<number>(1);
    await queue.push(1);
    let second = false;
    const pushing = queue.push(2).then(() => {
      second = true;
    });
    await Promise.resolve();
    expect(second).toBe(false);
    const reader = queue[Symbol.asyncIterator]();
    await reader.next();
    await pushing;
    expect(second).toBe(true);
  });

  it("releases producers when its consumer leaves", async () => {
    const queue = new AsyncQueue<number>(1);
    await queue.push(1);
    const waiting = [queue.push(2), queue.push(3), queue.push(4)];
    for await (const _item of queue) break;
    expect((await Promise.all(waiting)).at(-1)).toBe(false);
    expect(await queue.push(5)).toBe(false);
  });

  it("ends with the error it was given, after what was queued", async () => {
    const queue = new AsyncQueue<number>();
    queue.offer(1);
    queue.end(new OpenShellError("unavailable", "relay lost"));
    const seen: number[] = [];
    const reading = (async () => {
      for await (const item of queue) seen.push(item);
    })();
    await expect(reading).rejects.toThrow("relay lost");
    expect(seen).toEqual([1]);
  });
});
