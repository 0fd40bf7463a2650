/**
 * What a sandbox's runtime costs: from its start until a supervisor is accepted, one exec, and bytes through an exec. Measured against the
 * program as images carry it, over real TLS, on this machine alone; the way from the user to the supervisor is not in it.
 *
 *   npm run bench -- runtime [--starts 10] [--execs 200] [--mebibytes 256] [--out DIRECTORY]
 *
 * Prints JSON, and Markdown to standard error; with --out also writes runtime.json and runtime.md.
 */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { bundle } from "../../images/bundles.ts";
import { type ExecInputEvent, runExec, services } from "../../src/boundary/index.ts";
import { isRoot, RuntimeProcess, type TestSupervisor } from "../../src/runtime/_driver.ts";
import { machine, machineLine, publish, timed } from "./_report.ts";

const { values } = parseArgs({
  options: {
    starts: { type: "string", default: "10" },
    execs: { type: "string", default: "200" },
    mebibytes: { type: "string", default: "256" },
    out: { type: "string" },
  },
});
const starts = Number(values.starts);
const execs = Number(values.execs);
const mebibytes = Number(values.mebibytes);

interface Measure {
  readonly name: string;
  readonly unit: "ms" | "MiB" | "MiB/s";
  readonly samples: readonly number[];
}

async function repeated(count: number, run: () => Promise<unknown>): Promise<number[]> {
  const samples: number[] = [];
  for (let index = 0; index < count; index += 1) samples.push(await timed(run));
  return samples;
}

/** Of the runtime itself, which is the child of the unshare(1) that made its namespace. */
function residentMiB({ pid }: RuntimeProcess): number {
  const own = isRoot ? Number(readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim()) : pid;
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${own}/status`, "utf8"))?.[1]) / 1024;
}

async function startUp(program: string): Promise<Measure[]> {
  const listening: number[] = [];
  const accepted: number[] = [];
  const resident: number[] = [];
  for (let index = 0; index < starts; index += 1) {
    const before = performance.now();
    await using runtime = await RuntimeProcess.start({ bundle: program });
    listening.push(performance.now() - before);
    await using supervisor = await runtime.supervisor();
    accepted.push(await timed(() => supervisor.connect()));
    resident.push(residentMiB(runtime));
  }
  return [
    { name: "start of the process until it listens", unit: "ms", samples: listening },
    { name: "connection, TLS and grant until the session is accepted", unit: "ms", samples: accepted },
    { name: "resident memory with a session", unit: "MiB", samples: resident },
  ];
}

async function execTimes(supervisor: TestSupervisor): Promise<Measure[]> {
  const direct = () => supervisor.exec(["true"], { noLoginShell: true });
  for (let warm = 0; warm < 20; warm += 1) await direct();
  return [
    { name: "exec of true, directly", unit: "ms", samples: await repeated(execs, direct) },
    {
      name: "exec of true, by the login shell",
      unit: "ms",
      samples: await repeated(execs, () => supervisor.exec(["true"])),
    },
    {
      name: "exec of true with a terminal",
      unit: "ms",
      samples: await repeated(execs, () => supervisor.exec(["true"], { noLoginShell: true, tty: true })),
    },
  ];
}

async function throughput(supervisor: TestSupervisor): Promise<Measure[]> {
  const rate = (ms: number) => (mebibytes * 1000) / ms;
  const bytes = mebibytes * 1024 ** 2;
  const run = async (command: readonly string[], input?: AsyncIterable<ExecInputEvent>) => {
    let received = 0;
    for await (const event of runExec(await supervisor.channel(services.exec), { command }, input)) {
      if (event.kind === "stdout") received += event.data.length;
    }
    return received;
  };
  async function* typing(): AsyncGenerator<ExecInputEvent> {
    const data = new Uint8Array(64 * 1024);
    for (let sent = 0; sent < bytes; sent += data.length) yield { kind: "stdin", data };
  }
  const output = await repeated(3, () => run(["head", "-c", String(bytes), "/dev/zero"]));
  const input = await repeated(3, () => run(["sh", "-c", "cat > /dev/null"], typing()));
  return [
    { name: `${mebibytes} MiB of standard output`, unit: "MiB/s", samples: output.map(rate) },
    { name: `${mebibytes} MiB of standard input`, unit: "MiB/s", samples: input.map(rate) },
  ];
}

function quantile(samples: readonly number[], part: number): number {
  const sorted = [...samples].sort((left, right) => left - right);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN;
}

function summary({ name, unit, samples }: Measure) {
  const round = (value: number) => Math.round(value * 10) / 10;
  return {
    name,
    unit,
    count: samples.length,
    median: round(quantile(samples, 0.5)),
    p95: round(quantile(samples, 0.95)),
    worst: round(unit === "MiB/s" ? Math.min(...samples) : Math.max(...samples)),
  };
}

const directory = mkdtempSync(join(tmpdir(), "openshell-bench-"));
try {
  const at = machine();
  const program = await bundle("runtime", directory);
  const measures = await startUp(program);
  {
    await using runtime = await RuntimeProcess.start({ bundle: program });
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    supervisor.launch();
    measures.push(...(await execTimes(supervisor)), ...(await throughput(supervisor)));
    measures.push({ name: "resident memory after all of it", unit: "MiB", samples: [residentMiB(runtime)] });
  }
  const rows = measures.map(summary);
  const markdown = [
    "# The sandbox's runtime",
    "",
    `Measured on ${machineLine(at)}.`,
    "",
    "| what | median | 95 % | worst | of |",
    "|---|---:|---:|---:|---:|",
    ...rows.map(({ name, unit, median, p95, worst, count }) => {
      return `| ${name} | ${median} ${unit} | ${unit === "MiB/s" ? "" : `${p95} ${unit}`} | ${worst} ${unit} | ${count} |`;
    }),
    "",
  ].join("\n");
  publish("runtime", { machine: at, rows }, markdown, values.out);
} finally {
  rmSync(directory, { recursive: true, force: true });
}
