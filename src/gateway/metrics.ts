export type MetricKind = "gauge" | "counter";

/** One metric; its samples are read when somebody asks. */
export interface Metric {
  /** Begins with `openshell_`. */
  readonly name: string;
  readonly kind: MetricKind;
  readonly help: string;
  readonly samples: () => readonly Sample[];
}

export interface Sample {
  readonly labels?: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Metrics in Prometheus' text format, version 0.0.4. */
export function printMetrics(metrics: readonly Metric[]): string {
  const lines = metrics.flatMap(({ name, kind, help, samples }) => [
    `# HELP ${name} ${help}`,
    `# TYPE ${name} ${kind}`,
    ...samples().map(({ labels, value }) => `${name}${printLabels(labels ?? {})} ${value}`),
  ]);
  return `${lines.join("\n")}\n`;
}

function printLabels(labels: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escaped(value)}"`);
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}

function escaped(value: string): string {
  return value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
