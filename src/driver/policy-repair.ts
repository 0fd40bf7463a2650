import { backoffMs, sleep } from "../common/async.ts";
import type { Logger } from "../common/log.ts";
import type { MissingPolicy } from "./cluster-view.ts";
import { putPolicy } from "./policies.ts";
import type { Running } from "./types.ts";

/** Repairs of a namespace's policies within so long a time of each other are against somebody who changes them again. */
const rememberedMs = 60_000;
/** Then what was put back is left alone for so long at most: until the next repair the fence may be open. */
const longestPauseMs = 2_000;
const repairsSaid = 5;

/** Over the policies of one namespace. */
interface PolicyPasses {
  /** Since something was missing, and those of them that were accepted. */
  all: number;
  accepted: number;
  /** Times that nothing was missing afterwards. */
  repairs: number;
  lastAt: number;
}

export interface PolicyRepairOptions {
  readonly log: Logger;
  /** The driver's end. */
  readonly signal: AbortSignal;
  /** What the driver works with; undefined while it may not write. */
  readonly running: () => Running | undefined;
}

/** Keeps the NetworkPolicies of every namespace that is followed as they have to be. */
export class PolicyRepair {
  readonly #options: PolicyRepairOptions;
  /** By namespace. */
  readonly #work = new Map<string, Promise<void>>();
  readonly #passes = new Map<string, PolicyPasses>();

  constructor(options: PolicyRepairOptions) {
    this.#options = options;
  }

  /** One repair of a namespace at a time; a change meanwhile is seen by the watch again. */
  repair(): void {
    const running = this.#options.running();
    if (running === undefined) return;
    const missing = Map.groupBy(running.view.missingPolicies(), ({ namespace }) => namespace);
    for (const [namespace, passes] of this.#passes) {
      if (missing.has(namespace)) continue;
      if (performance.now() - passes.lastAt > rememberedMs) this.#passes.delete(namespace);
      else if (passes.all > 0) {
        this.#passes.set(namespace, { ...passes, all: 0, accepted: 0, repairs: passes.repairs + 1 });
      }
    }
    for (const [namespace, policies] of missing) {
      if (!this.#work.has(namespace)) this.#work.set(namespace, this.#put(running, namespace, policies));
    }
  }

  async #put(
    { client, view, reconciler }: Running,
    namespace: string,
    missing: readonly MissingPolicy[],
  ): Promise<void> {
    const { log, signal } = this.#options;
    const passes = this.#passes.get(namespace) ?? { all: 0, accepted: 0, repairs: 0, lastAt: 0 };
    this.#passes.set(namespace, passes);
    passes.all += 1;
    passes.lastAt = performance.now();
    const policies = `the NetworkPolicies of namespace "${namespace}"`;
    // As by a webhook: every write is accepted, and none helps. Or by a controller that undoes each.
    if (passes.accepted >= 2 || passes.repairs >= repairsSaid)
      log.error({ namespace, passes: passes.all }, `${policies} are changed again; trying again`);
    let pauseMs = passes.all > 1 ? backoffMs(passes.all) : 0;
    if (passes.repairs > 0) pauseMs = Math.max(pauseMs, backoffMs(passes.repairs, { maxMs: longestPauseMs }));
    try {
      await Promise.all(missing.map(({ wanted, found }) => putPolicy(client, namespace, wanted, found)));
      passes.accepted += 1;
    } catch (error) {
      log.error({ err: error, namespace }, `${policies} could not be put in place; trying again`);
      pauseMs = backoffMs(3 + passes.all);
    }
    if (pauseMs > 0) await sleep(pauseMs, signal).catch(() => undefined);
    this.#work.delete(namespace);
    if (!signal.aborted) setTimeout(() => this.repair(), 250).unref();
    for (const id of view.sandboxIdsIn(namespace)) reconciler.wake(id);
  }
}
