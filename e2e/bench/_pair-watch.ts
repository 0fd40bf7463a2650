import type { Informer, Live, Pod } from "../../src/kube/index.ts";

/** Monotonic times in milliseconds at which both Pods of a pair had come so far. */
interface Progressed {
  readonly scheduled: Set<string>;
  readonly running: Set<string>;
  readonly reached: { scheduled?: number; running?: number };
  readonly waiters: (() => void)[];
}

export type Milestone = "scheduled" | "running";

/** Tells of pairs of Pods when both have a node, and when both run. A Pod has a node only after its scheduling gates are lifted. */
export class PairWatch {
  readonly #pairs = new Map<string, Progressed>();

  /** @param pairOf what names the pair of a Pod; undefined for a Pod of none */
  constructor(informer: Informer<Pod>, pairOf: (pod: Live<Pod>) => string | undefined) {
    const see = (pod: Live<Pod>) => {
      const key = pairOf(pod);
      if (key !== undefined) this.#see(this.#pair(key), pod);
    };
    for (const pod of informer.list()) see(pod);
    informer.on("added", see);
    informer.on("modified", see);
  }

  /** The time at which the pair had come so far. */
  async reached(key: string, milestone: Milestone, withinMs = 120_000): Promise<number> {
    const pair = this.#pair(key);
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    const check = () => {
      const at = pair.reached[milestone];
      if (at !== undefined) resolve(at);
    };
    const timer = setTimeout(() => reject(new Error(`pair ${key} was not ${milestone} in ${withinMs} ms`)), withinMs);
    pair.waiters.push(check);
    check();
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      pair.waiters.splice(pair.waiters.indexOf(check), 1);
    }
  }

  #pair(key: string): Progressed {
    const known = this.#pairs.get(key);
    if (known !== undefined) return known;
    const pair: Progressed = { scheduled: new Set(), running: new Set(), reached: {}, waiters: [] };
    this.#pairs.set(key, pair);
    return pair;
  }

  #see(pair: Progressed, { metadata: { uid }, spec, status }: Live<Pod>): void {
    const now = performance.now();
    if (spec?.nodeName) pair.scheduled.add(uid);
    const main = status?.containerStatuses?.find(({ name }) => name === spec?.containers[0]?.name);
    if (main?.state?.running !== undefined) pair.running.add(uid);
    if (pair.scheduled.size >= 2) pair.reached.scheduled ??= now;
    if (pair.running.size >= 2) pair.reached.running ??= now;
    for (const check of [...pair.waiters]) check();
  }
}
