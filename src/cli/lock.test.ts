import { mkdir, mkdtemp, readdir, rm, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { tryLock } from "./lock.ts";

const staleMs = 60_000;
let directory: string;
let path: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "openshell-lock-"));
  path = join(directory, "lock");
});
afterEach(() => rm(directory, { recursive: true }));

const take = () => tryLock(path, staleMs);
const release = (lock: AsyncDisposable | undefined) => lock?.[Symbol.asyncDispose]();

/** The holder of the lock is gone. */
async function abandon(ageMs = 2 * staleMs): Promise<void> {
  const long = new Date(Date.now() - ageMs);
  await utimes(path, long, long);
}

describe("a lock", () => {
  it("is one holder's until it is released, and leaves nothing behind", async () => {
    const first = await take();
    expect(first).toBeDefined();
    expect(await take()).toBeUndefined();
    await release(first);
    expect(await readdir(directory)).toEqual([]);
    await release(await take());
    expect(await readdir(directory)).toEqual([]);
  });

  it("of a holder who is gone goes to one of those who wait", async () => {
    for (let round = 0; round < 50; round += 1) {
      await take();
      await abandon();
      const locks = await Promise.all(Array.from({ length: 8 }, take));
      const holders = locks.filter((lock) => lock !== undefined);
      expect(holders).toHaveLength(1);
      await release(holders[0]);
    }
    expect(await readdir(directory)).toEqual([]);
  });

  it("that was taken over is not released by who had it before", async () => {
    const first = await take();
    await abandon();
    const second = await take();
    expect(second).toBeDefined();
    await release(first);
    expect(await take()).toBeUndefined();
    await release(second);
    expect(await readdir(directory)).toEqual([]);
  });

  it("of a holder who is gone is free though its time lies ahead", async () => {
    await take();
    await abandon(-staleMs / 2);
    expect(await take()).toBeUndefined();
    await abandon(-2 * staleMs);
    expect(await take()).toBeDefined();
  });

  it("without a holder is free", async () => {
    await mkdir(path);
    expect(await take()).toBeDefined();
    expect(await take()).toBeUndefined();
  });

  it("can be nowhere but in a directory that exists", async () => {
    await expect(tryLock(join(directory, "missing", "lock"), staleMs)).rejects.toMatchObject({ code: "ENOENT" });
    expect(await readdir(directory)).toEqual([]);
  });
});
