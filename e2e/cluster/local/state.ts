import { randomUUID } from "node:crypto";
import { link, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { sleep } from "../../../src/common/async.ts";
import { OpenShellError } from "../../../src/common/errors.ts";
import type { Progress } from "../progress.ts";

const clusterStateSchema = z.strictObject({
  version: z.literal(1),
  slot: z.int().min(0),
  /** Indices of the nodes that exist or are being made. */
  nodes: z.array(z.int().min(1)),
  /** Kernel settings as they were before, by name. */
  sysctls: z.record(z.string(), z.string()),
  /** Directories outside of the state directory that the cluster made; removed by `down` when empty. */
  directories: z.array(z.string()),
  /** Archives that every node has, by reference: file names in the images directory. */
  images: z.record(z.string(), z.string()),
  /** NetworkPolicy enforcement was seen to work. */
  verified: z.boolean(),
});

/** What has to survive this process so that a later one can go on, or remove every trace. */
export type ClusterState = z.infer<typeof clusterStateSchema>;

export function newClusterState(slot: number): ClusterState {
  return { version: 1, slot, nodes: [], sysctls: {}, directories: [], images: {}, verified: false };
}

/** The state below `directory`, or undefined when no cluster was begun there. */
export async function readClusterState(directory: string): Promise<ClusterState | undefined> {
  const file = join(directory, "cluster.json");
  const text = await readFile(file, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
  if (text === undefined) return undefined;
  try {
    return clusterStateSchema.parse(JSON.parse(text));
  } catch (cause) {
    throw new OpenShellError(
      "failed-precondition",
      `${file} is damaged: reboot, or remove what e2e/cluster/local/traces.ts lists by hand`,
      {
        cause,
      },
    );
  }
}

/** Replaces the state in one step, so that a crash leaves the old one or the new one. */
export async function writeClusterState(directory: string, state: ClusterState): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o755 });
  const file = join(directory, "cluster.json");
  await writeFile(`${file}.tmp`, `${JSON.stringify(state, undefined, 2)}\n`);
  await rename(`${file}.tmp`, file);
}

/** How long a command waits for another one on the same cluster; a cold build is the longest there is. */
const lockPatienceMs = 20 * 60_000;

/**
 * Holds off other commands on the same cluster until disposed; waits for one that is at work. A lock whose owner is gone is taken over.
 *
 * @param progress told once when there is something to wait for
 */
export async function lockCluster(
  directory: string,
  progress: Progress,
  signal?: AbortSignal,
): Promise<AsyncDisposable> {
  const file = join(directory, "lock");
  const mine = `${file}.${process.pid}.${randomUUID()}`;
  const until = performance.now() + lockPatienceMs;
  try {
    for (let told = false; ; ) {
      await mkdir(directory, { recursive: true, mode: 0o755 });
      await writeFile(mine, `${process.pid} ${await startedAt(process.pid)}`);
      // Whole or not at all: nobody ever reads a lock that is half written.
      if (await linked(mine, file)) return { [Symbol.asyncDispose]: () => rm(file, { force: true }) };
      const held = await readFile(file, "utf8").catch(() => "");
      const [owner = "", started] = held.split(" ");
      if (held !== "" && !(await isAlive(Number(owner), started))) {
        await breakLock(file, held);
      } else if (performance.now() > until) {
        throw new OpenShellError(
          "deadline-exceeded",
          `process ${owner} still works on the cluster in ${directory}: end it and run again`,
        );
      } else {
        if (!told) progress.note(`waiting for process ${owner}, which works on the same cluster`);
        told = true;
        await sleep(100, signal);
      }
    }
  } finally {
    await rm(mine, { force: true });
  }
}

/** Removes the lock that a dead owner left, and never one that somebody else has taken over since it was read. */
async function breakLock(file: string, held: string): Promise<void> {
  const aside = `${file}.${randomUUID()}`;
  const moved = await rename(file, aside).then(
    () => true,
    () => false,
  );
  if (!moved) return;
  if ((await readFile(aside, "utf8")) !== held) await linked(aside, file);
  await rm(aside, { force: true });
}

/** Gives a file a second name; false when that name is taken, or `down` has just removed the directory. */
async function linked(from: string, to: string): Promise<boolean> {
  try {
    await link(from, to);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" || code === "ENOENT") return false;
    throw error;
  }
}

/** The same process, not another one that has its number by now. */
async function isAlive(pid: number, started: string | undefined): Promise<boolean> {
  const now = await startedAt(pid);
  return now !== "" && (started === undefined || started === now);
}

/** When a process began, in clock ticks since the machine did; empty when there is none. */
async function startedAt(pid: number): Promise<string> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "";
}
