import type { OidcUsers } from "../identity/oidc/oidc-users.ts";
import type { Supervisors } from "../sessions/supervisors.ts";
import type { GatewayTls } from "../tls.ts";
import type { Lives } from "./lives.ts";
import type { Readings } from "./print.ts";
import type { MetricsOf } from "./table.ts";

export interface GatewaySources {
  readonly supervisors: Supervisors;
  readonly lives: Lives;
  readonly tls: GatewayTls | undefined;
  readonly oidc: OidcUsers | undefined;
  readonly streamRestarts: () => number;
}

/** What the gateway itself measures. */
export function gatewayReadings(sources: GatewaySources): Readings<MetricsOf<"gateway" | "process">> {
  const { supervisors, lives, tls, oidc, streamRestarts } = sources;
  return {
    openshell_sandboxes: () => lives.byPhase(),
    openshell_create_seconds: () => lives.createSeconds(),
    openshell_generation_failures_total: () => lives.failures.samples(),
    openshell_supervisor_sessions: () => [{ value: supervisors.connected }],
    openshell_relays: () => [{ value: supervisors.relays.size }],
    openshell_driver_stream_restarts_total: () => [{ value: streamRestarts() }],
    openshell_certificate_expiry_seconds: () => (tls === undefined ? [] : [{ value: tls.expires.getTime() / 1000 }]),
    openshell_oidc_key_fetches_total: () =>
      Object.entries(oidc?.keys.fetches ?? {}).map(([outcome, value]) => ({ labels: { outcome }, value })),
    openshell_oidc_usable: () => (oidc === undefined ? [] : [{ value: oidc.keys.usable ? 1 : 0 }]),
    process_cpu_seconds_total: () => [{ value: cpuSeconds() }],
    process_resident_memory_bytes: () => [{ value: process.memoryUsage.rss() }],
  };
}

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}
