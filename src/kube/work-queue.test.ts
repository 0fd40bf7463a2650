import { describe, expect, test } from "vitest";
import { WorkQueue } from "./work-queue.ts";

/** A reconcile whose runs end when told to. */
function controlled() {
  const runs: { key: string; end: (result?: number) => void; fail: (error: Error) => void }[] = [];
  const reconcile = (key: string): Promise<number | undefined> =>
    new Promise((resolve, reject) => runs.push({ key, end: resolve, fail: reject }));
  return { runs, reconcile, keys: () => runs.map((run) => run.key) };
}

describe("the work queue", () => {
  test("works on a key once, however often it was added while it waited", async () => {
    const { reconcile, runs, keys } = controlled();
    await using queue = new WorkQueue({ reconcile, concurrency: 1 });
    for (const key of ["a", "b", "b", "b"]) queue.add(key);
    expect(keys()).toEqual(["a"]);
    runs[0]?.end();
    await expect.poll(keys).toEqual(["a", "b"]);
    runs[1]?.end();
    await queue.idle();
    expect(keys()).toEqual(["a", "b"]);
  });

  test("works on a key once more when it was added meanwhile, never twice at a time", async () => {
    const { reconcile, runs, keys } = controlled();
    await using queue = new WorkQueue({ reconcile });
    queue.add("a");
    queue.add("a");
    queue.add("a");
    expect(keys()).toEqual(["a"]);
    runs[0]?.end();
    await expect.poll(keys).toEqual(["a", "a"]);
    runs[1]?.end();
    await queue.idle();
    expect(keys()).toEqual(["a", "a"]);
  });

  test("works on other keys meanwhile, as many as allowed", async () => {
    const { reconcile, runs, keys } = controlled();
    await using queue = new WorkQueue({ reconcile, concurrency: 2 });
    for (const key of ["a", "b", "c"]) queue.add(key);
    expect(keys()).toEqual(["a", "b"]);
    expect(queue.depth).toBe(3);
    for (const run of runs) run.end();
    await expect.poll(keys).toEqual(["a", "b", "c"]);
    runs[2]?.end();
  });

  test("tries a failed key again with growing back-off, from the start after a success", async () => {
    const seen: [string, number][] = [];
    let runs = 0;
    await using queue = new WorkQueue({
      reconcile: async () => {
        runs += 1;
        if (runs === 1 || runs === 2 || runs === 4) throw new Error("not yet");
        return runs === 3 ? 1 : undefined;
      },
      backoff: { initialMs: 1 },
      onError: (key, _, failures) => seen.push([key, failures]),
    });
    queue.add("a");
    await expect.poll(() => runs).toBe(5);
    expect(seen).toEqual([
      ["a", 1],
      ["a", 2],
      ["a", 1],
    ]);
  });

  test("lets an added key out of its back-off", async () => {
    const { reconcile, runs, keys } = controlled();
    await using queue = new WorkQueue({ reconcile, backoff: { initialMs: 60_000 } });
    queue.add("a");
    runs[0]?.fail(new Error("no"));
    await queue.idle();
    queue.add("a");
    expect(keys()).toEqual(["a", "a"]);
    runs[1]?.end();
  });

  test("takes the earlier of two delays", async () => {
    const { reconcile, runs, keys } = controlled();
    await using queue = new WorkQueue({ reconcile });
    queue.addAfter("a", 60_000);
    queue.addAfter("a", 1);
    queue.addAfter("a", 60_000);
    await expect.poll(keys).toEqual(["a"]);
    runs[0]?.end();
  });

  test("when stopped aborts what is being worked on, waits for it, and forgets the rest", async () => {
    const keys: string[] = [];
    const queue = new WorkQueue({
      concurrency: 1,
      reconcile: (key, signal) => {
        keys.push(key);
        return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      },
    });
    queue.add("a");
    queue.add("b");
    queue.addAfter("c", 1);
    await queue.stop();
    queue.add("d");
    expect(keys).toEqual(["a"]);
    expect(queue.depth).toBe(0);
  });
});
