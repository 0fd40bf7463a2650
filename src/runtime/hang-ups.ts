import type { ProcessEntry } from "./process-list.ts";
import type { Processes } from "./processes.ts";

type Tree = Pick<Processes, "tryList" | "signalSession">;

/** Between hanging up on the processes of a lost channel and killing them. */
const graceMs = 2_000;

/**
 * What a closed terminal does to its processes, with an end to it. A supervisor takes all of its channels with it at once: one walk of the
 * process list serves them all, or PID 1 would do nothing else for seconds.
 */
export class HangUps {
  readonly #tree: Tree;
  readonly #isFrozen: () => boolean;
  readonly #due = new Set<number>();

  /** @param isFrozen whether stopped processes are to stay so */
  constructor(tree: Tree, isFrozen: () => boolean) {
    this.#tree = tree;
    this.#isFrozen = isFrozen;
  }

  /** Hangs up on the session of this leader when the present turn of the event loop is over, and kills what is left of it 2 s later. */
  add(leader: number): void {
    if (this.#due.size === 0) setImmediate(() => this.#hangUp());
    this.#due.add(leader);
  }

  #hangUp(): void {
    const all = this.#tree.tryList() ?? [];
    const reached = [...this.#due].filter((leader) => this.#tree.signalSession(leader, "SIGHUP", all));
    this.#due.clear();
    if (reached.length === 0) return;
    if (!this.#isFrozen()) for (const leader of reached) this.#tree.signalSession(leader, "SIGCONT", all);
    const before = startsOf(all);
    setTimeout(() => this.#kill(reached, before), graceMs).unref();
  }

  /** A leader may end at once; whoever ignored the hang-up is still there then, and keeps its session's number from being given anew. */
  #kill(leaders: readonly number[], before: ReadonlyMap<number, string>): void {
    const all = this.#tree.tryList() ?? [];
    const now = startsOf(all);
    for (const leader of leaders) {
      const started = now.get(leader);
      if (started === undefined || started === before.get(leader)) this.#tree.signalSession(leader, "SIGKILL", all);
    }
  }
}

function startsOf(all: readonly ProcessEntry[]): Map<number, string> {
  return new Map(all.map(({ pid, started }) => [pid, started]));
}
