import { openshell } from "../wire/index.ts";
import type { OidcUsers } from "./identity/oidc/oidc-users.ts";
import type { Metric } from "./metrics.ts";
import type { Supervisors } from "./sessions/supervisors.ts";
import type { Store } from "./store/store.ts";
import type { GatewayTls } from "./tls.ts";

export interface MetricSources {
  readonly store: Store;
  readonly supervisors: Supervisors;
  readonly tls: GatewayTls | undefined;
  readonly oidc: OidcUsers | undefined;
  readonly watchRestarts: () => number;
}

/** What the gateway measures; the names are documented and only ever added to. */
export function gatewayMetrics({ store, supervisors, tls, oidc, watchRestarts }: MetricSources): Metric[] {
  const sandboxPhases = () => {
    const counts = new Map<string, number>();
    for (const { object } of store.sandboxes.all()) {
      const phase = openshell.SandboxPhase[object.status?.phase ?? openshell.SandboxPhase.UNSPECIFIED] ?? "UNKNOWN";
      counts.set(phase, (counts.get(phase) ?? 0) + 1);
    }
    return [...counts].map(([phase, value]) => ({ labels: { phase }, value }));
  };
  return [
    { name: "openshell_sandboxes", kind: "gauge", help: "Sandboxes by phase.", samples: sandboxPhases },
    {
      name: "openshell_supervisor_sessions",
      kind: "gauge",
      help: "Supervisors connected to this gateway.",
      samples: () => [{ value: supervisors.connected }],
    },
    {
      name: "openshell_relays",
      kind: "gauge",
      help: "Execs, file transfers and connections under way, the launch relays included.",
      samples: () => [{ value: supervisors.relays.size }],
    },
    {
      name: "openshell_watch_restarts_total",
      kind: "counter",
      help: "Times the driver's stream of events was opened again.",
      samples: () => [{ value: watchRestarts() }],
    },
    {
      name: "openshell_certificate_expiry_seconds",
      kind: "gauge",
      help: "When the listener's certificate ends, in seconds since 1970.",
      samples: () => (tls === undefined ? [] : [{ value: tls.expires.getTime() / 1000 }]),
    },
    {
      name: "openshell_oidc_key_fetches_total",
      kind: "counter",
      help: "Times the OIDC provider was asked for its keys.",
      samples: () =>
        Object.entries(oidc?.keys.fetches ?? {}).map(([outcome, value]) => ({ labels: { outcome }, value })),
    },
    {
      name: "openshell_oidc_usable",
      kind: "gauge",
      help: "Whether users' bearer tokens can be checked now.",
      samples: () => (oidc === undefined ? [] : [{ value: oidc.keys.usable ? 1 : 0 }]),
    },
  ];
}
