import { type Driver, type DriverOptions, supervisorLosses } from "../../driver/index.ts";
import { Counter, Histogram } from "./meters.ts";
import type { Readings } from "./print.ts";
import type { MetricsOf } from "./table.ts";

/** Measures the Kubernetes driver: what it tells while it works, and where it stands. */
export class DriverMeters {
  readonly #requests = new Counter<{ readonly verb: string; readonly resource: string; readonly code: string }>();
  readonly #watchRestarts = new Counter<{ readonly resource: string }>();
  readonly #replacements = new Counter(supervisorLosses.map((cause) => ({ cause })));
  readonly #reconciles = new Histogram();

  /** To make the driver with. */
  readonly listeners = {
    onRequest: ({ verb, resource, code }) => this.#requests.count({ verb, resource, code: String(code) }),
    onWatchRestart: (resource) => this.#watchRestarts.count({ resource }),
    onReplacement: (cause) => this.#replacements.count({ cause }),
    onReconciled: (seconds) => this.#reconciles.observe(seconds),
  } satisfies Pick<DriverOptions, "onRequest" | "onWatchRestart" | "onReplacement" | "onReconciled">;

  readings(driver: Pick<Driver, "depth" | "leads">): Readings<MetricsOf<"driver">> {
    return {
      openshell_driver_leads: () => [{ value: driver.leads() ? 1 : 0 }],
      openshell_reconcile_depth: () => [{ value: driver.depth() }],
      openshell_reconcile_seconds: () => this.#reconciles.samples(),
      openshell_supervisor_replacements_total: () => this.#replacements.samples(),
      openshell_kube_requests_total: () => this.#requests.samples(),
      openshell_watch_restarts_total: () => this.#watchRestarts.samples(),
    };
  }
}
