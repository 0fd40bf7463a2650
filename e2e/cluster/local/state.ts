import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
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
  const until = performance.now() + lockPatienceMs;
  for (let told = false; ; ) {
    await mkdir(directory, { recursive: true, mode: 0o755 });
    try {
      await writeFile(file, String(process.pid), { flag: "wx" });
      return { [Symbol.asyncDispose]: () => rm(file, { force: true }) };
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== "EEXIST" && code !== "ENOENT") throw error;
    }
    const owner = Number(await readFile(file, "utf8").catch(() => ""));
    if (owner > 0 && !isAlive(owner)) {
      await rm(file, { force: true });
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
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
