import type { Metric } from "./metrics.ts";

/** One answer of the API server. */
export interface CountedRequest {
  readonly verb: string;
  /** `pods`, `sandboxes/status`. */
  readonly resource: string;
  /** HTTP status; 0 when no answer came. */
  readonly code: number;
}

/** Counts the driver's requests; as many counters as there are kinds of request and answer, whatever runs. */
export class RequestCounts {
  readonly #counts = new Map<string, { readonly request: CountedRequest; value: number }>();

  count({ verb, resource, code }: CountedRequest): void {
    const key = `${verb} ${resource} ${code}`;
    const entry = this.#counts.get(key);
    if (entry === undefined) this.#counts.set(key, { request: { verb, resource, code }, value: 1 });
    else entry.value += 1;
  }

  samples() {
    return [...this.#counts.values()].map(({ request: { verb, resource, code }, value }) => ({
      labels: { verb, resource, code: String(code) },
      value,
    }));
  }
}

/** What the Kubernetes driver measures; the names are documented and only ever added to. */
export function driverMetrics(requests: RequestCounts, depth: () => number): Metric[] {
  return [
    {
      name: "openshell_kube_requests_total",
      kind: "counter",
      help: "Requests of the driver to the API server by verb, resource and HTTP status (0: no answer).",
      samples: () => requests.samples(),
    },
    {
      name: "openshell_driver_pending_sandboxes",
      kind: "gauge",
      help: "Sandboxes that the driver works on or that wait for it.",
      samples: () => [{ value: depth() }],
    },
  ];
}
