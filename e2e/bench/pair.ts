/**
 * What a pair takes of its nodes: memory and CPU time of the supervisor and of the workload's runtime, as the kubelet counts them, at rest and
 * under each kind of work that goes through both. The requests of `supervisor_resources` and `workload_resources` come from it.
 *
 *   npm run bench -- pair [--seconds 60] [--channels 50] [--provider NAME] [--out DIRECTORY]
 *
 *   --seconds    how long each kind of work goes on; the kubelet counts a container once in ten seconds or so
 *   --channels   commands that run at once and say nothing
 *
 * Prints JSON, and Markdown to standard error; with --out also writes pair.json and pair.md. The cluster and the release stay.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { type Pod, pods } from "../../src/kube/index.ts";
import { labels } from "../../src/manifests/names.ts";
import { stderrProgress } from "../cluster/progress.ts";
import { openBenchGateway } from "./_bench-gateway.ts";
import { machine, machineLine, publish } from "./_report.ts";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "60" },
    channels: { type: "string", default: "50" },
    provider: { type: "string" },
    out: { type: "string" },
  },
});
const seconds = Number(values.seconds);
const channels = Number(values.channels);
if (!(seconds >= 20 && channels >= 1)) throw new Error("--seconds is at least 20, --channels at least 1");

await using undo = new AsyncDisposableStack();
const progress = stderrProgress();
const bench = undo.use(await openBenchGateway(values.provider, progress));
const { provider, kube, release, gateway } = bench;
const sandbox = undo.use(await bench.create());
await sandbox.ready();
const state = machine();

/** One container as its kubelet counts it: bytes, and nanoseconds of CPU since its start. */
interface Reading {
  readonly time: string;
  readonly workingSet: number;
  readonly resident: number;
  readonly cpu: number;
}

/** What this bench reads of the kubelet's Summary API. */
interface Summary {
  readonly pods: readonly {
    readonly podRef: { readonly uid: string };
    readonly containers?: readonly {
      readonly cpu?: { readonly time: string; readonly usageCoreNanoSeconds?: number };
      readonly memory?: { readonly workingSetBytes?: number; readonly rssBytes?: number };
    }[];
  }[];
}

const pair = (await kube.list(pods, release.sandboxNamespace)).items.filter(
  ({ metadata }) => metadata.labels?.[labels.sandboxId] === sandbox.id,
);
const roleOf = ({ metadata }: Pod) => metadata?.labels?.[labels.boundaryRole] ?? "";

async function readings(): Promise<Map<string, Reading>> {
  const found = new Map<string, Reading>();
  for (const pod of pair) {
    const { pods: all } = (await kube.raw(`/api/v1/nodes/${pod.spec?.nodeName}/proxy/stats/summary`)) as Summary;
    const [container] = all.find(({ podRef }) => podRef.uid === pod.metadata.uid)?.containers ?? [];
    const { cpu, memory } = container ?? {};
    if (cpu?.usageCoreNanoSeconds === undefined || memory?.workingSetBytes === undefined) continue;
    found.set(roleOf(pod), {
      time: cpu.time,
      workingSet: memory.workingSetBytes,
      resident: memory.rssBytes ?? 0,
      cpu: cpu.usageCoreNanoSeconds,
    });
  }
  return found;
}

const workspaceScope = { selection: { case: "workspace" as const, value: sandbox.workspace } };
const request = (...command: string[]) => ({ workspaceScope, sandbox: sandbox.name, command });
const drain = async (answers: AsyncIterable<{ payload: { case?: string | undefined; value?: unknown } }>) => {
  let bytes = 0;
  for await (const { payload } of answers) {
    if (payload.case === "stdout") bytes += (payload.value as { data: Uint8Array }).data.length;
  }
  return bytes;
};

async function* input(until: number, sent: { bytes: number }) {
  yield { payload: { case: "start" as const, value: request("sh", "-c", "cat >/dev/null") } };
  const data = new Uint8Array(64 * 1024);
  for (; performance.now() < until; sent.bytes += data.length) {
    yield { payload: { case: "stdin" as const, value: data } };
  }
}

/** Each kind of work, until the time is over; says how many bytes went through. */
const works: Readonly<Record<string, (until: number) => Promise<number>>> = {
  "at rest": async () => {
    await sleep(seconds * 1000);
    return 0;
  },
  "bytes out of the sandbox": async (until) => {
    let bytes = 0;
    while (performance.now() < until) {
      bytes += await drain(gateway.client.execSandbox(request("head", "-c", "67108864", "/dev/zero")));
    }
    return bytes;
  },
  "bytes into the sandbox": async (until) => {
    const sent = { bytes: 0 };
    await drain(gateway.client.execSandboxInteractive(input(until, sent)));
    return sent.bytes;
  },
  "commands, one after the other": async (until) => {
    while (performance.now() < until) await drain(gateway.client.execSandbox(request("true")));
    return 0;
  },
  [`${channels} commands that only wait`]: async () => {
    const wait = () => drain(gateway.client.execSandbox(request("sleep", String(seconds))));
    await Promise.all(Array.from({ length: channels }, wait));
    return 0;
  },
};

interface Row {
  readonly work: string;
  readonly role: string;
  readonly workingSetMiB: number;
  readonly residentMiB: number;
  /** CPUs that were busy, of all the time between the first and the last reading. */
  readonly cpus: number;
  readonly mibPerSecond: number;
}

const mib = (bytes: number) => bytes / 1024 / 1024;

async function measure(work: string, run: (until: number) => Promise<number>): Promise<Row[]> {
  progress.note(work);
  const seen = new Map<string, Reading[]>();
  const began = performance.now();
  let isOver = false;
  const running = run(began + seconds * 1000).finally(() => {
    isOver = true;
  });
  // It is awaited below; until then it may fail without being heard.
  running.catch(() => undefined);
  while (!isOver) {
    for (const [role, reading] of await readings()) {
      const of = seen.get(role) ?? [];
      if (of.at(-1)?.time !== reading.time) seen.set(role, [...of, reading]);
    }
    await Promise.race([running, sleep(2_000)]);
  }
  const bytes = await running;
  const elapsed = (performance.now() - began) / 1000;
  return [...seen].map(([role, of]) => {
    // The first was taken of the time before.
    const [first, ...rest] = of;
    const last = rest.at(-1);
    if (first === undefined || last === undefined) throw new Error(`the kubelet counted too seldom in ${seconds} s`);
    const between = (Date.parse(last.time) - Date.parse(first.time)) * 1e6;
    return {
      work,
      role,
      workingSetMiB: mib(Math.max(...rest.map(({ workingSet }) => workingSet))),
      residentMiB: mib(Math.max(...rest.map(({ resident }) => resident))),
      cpus: (last.cpu - first.cpu) / between,
      mibPerSecond: mib(bytes) / elapsed,
    };
  });
}

const rows: Row[] = [];
for (const [work, run] of Object.entries(works)) rows.push(...(await measure(work, run)));

const cells = rows.map(
  ({ work, role, workingSetMiB, residentMiB, cpus, mibPerSecond }) =>
    `| ${work}${mibPerSecond === 0 ? "" : `, ${mibPerSecond.toFixed(0)} MiB/s`} | ${role} | ${workingSetMiB.toFixed(0)} MiB | ${residentMiB.toFixed(0)} MiB | ${cpus.toFixed(3)} |`,
);
const markdown = `
Each for ${seconds} s; memory at its most, CPUs in the mean. ${machineLine(state)}; cluster ${provider.name}.

| work | container | working set | resident | CPUs |
|---|---|--:|--:|--:|
${cells.join("\n")}
`;
publish("pair", { machine: state, provider: provider.name, seconds, rows }, markdown, values.out);
