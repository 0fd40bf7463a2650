import { sleep } from "../common/async.ts";
import type { Logger } from "../common/log.ts";
import type { ProcessEntry } from "./process-list.ts";
import type { Processes } from "./processes.ts";

/** Why the tree may be frozen; it runs when no cause is left. */
export type FreezeCause = "supervisor-lost" | "fence-breached";

type Tree = Pick<Processes, "list" | "signal" | "signalAll">;

/** Its main thread's state stands for all threads in this one only: it is a stop of the whole process. */
const isStopped = (one: ProcessEntry) => one.state === "T";
/**
 * States of a main thread that hide what the others do, of one that was told to stop: it waits in the kernel, and stops before its next
 * instruction; it is held by a debugger, which may be its own child; or it has ended.
 */
const silent = new Set(["D", "t", "Z"]);
/** Walks after which what still runs is stopped at once: one by one, processes that continue each other may never be stopped together. */
const patientPasses = 10;
/** While frozen the tree is walked again this often, for what was put in from outside or continued by hand. */
const patrolMs = 1_000;
const maxPasses = 200;

/**
 * Stops every process with SIGSTOP and continues exactly those later. The cgroup freezer would hide it from the processes,
 * but it is not writable from inside a container. A debugger is told of both signals, and may keep its program stopped at either.
 */
export class Freezer {
  readonly #tree: Tree;
  readonly #log: Logger;
  readonly #changed: () => void;
  readonly #causes = new Map<FreezeCause, string>();
  /** What we stopped, as pid and start time; what somebody else had stopped before is none of it. */
  readonly #ours = new Set<string>();
  /** Somebody else's may be among what we stopped, since the tree could not be listed. */
  #unlisted = false;
  #patrol: NodeJS.Timeout | undefined;
  #settled: Promise<void> = Promise.resolve();

  /** @param changed told whenever `status` differs */
  constructor(tree: Tree, log: Logger, changed: () => void = () => {}) {
    this.#tree = tree;
    this.#log = log;
    this.#changed = changed;
  }

  get status(): { readonly frozen: boolean; readonly reason: string } {
    return { frozen: this.#causes.size > 0, reason: [...this.#causes.values()].join("; ") };
  }

  has(cause: FreezeCause): boolean {
    return this.#causes.has(cause);
  }

  /** Stops the tree; the first walk is done when this returns, the promise resolves when nothing runs any more. */
  freeze(cause: FreezeCause, reason: string): Promise<void> {
    const first = this.#causes.size === 0;
    this.#causes.set(cause, reason);
    if (first) {
      this.#ours.clear();
      this.#unlisted = false;
      this.#pass();
      this.#patrol = setInterval(() => this.#pass(), patrolMs);
      this.#settled = this.#settle();
      this.#log.warn({ cause, reason }, "the process tree is frozen");
    }
    this.#changed();
    return this.#settled;
  }

  /** Takes one cause away; when it was the last, everything we stopped goes on, parents last. */
  thaw(cause: FreezeCause): void {
    if (!this.#causes.delete(cause)) return;
    if (this.#causes.size === 0) {
      clearInterval(this.#patrol);
      const all = this.#list() ?? [];
      const depth = depths(all);
      const mine = all.filter((one) => this.#ours.has(idOf(one)));
      mine.sort((left, right) => (depth.get(right.pid) ?? 0) - (depth.get(left.pid) ?? 0));
      for (const one of mine) this.#tree.signal(one.pid, "SIGCONT");
      this.#ours.clear();
      if (this.#unlisted) this.#tree.signalAll("SIGCONT");
      this.#log.info({ cause, processes: mine.length }, "the process tree runs again");
    }
    this.#changed();
  }

  /**
   * Stops whatever runs; how many that were. Who was told to and cannot show it is none of them: a parent, for example, waits in the kernel
   * for the child of its vfork(2), and for ever where that was stopped before its exec.
   */
  #pass(): number {
    const all = this.#list();
    if (all === undefined) {
      this.#tree.signalAll("SIGSTOP");
      return 0;
    }
    let running = 0;
    for (const one of all) {
      if (isStopped(one)) continue;
      const isTold = this.#ours.has(idOf(one));
      if (!isTold || !silent.has(one.state)) running += 1;
      this.#ours.add(idOf(one));
      this.#tree.signal(one.pid, "SIGSTOP");
    }
    return running;
  }

  /**
   * As `#pass`, by the one call that nobody escapes. Who was stopped before it, and not by us, is somebody else's; whoever is stopped after
   * it is ours, also one that was forked meanwhile.
   */
  #passAtOnce(): number {
    const theirs = new Set(
      this.#list()
        ?.filter((one) => isStopped(one) && !this.#ours.has(idOf(one)))
        .map(idOf),
    );
    this.#tree.signalAll("SIGSTOP");
    const told = this.#list()?.filter((one) => !theirs.has(idOf(one))) ?? [];
    for (const one of told) this.#ours.add(idOf(one));
    return told.filter((one) => !isStopped(one) && !silent.has(one.state)).length;
  }

  /** Undefined where PID 1 has no descriptors left to read /proc with, which the agent, having our user, can bring about. */
  #list(): ProcessEntry[] | undefined {
    try {
      return this.#tree.list();
    } catch (error) {
      if (!this.#unlisted) this.#log.error({ err: error }, "processes cannot be listed, and are signalled all at once");
      this.#unlisted = true;
      return undefined;
    }
  }

  /** A child forked between two walks is found by the next; two clean walks in a row mean there is none. */
  async #settle(): Promise<void> {
    for (let pass = 0, clean = 0; clean < 2 && this.#causes.size > 0; pass += 1) {
      if (pass >= maxPasses) {
        this.#log.error("processes still run although they were stopped; the walk is repeated every second");
        return;
      }
      const running = pass < patientPasses ? this.#pass() : this.#passAtOnce();
      clean = running === 0 ? clean + 1 : 0;
      await sleep(1);
    }
  }

  stop(): void {
    clearInterval(this.#patrol);
  }
}

function idOf(one: ProcessEntry): string {
  return `${one.pid}:${one.started}`;
}

function depths(all: readonly ProcessEntry[]): Map<number, number> {
  const parents = new Map(all.map((one) => [one.pid, one.parent]));
  const depthOf = (pid: number): number => {
    let depth = 0;
    for (let at = parents.get(pid); at !== undefined && depth <= all.length; at = parents.get(at)) depth += 1;
    return depth;
  };
  return new Map(all.map((one) => [one.pid, depthOf(one.pid)]));
}
