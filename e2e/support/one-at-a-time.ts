import { link, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { sleep } from "../../src/common/async.ts";
import { cacheDirectory } from "../cluster/cache.ts";
import type { Progress } from "../cluster/progress.ts";

/** Holder's process id; made by link, so that it never exists without it. */
const lockFile = join(cacheDirectory, "conformance.lock");

/** Waits until no other run of the suite uses the cluster: runs share one installation and change its settings. */
export async function oneAtATime(progress: Progress): Promise<AsyncDisposable> {
  await mkdir(cacheDirectory, { recursive: true });
  const mine = `${lockFile}.${process.pid}`;
  await writeFile(mine, String(process.pid));
  try {
    for (let told = ""; ; await sleep(1000)) {
      if (await taken(mine)) break;
      const holder = await readFile(lockFile, "utf8").catch(() => "");
      if (!isAlive(Number(holder))) await rm(lockFile, { force: true });
      else if (holder !== told) {
        progress.note(`waiting for another run of the suite (process ${holder})`);
        told = holder;
      }
    }
  } finally {
    await rm(mine, { force: true });
  }
  return { [Symbol.asyncDispose]: () => rm(lockFile, { force: true }) };
}

function taken(mine: string): Promise<boolean> {
  return link(mine, lockFile).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code === "EEXIST") return false;
      throw error;
    },
  );
}

function isAlive(pid: number): boolean {
  if (!Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
