import type { Scrape } from "./gateway-metrics.ts";

/**
 * Requests that a gateway's driver has sent to the API server since its start, but for watches, the lists that they begin with, and what its
 * lease costs: these go on whatever happens.
 */
export function kubeRequests({ values }: Scrape): number {
  return sum(values, (series) => series.startsWith("openshell_kube_requests_total{") && !isRoutine(series));
}

/** Watches that it has opened again. */
export function watchRestarts({ values }: Scrape): number {
  return sum(values, (series) => series.startsWith("openshell_watch_restarts_total{"));
}

function isRoutine(series: string): boolean {
  return /verb="(watch|list)"|resource="leases"/.test(series);
}

function sum(values: Scrape["values"], counts: (series: string) => boolean): number {
  return [...values].reduce((total, [series, value]) => (counts(series) ? total + value : total), 0);
}
