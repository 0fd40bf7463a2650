import { spawn } from "node:child_process";
import { mkdir, open, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { sleep } from "../../../src/common/async.ts";
import { OpenShellError } from "../../../src/common/errors.ts";
import { type Hierarchies, makeCgroup } from "./cgroups.ts";

/** What every component gets. They are Go programs, and a machine of this kind has memory to spare but not cores: collect garbage less often. */
const environment = {
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  HOME: "/root",
  GOGC: "400",
};

/** A long-running program of the cluster. */
export interface Component {
  /** Unique in the cluster: names its pid file and its log, e.g. `node-1/kubelet`. */
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Cgroup it is put into. */
  readonly cgroup: string;
}

/** Where components keep their pid files and logs. */
export interface ComponentPlace {
  readonly run: string;
  readonly logs: string;
  readonly hierarchies: Hierarchies;
}

/** How long a component may take to be of use. */
export interface WaitOptions {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/**
 * Starts a component unless it runs, detached from this process, with output appended to its log.
 *
 * @returns its process id
 */
export async function startComponent(place: ComponentPlace, component: Component): Promise<number> {
  const running = await componentPid(place, component.name, component.cgroup);
  if (running !== undefined) return running;
  const pidFile = pidFileOf(place, component.name);
  const logFile = logFileOf(place, component.name);
  await mkdir(dirname(pidFile), { recursive: true });
  await mkdir(dirname(logFile), { recursive: true });
  const cgroups = await makeCgroup(place.hierarchies, component.cgroup);
  // The shell joins the cgroups before the program begins, so that not even its first child is outside of them.
  const join = cgroups.map((directory) => `echo $$ > '${directory}/cgroup.procs'`).join(" && ");
  const log = await open(logFile, "a");
  try {
    const child = spawn("/bin/sh", ["-c", `${join} && exec "$@"`, "sh", component.command, ...component.args], {
      detached: true,
      stdio: ["ignore", log.fd, log.fd],
      cwd: "/",
      env: { ...environment, ...component.env },
    });
    const pid = await new Promise<number>((resolve, reject) => {
      child.once("spawn", () => resolve(child.pid ?? 0));
      child.once("error", reject);
    });
    child.unref();
    await writeFile(pidFile, String(pid));
    // Until the shell has joined its cgroup nobody could tell the process from a stranger with the same id.
    while (child.exitCode === null && (await componentPid(place, component.name, component.cgroup)) === undefined)
      await sleep(5);
    return pid;
  } finally {
    await log.close();
  }
}

/** The component's process id while it lives. A reused id is not taken for it: it must be in the component's cgroup. */
export async function componentPid(place: ComponentPlace, name: string, cgroup: string): Promise<number | undefined> {
  const pid = Number(await readFile(pidFileOf(place, name), "utf8").catch(() => ""));
  if (!(pid > 0)) return undefined;
  if (!lives(await readFile(`/proc/${pid}/stat`, "utf8").catch(() => ""))) return undefined;
  return isInCgroup(await readFile(`/proc/${pid}/cgroup`, "utf8").catch(() => ""), cgroup) ? pid : undefined;
}

/** @param stat /proc/<pid>/stat; empty when there is no such process. A zombie does not live: it waits for its parent only. */
export function lives(stat: string): boolean {
  const state = stat.slice(stat.lastIndexOf(")") + 2).charAt(0);
  return stat !== "" && state !== "Z" && state !== "X";
}

/** @param groups /proc/<pid>/cgroup: a line for each hierarchy, the path after the second colon */
export function isInCgroup(groups: string, cgroup: string): boolean {
  return groups.split("\n").some((line) => line.split(":").slice(2).join(":") === `/${cgroup}`);
}

/**
 * Waits until `ready` holds, and fails at once when the component ended instead.
 *
 * @param condition what is waited for, in words
 */
export async function waitForComponent(
  place: ComponentPlace,
  component: Pick<Component, "name" | "cgroup">,
  condition: string,
  ready: () => Promise<boolean>,
  options: WaitOptions,
): Promise<void> {
  const until = performance.now() + options.timeoutMs;
  while (!(await ready())) {
    options.signal?.throwIfAborted();
    const dead = (await componentPid(place, component.name, component.cgroup)) === undefined;
    if (dead || performance.now() > until) {
      const what = dead
        ? `${component.name} ended`
        : `${component.name}: not ${condition} after ${options.timeoutMs / 1000} s`;
      throw new OpenShellError(
        "internal",
        `${what}; the end of ${logFileOf(place, component.name)}:\n${await logEnd(place, component.name)}`,
      );
    }
    await sleep(50, options.signal);
  }
}

export function logFileOf(place: Pick<ComponentPlace, "logs">, name: string): string {
  return join(place.logs, `${name}.log`);
}

function pidFileOf(place: Pick<ComponentPlace, "run">, name: string): string {
  return join(place.run, `${name}.pid`);
}

async function logEnd(place: ComponentPlace, name: string): Promise<string> {
  const text = await readFile(logFileOf(place, name), "utf8").catch(() => "");
  return text.trimEnd().split("\n").slice(-8).join("\n");
}
