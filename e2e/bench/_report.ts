/** What all measurements share: where they were taken, medians, and how they are reported. */
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";

/** The machine a measurement was taken on, and how busy it was. */
export function machine() {
  const [load = 0] = loadavg();
  return {
    cpu: cpus()[0]?.model ?? "unknown",
    cpus: cpus().length,
    load: Math.round(load * 10) / 10,
    node: process.version,
  };
}

/** The machine in words. */
export function machineLine({ cpu, cpus: count, load, node }: ReturnType<typeof machine>): string {
  return `${count} CPUs (${cpu}), load ${load.toFixed(1)} before, Node.js ${node}`;
}

export function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((left, right) => left - right);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? (sorted[middle] ?? 0) : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}

/** Milliseconds that `run` takes. */
export async function timed(run: () => Promise<unknown>): Promise<number> {
  const before = performance.now();
  await run();
  return performance.now() - before;
}

/** Prints a report: JSON for programs on standard output, Markdown for people on standard error. With a directory also `NAME.json` and `NAME.md`. */
export function publish(name: string, report: unknown, markdown: string, directory?: string): void {
  const json = `${JSON.stringify(report, null, 2)}\n`;
  process.stdout.write(json);
  process.stderr.write(markdown);
  if (directory === undefined) return;
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, `${name}.json`), json);
  writeFileSync(join(directory, `${name}.md`), markdown);
}
