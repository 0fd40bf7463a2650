import { cpus } from "node:os";
import type { KubeClient } from "../../src/kube/index.ts";
import type { Scrape } from "../support/gateway-metrics.ts";

/** Requests by "verb resource", whatever they were answered. */
export type Requests = ReadonlyMap<string, number>;

export function requestsOf({ values }: Scrape): Requests {
  const counts = new Map<string, number>();
  for (const [series, value] of values) {
    const [, verb, resource] = /^openshell_kube_requests_total\{verb="(.*?)",resource="(.*?)",/.exec(series) ?? [];
    if (verb === undefined) continue;
    const key = `${verb} ${resource}`;
    counts.set(key, (counts.get(key) ?? 0) + value);
  }
  return counts;
}

/** What was asked between two scrapes; without `before`, since the process began. */
export function requestsBetween(before: Scrape | undefined, after: Scrape): Requests {
  const former = before === undefined ? new Map<string, number>() : requestsOf(before);
  return new Map(
    [...requestsOf(after)]
      .map(([key, value]) => [key, value - (former.get(key) ?? 0)] as const)
      .filter(([, value]) => value > 0),
  );
}

/** Watches that are opened again and the lease that is renewed are the gateway's own, however many sandboxes there are. */
export function ofSandboxes(requests: Requests): Requests {
  return new Map([...requests].filter(([key]) => !key.startsWith("watch ") && !key.endsWith(" leases")));
}

/** Questions are asked by `create`, too, and write nothing. */
export function writesIn(requests: Requests): Requests {
  return new Map([...ofSandboxes(requests)].filter(([key]) => /^(create|patch|delete) (?!.*reviews$)/.test(key)));
}

export function total(requests: Requests): number {
  return [...requests.values()].reduce((sum, value) => sum + value, 0);
}

/** Seconds that `share` of what a histogram counted between two scrapes did not exceed, evenly spread within a bucket. */
export function quantileBetween(name: string, before: Scrape, after: Scrape, share: number): number {
  const buckets = [...after.values]
    .map(([series, value]) => {
      const [, bound] = new RegExp(`^${name}_bucket\\{le="(.*)"\\}$`).exec(series) ?? [];
      return {
        bound: bound === "+Inf" ? Number.POSITIVE_INFINITY : Number(bound),
        count: value - (before.values.get(series) ?? 0),
      };
    })
    .filter(({ bound }) => !Number.isNaN(bound))
    .sort((left, right) => left.bound - right.bound);
  const wanted = share * (buckets.at(-1)?.count ?? 0);
  let low = { bound: 0, count: 0 };
  for (const bucket of buckets) {
    if (bucket.count >= wanted && bucket.count > low.count) {
      if (bucket.bound === Number.POSITIVE_INFINITY) return low.bound;
      return low.bound + ((bucket.bound - low.bound) * (wanted - low.count)) / (bucket.count - low.count);
    }
    low = bucket;
  }
  return Number.NaN;
}

/** CPU seconds that this machine has spent on anything since it began. */
export function machineCpuSeconds(): number {
  const spent = cpus().map(({ times: { user, nice, sys, irq } }) => user + nice + sys + irq);
  return spent.reduce((sum, ms) => sum + ms, 0) / 1000;
}

/** CPU seconds of the API server that answers, since it began. */
export async function apiServerCpuSeconds(kube: KubeClient): Promise<number> {
  return Number(/^process_cpu_seconds_total (\S+)$/m.exec(await kube.text("/metrics"))?.[1]);
}

export function difference(name: string, before: Scrape, after: Scrape): number {
  return (after.values.get(name) ?? Number.NaN) - (before.values.get(name) ?? 0);
}
