/** What a metric is, for Prometheus, for the reference and for whoever reads its values. */
interface MetricDescription {
  readonly kind: "gauge" | "counter" | "histogram";
  /** Who measures it: what the driver measures is missing where another driver runs. */
  readonly of: "gateway" | "driver" | "process";
  readonly help: string;
  /** What each label holds. */
  readonly labels?: Readonly<Record<string, string>>;
}

/** How far a sandbox has come since CreateSandbox, in the usual order. */
export const stages = [
  "accepted",
  "pods_admitted",
  "scheduled",
  "workload_ready",
  "supervisor_connected",
  "fenced",
  "ready",
] as const;

export type Stage = (typeof stages)[number];

/** Every metric of a gateway. The names and labels are a contract with dashboards and alerts: they are only ever added to. */
export const metricTable = {
  openshell_sandboxes: {
    kind: "gauge",
    of: "gateway",
    help: "Sandboxes by phase.",
    labels: { phase: "as in [phases](phases.md)" },
  },
  openshell_create_seconds: {
    kind: "histogram",
    of: "gateway",
    help: "Seconds from CreateSandbox to each stage of a sandbox's first run; what a restart of the gateway interrupted is left out.",
    labels: {
      stage: `${stages.map((stage) => `\`${stage}\``).join(", ")}: the driver has accepted it, the conditions of these names are True, the phase is READY`,
    },
  },
  openshell_generation_failures_total: {
    kind: "counter",
    of: "gateway",
    help: "Runs that ended in phase ERROR, creates that were refused included.",
    labels: {
      reason: "of the condition Ready, as in [phases](phases.md); `MainProcessFailed` is a command's own exit code",
    },
  },
  openshell_supervisor_sessions: {
    kind: "gauge",
    of: "gateway",
    help: "Supervisors connected to this gateway.",
  },
  openshell_relays: {
    kind: "gauge",
    of: "gateway",
    help: "Execs, file transfers and connections under way, the launch relays included.",
  },
  openshell_driver_stream_restarts_total: {
    kind: "counter",
    of: "gateway",
    help: "Times the driver's stream of events to the gateway was opened again.",
  },
  openshell_certificate_expiry_seconds: {
    kind: "gauge",
    of: "gateway",
    help: "When the listener's certificate ends, in seconds since 1970; absent in plain text.",
  },
  openshell_oidc_key_fetches_total: {
    kind: "counter",
    of: "gateway",
    help: "Times the OIDC provider was asked for its keys; absent without OIDC.",
    labels: { outcome: "`ok`, `failed`" },
  },
  openshell_oidc_usable: {
    kind: "gauge",
    of: "gateway",
    help: "Whether users' bearer tokens can be checked now (1) or not (0); absent without OIDC.",
  },
  openshell_driver_leads: {
    kind: "gauge",
    of: "driver",
    help: "Whether this driver holds the lease that lets it write (1) or not (0). Exactly one of all drivers of a gateway's name does.",
  },
  openshell_reconcile_depth: {
    kind: "gauge",
    of: "driver",
    help: "Sandboxes that the driver works on or that wait for it.",
  },
  openshell_reconcile_seconds: {
    kind: "histogram",
    of: "driver",
    help: "Seconds of one reconcile of one sandbox, the API server's answers included.",
  },
  openshell_supervisor_replacements_total: {
    kind: "counter",
    of: "driver",
    help: "Supervisors made anew for a workload that ran on.",
    labels: {
      cause:
        "what became of the former Pod: `deleted`, `evicted`, `preempted`, `node_lost`, `out_of_memory`, `ended` (any other end)",
    },
  },
  openshell_kube_requests_total: {
    kind: "counter",
    of: "driver",
    help: "Requests of the driver to the API server, one for each answer.",
    labels: {
      verb: "`get`, `list`, `watch`, `create`, `patch`, `delete`",
      resource: "plural, with a subresource after a slash",
      code: "HTTP status; 0: no answer came",
    },
  },
  openshell_watch_restarts_total: {
    kind: "counter",
    of: "driver",
    help: "Times a watch of the API server was opened again. Each lives for 30 to 45 seconds, longer where there are hundreds: that is the rate of a calm cluster.",
    labels: { resource: "plural" },
  },
  process_cpu_seconds_total: {
    kind: "counter",
    of: "process",
    help: "CPU time of the gateway's process, user and system.",
  },
  process_resident_memory_bytes: {
    kind: "gauge",
    of: "process",
    help: "Resident memory of the gateway's process.",
  },
} as const satisfies Readonly<Record<string, MetricDescription>>;

export type MetricName = keyof typeof metricTable;

/** Names of what one of them measures. */
export type MetricsOf<Of extends MetricDescription["of"]> = {
  [Name in MetricName]: (typeof metricTable)[Name]["of"] extends Of ? Name : never;
}[MetricName];

/** The table as Markdown, for the reference docs. */
export function metricTableMarkdown(): string {
  const all: Readonly<Record<string, MetricDescription>> = metricTable;
  const lines = Object.entries(all).map(([name, { kind, help, labels = {} }]) => {
    const described = Object.entries(labels).map(([label, holds]) => `\`${label}\`: ${holds}`);
    return `| \`${name}\` | ${kind} | ${described.join("; ") || "–"} | ${help} |`;
  });
  return ["| metric | kind | labels | meaning |", "|---|---|---|---|", ...lines, ""].join("\n");
}
