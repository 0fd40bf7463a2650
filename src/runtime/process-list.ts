import { readdirSync, readFileSync } from "node:fs";

/** A line of /proc/<pid>/stat, as much of it as is needed here. */
export interface ProcessEntry {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  /** Of its main thread: R running, S sleeping, D waiting, T stopped, t traced, Z ended, … */
  readonly state: string;
  /** How many it has; a main thread that ended before the others is still one of them. */
  readonly threads: number;
  /** Start time in clock ticks; with the pid it names one process for ever. */
  readonly started: string;
}

/**
 * The processes below `self` with a thread that lives. As PID 1 that is everything in the PID namespace, also what was put there from
 * outside; elsewhere the descendants.
 */
export function listProcesses(self = process.pid, directory = "/proc"): ProcessEntry[] {
  const all: ProcessEntry[] = [];
  for (const name of readdirSync(directory)) {
    if (!/^[1-9]\d*$/.test(name)) continue;
    const entry = readStat(`${directory}/${name}/stat`);
    if (entry !== undefined && entry.pid !== self && isAlive(entry)) all.push(entry);
  }
  return self === 1 ? all : descendants(all, self);
}

function isAlive({ state, threads }: ProcessEntry): boolean {
  return state !== "X" && (state !== "Z" || threads > 1);
}

function descendants(all: readonly ProcessEntry[], self: number): ProcessEntry[] {
  const below = new Set([self]);
  const found: ProcessEntry[] = [];
  for (let grown = true; grown; ) {
    grown = false;
    for (const entry of all) {
      if (below.has(entry.parent) && !below.has(entry.pid)) {
        below.add(entry.pid);
        found.push(entry);
        grown = true;
      }
    }
  }
  return found;
}

/** What says nothing about the process that was to be read. */
const shortages = new Set(["EMFILE", "ENFILE", "ENOMEM"]);

function readStat(path: string): ProcessEntry | undefined {
  try {
    return parseStat(readFileSync(path, "latin1"));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== undefined && shortages.has(code)) throw error;
    // It ended between the listing and the read.
    return undefined;
  }
}

/** The command name may hold spaces and parentheses, so fields are counted from the last one. */
export function parseStat(text: string): ProcessEntry | undefined {
  const pid = Number.parseInt(text, 10);
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [state, parent, group, session] = fields;
  const threads = Number(fields[17]);
  const started = fields[19];
  if (!Number.isInteger(pid) || state === undefined || session === undefined || started === undefined) return undefined;
  return { pid, state, threads, parent: Number(parent), group: Number(group), session: Number(session), started };
}
