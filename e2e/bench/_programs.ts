import { readdirSync, readFileSync } from "node:fs";
import { basename } from "node:path";

/** Linux counts a process's time in hundredths of a second, whatever its kernel's own tick (`man 2 times`). */
const ticksPerSecond = 100;
/** Programs whose name says nothing until the next word does: node FILE, kubernetes COMPONENT. */
const hosts = /^(node|kubernetes-.*)$/;

/**
 * CPU seconds that each program has spent on this machine since it began, by its name; of processes with one name the sum. Those that have
 * ended are in none. Empty on a machine without Linux's /proc.
 */
export function programCpuSeconds(): ReadonlyMap<string, number> {
  const spent = new Map<string, number>();
  for (const pid of process.platform === "linux" ? readdirSync("/proc") : []) {
    if (!/^\d+$/.test(pid)) continue;
    try {
      const name = programName(readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0"));
      if (name === undefined) continue;
      spent.set(name, (spent.get(name) ?? 0) + ticksOf(readFileSync(`/proc/${pid}/stat`, "utf8")) / ticksPerSecond);
    } catch (error) {
      // It ended meanwhile.
      if (!/ENOENT|ESRCH/.test(String(error))) throw error;
    }
  }
  return spent;
}

/** Of a command line; undefined for a thread of the kernel, which has none. */
export function programName([path = "", ...args]: readonly string[]): string | undefined {
  const name = basename(path);
  if (name === "") return undefined;
  const what = hosts.test(name) ? args.find((arg) => arg !== "" && !arg.startsWith("-")) : undefined;
  if (what === undefined) return name;
  // main.ts and index.js say less than where they are.
  const [file = "", room = ""] = what.split("/").toReversed();
  return /^(main|index)\./.test(file) ? room : file;
}

/** User's and system's time, of a /proc/PID/stat. The name before them may have blanks and parentheses. */
export function ticksOf(stat: string): number {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

/** What each spent between two looks, for each of `count` things that were done, the most first. */
export function spentBetween(
  before: ReadonlyMap<string, number>,
  after: ReadonlyMap<string, number>,
  count: number,
): ReadonlyMap<string, number> {
  return new Map(
    [...after]
      .map(([name, seconds]) => [name, (seconds - (before.get(name) ?? 0)) / count] as const)
      .filter(([, seconds]) => seconds > 0)
      .sort(([, left], [, right]) => right - left),
  );
}
