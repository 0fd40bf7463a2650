import { type MetricName, metricTable } from "./table.ts";

export interface Sample {
  /** What a histogram's parts have after the metric's name. */
  readonly suffix?: "_bucket" | "_sum" | "_count";
  readonly labels?: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The values of metrics, read when somebody asks. */
export type Readings<Name extends MetricName = MetricName> = Readonly<Record<Name, () => readonly Sample[]>>;

/** Metrics in Prometheus' text format, version 0.0.4, in the table's order. */
export function printMetrics(readings: Partial<Readings>): string {
  const lines = Object.entries(metricTable).flatMap(([name, { kind, help }]) => {
    const samples = readings[name as MetricName];
    if (samples === undefined) return [];
    return [
      `# HELP ${name} ${help}`,
      `# TYPE ${name} ${kind}`,
      ...samples().map(({ suffix = "", labels = {}, value }) => `${name}${suffix}${printLabels(labels)} ${value}`),
    ];
  });
  return lines.length === 0 ? "" : `${lines.join("\n")}\n`;
}

function printLabels(labels: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escaped(value)}"`);
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}

function escaped(value: string): string {
  return value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
