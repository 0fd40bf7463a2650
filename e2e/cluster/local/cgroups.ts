import { mkdir, readdir, readFile, rmdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { sleep } from "../../../src/common/async.ts";
import { OpenShellError } from "../../../src/common/errors.ts";

/**
 * Cgroup hierarchies this machine has: every v1 controller of a legacy or hybrid layout, or the one unified hierarchy. Everything the cluster
 * starts lives below one cgroup of its own in each, so that stopping it can miss nothing: containers outlive a killed shim.
 */
export interface Hierarchies {
  readonly unified: boolean;
  /** Mount points. */
  readonly roots: readonly string[];
}

export async function findHierarchies(mounts = "/proc/self/mounts"): Promise<Hierarchies> {
  return parseHierarchies(await readFile(mounts, "utf8"));
}

export function parseHierarchies(mounts: string): Hierarchies {
  const found = mounts.split("\n").map((line) => line.split(" "));
  const v1 = found.filter(([, , type]) => type === "cgroup").map(([, path]) => path ?? "");
  if (v1.length > 0) return { unified: false, roots: [...new Set(v1)] };
  const v2 = found.find(([, , type]) => type === "cgroup2")?.[1];
  if (v2 !== undefined) return { unified: true, roots: [v2] };
  throw new OpenShellError(
    "failed-precondition",
    "no cgroup hierarchy is mounted: mount cgroup2 on /sys/fs/cgroup and run again",
  );
}

/** Makes the cgroup `path` in every hierarchy with what its children need, and gives its directories. */
export async function makeCgroup(hierarchies: Hierarchies, path: string): Promise<readonly string[]> {
  const made: string[] = [];
  for (const root of hierarchies.roots) {
    const parts = path.split("/");
    for (let depth = 1; depth <= parts.length; depth += 1) {
      const directory = join(root, ...parts.slice(0, depth));
      await mkdir(directory, { recursive: true });
      if (hierarchies.unified) await delegateControllers(dirname(directory));
      else await copyCpuset(dirname(directory), directory);
    }
    made.push(join(root, path));
  }
  return made;
}

/** Makes the top-level cgroup `name`, which no two clusters can; false when it is there already. */
export async function reserveCgroup(hierarchies: Hierarchies, name: string): Promise<boolean> {
  const [first = ""] = hierarchies.roots;
  try {
    await mkdir(join(first, name));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}

/** Version 2: a child has only the controllers that its parent hands down. */
async function delegateControllers(parent: string): Promise<void> {
  const controllers = (await readFile(join(parent, "cgroup.controllers"), "utf8")).trim().split(" ").filter(Boolean);
  for (const controller of controllers) {
    await writeFile(join(parent, "cgroup.subtree_control"), `+${controller}`).catch(() => {});
  }
}

/** Version 1: a new cpuset has no CPU and no memory node, and nothing can run in it. */
async function copyCpuset(parent: string, child: string): Promise<void> {
  for (const file of ["cpuset.cpus", "cpuset.mems"]) {
    const value = await readFile(join(parent, file), "utf8").catch(() => undefined);
    if (value !== undefined) await writeFile(join(child, file), value);
  }
}

/** Top-level cgroups of local clusters, by prefix, e.g. `osl0`: each living cluster has one. */
export async function clusterCgroups(hierarchies: Hierarchies): Promise<readonly string[]> {
  const listed = await Promise.all(hierarchies.roots.map((root) => readdir(root).catch(() => [])));
  return [...new Set(listed.flat())].filter((name) => /^osl\d+$/.test(name));
}

/** Process ids in `path` and below. */
export async function processesIn(hierarchies: Hierarchies, path: string): Promise<readonly number[]> {
  const found = new Set<number>();
  for (const root of hierarchies.roots) {
    for (const directory of await tree(join(root, path))) {
      const text = await readFile(join(directory, "cgroup.procs"), "utf8").catch(() => "");
      for (const line of text.split("\n")) if (line !== "") found.add(Number(line));
    }
  }
  found.delete(process.pid);
  return [...found];
}

/** Kills everything in `path` and below until nothing is left, then removes the cgroups, children first. */
export async function removeCgroup(hierarchies: Hierarchies, path: string): Promise<void> {
  const until = performance.now() + 30_000;
  for (;;) {
    const left = await processesIn(hierarchies, path);
    if (left.length === 0) break;
    if (performance.now() > until) {
      throw new OpenShellError(
        "deadline-exceeded",
        `processes ${left.join(", ")} do not end: see what they wait for in /proc/<pid>/stack`,
      );
    }
    for (const pid of left) kill(pid);
    await sleep(20);
  }
  for (const root of hierarchies.roots) {
    for (const directory of (await tree(join(root, path))).reverse()) await removeEmpty(directory, until);
  }
}

/** The kernel needs a moment after the last process before a cgroup counts as empty. */
async function removeEmpty(directory: string, until: number): Promise<void> {
  for (;;) {
    try {
      await rmdir(directory);
      return;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOENT") return;
      if (code !== "EBUSY" || performance.now() > until) throw error;
      await sleep(20);
    }
  }
}

/** `directory` and everything below it, parents first; empty when it does not exist. */
async function tree(directory: string): Promise<string[]> {
  const children = await readdir(directory, { withFileTypes: true }).catch(() => undefined);
  if (children === undefined) return [];
  const below = await Promise.all(
    children.filter((child) => child.isDirectory()).map((child) => tree(join(directory, child.name))),
  );
  return [directory, ...below.flat()];
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
