import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silent } from "../progress.ts";
import { freeIndices } from "./index.ts";
import { lockCluster, newClusterState, readClusterState, writeClusterState } from "./state.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "state-"));
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

describe("a cluster's state", () => {
  test("is read as it was written", async () => {
    const state = {
      ...newClusterState(3),
      nodes: [1, 4],
      sysctls: { "kernel/panic": "1" },
      images: { "a:b": "a_b.tar" },
    };
    await writeClusterState(directory, state);
    expect(await readClusterState(directory)).toEqual(state);
  });

  test("is undefined where no cluster was begun", async () => {
    expect(await readClusterState(directory)).toBeUndefined();
  });

  test.each(["", "{", '{"version":2}'])("that is damaged (%j) is refused in one line", async (text) => {
    await writeFile(join(directory, "cluster.json"), text);
    await expect(readClusterState(directory)).rejects.toThrow(/^\S+cluster\.json is damaged: [^\n]+$/);
  });
});

describe("the lock", () => {
  test("lets the second caller in when the first is done, and tells it whom it waits for", async () => {
    const notes: string[] = [];
    const first = await lockCluster(directory, silent);
    const { promise: told, resolve } = Promise.withResolvers<void>();
    const second = lockCluster(directory, {
      note: (line) => {
        notes.push(line);
        resolve();
      },
    });
    await told;
    await first[Symbol.asyncDispose]();
    await (await second)[Symbol.asyncDispose]();
    expect(notes).toEqual([`waiting for process ${process.pid}, which works on the same cluster`]);
    await expect(readFile(join(directory, "lock"))).rejects.toThrow("ENOENT");
  });

  test("of a process that is gone is taken over", async () => {
    const { pid } = spawnSync("true");
    await writeFile(join(directory, "lock"), String(pid));
    await using _lock = await lockCluster(directory, { note: (line) => expect.fail(line) });
    expect(await readFile(join(directory, "lock"), "utf8")).toMatch(new RegExp(`^${process.pid} \\d+$`));
  });

  test("of a process whose number another one has by now is taken over", async () => {
    await writeFile(join(directory, "lock"), `${process.pid} 1`);
    await using _lock = await lockCluster(directory, { note: (line) => expect.fail(line) });
  });

  test("has one holder at a time, also when many find a dead owner's", async () => {
    await writeFile(join(directory, "lock"), String(spawnSync("true").pid));
    let holders = 0;
    let most = 0;
    const work = async () => {
      await using _lock = await lockCluster(directory, silent);
      holders += 1;
      most = Math.max(most, holders);
      await new Promise((resolve) => setImmediate(resolve));
      holders -= 1;
    };
    await Promise.all(Array.from({ length: 10 }, work));
    expect(most).toBe(1);
    expect(await readdir(directory)).toEqual([]);
  });

  test("is not waited for when the caller gives up", async () => {
    await using _lock = await lockCluster(directory, silent);
    const giveUp = new AbortController();
    const waiting = lockCluster(directory, { note: () => giveUp.abort() }, giveUp.signal);
    await expect(waiting).rejects.toThrow(/abort/i);
  });
});

test("a new node takes the lowest number that is free", () => {
  expect(freeIndices([], 2)).toEqual([1, 2]);
  expect(freeIndices([1, 3], 2)).toEqual([2, 4]);
  expect(freeIndices([2], 1)).toEqual([1]);
});
