import { setTimeout as sleep } from "node:timers/promises";

export interface Arrivals {
  /** In the order of arrival; undefined for one that failed. */
  readonly latenciesMs: readonly (number | undefined)[];
  readonly failures: readonly string[];
}

/**
 * Starts one after the other at random times, `perSecond` on average, whether those before have ended or not: what waits for a slow one is
 * counted, which a loop that waits itself would hide.
 *
 * @param one resolves with its own latency in milliseconds
 */
export async function poisson(
  perSecond: number,
  count: number,
  one: (index: number) => Promise<number>,
): Promise<Arrivals> {
  const failures: string[] = [];
  const begun: Promise<number | undefined>[] = [];
  let due = performance.now();
  for (let index = 0; index < count; index += 1) {
    due += (-Math.log(1 - Math.random()) / perSecond) * 1000;
    await sleep(Math.max(0, due - performance.now()));
    begun.push(
      one(index).catch((error: unknown) => {
        failures.push(error instanceof Error ? error.message : String(error));
        return undefined;
      }),
    );
  }
  return { latenciesMs: await Promise.all(begun), failures };
}

/** The smallest of the numbers that `share` of them do not exceed; one that failed counts as longer than all. */
export function percentile(numbers: readonly (number | undefined)[], share: number): number {
  const sorted = numbers.map((one) => one ?? Number.POSITIVE_INFINITY).sort((left, right) => left - right);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN;
}

/** What is reported of latencies: how long most took, and how many never came so far. */
export function tail(latenciesMs: Arrivals["latenciesMs"]) {
  return {
    p50: percentile(latenciesMs, 0.5),
    p90: percentile(latenciesMs, 0.9),
    p99: percentile(latenciesMs, 0.99),
    failed: latenciesMs.filter((one) => one === undefined).length,
  };
}

/** Does all of them, a few at a time. */
export async function inParallel(count: number, atOnce: number, one: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const work = async () => {
    while (next < count) {
      const index = next;
      next += 1;
      await one(index);
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, count) }, work));
}
