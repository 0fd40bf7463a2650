/**
 * What the driver adds to a sandbox's life, on a real cluster: create until READY and delete until gone, beside the same two Pods (same specs,
 * a volume of their own) made at once by a bare client, and beside a bare Agent Sandbox of the workload's template. The three take turns.
 *
 *   npm run bench -- driver [--rounds 7] [--provider NAME] [--out DIRECTORY]
 *
 * Prints JSON, and Markdown to standard error; with --out also writes driver.json and driver.md. The cluster and the release stay.
 */
import { randomBytes } from "node:crypto";
import { parseArgs } from "node:util";
import {
  type AgentSandbox,
  Informer,
  type Live,
  type Pod,
  persistentVolumeClaims,
  pods,
  sandboxes,
  secrets,
} from "../../src/kube/index.ts";
import { labels } from "../../src/manifests/names.ts";
import { stderrProgress } from "../cluster/progress.ts";
import type { TestSandbox } from "../support/test-sandbox.ts";
import { bareClaim, barePod, benchLabel, type Specimen, specimenOf } from "./_bare-pairs.ts";
import { openBenchGateway } from "./_bench-gateway.ts";
import { machine, machineLine, median, publish, timed } from "./_report.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "7" },
    provider: { type: "string" },
    out: { type: "string" },
  },
});
const rounds = Number(values.rounds);

const progress = stderrProgress();
await using bench = await openBenchGateway(values.provider, progress);
const { provider, kube, version, create } = bench;
const namespace = bench.release.sandboxNamespace;

const sandboxResource = sandboxes(version);
const known = new Informer({ client: kube, resource: pods, namespace });
await known.synced;

interface Life {
  readonly createMs: number;
  readonly deleteMs: number;
}

const podsWith = (label: string, value: string) =>
  known.list().filter(({ metadata }) => metadata.labels?.[label] === value);

/** Its main container, which stands first, runs. */
const runs = ({ spec, status }: Pod) =>
  status?.containerStatuses?.find(({ name }) => name === spec?.containers[0]?.name)?.state?.running !== undefined;

async function ours(): Promise<Life> {
  let sandbox: TestSandbox | undefined;
  const createMs = await timed(async () => {
    sandbox = await create();
    await sandbox.ready();
  });
  const { id } = sandbox as TestSandbox;
  const deleteMs = await timed(async () => {
    await sandbox?.[Symbol.asyncDispose]();
    await known.until("our Pods to be gone", () => podsWith(labels.sandboxId, id).length === 0);
  });
  return { createMs, deleteMs };
}

/** A pair as the cluster has it, and copies of its Secrets for those who imitate it. */
async function specimen(): Promise<Specimen> {
  await using sandbox = await create();
  await sandbox.ready();
  const pair = podsWith(labels.sandboxId, sandbox.id);
  const found = await specimenOf(kube, sandboxResource, namespace, sandbox, pair);
  for (const { metadata, data } of found.secrets) {
    const copy = { apiVersion: "v1", kind: "Secret", metadata: { name: copyOf(metadata.name) }, data: data ?? {} };
    await kube.delete(secrets, namespace, copy.metadata.name).catch(() => undefined);
    await kube.create(secrets, namespace, copy);
  }
  return found;
}

const copyOf = (secret: string) => `bench-${secret}`.slice(0, 63);

const bare = (pod: Live<Pod>, leg: string, index: number) => barePod(pod, { leg, index, secretName: copyOf });

async function bothBare(model: Specimen): Promise<Life> {
  const { pair } = model;
  const leg = `bench-${randomBytes(4).toString("hex")}`;
  const createMs = await timed(async () => {
    await Promise.all([
      kube.create(persistentVolumeClaims, namespace, bareClaim(model, leg)),
      ...pair.map((pod, index) => kube.create(pods, namespace, bare(pod, leg, index))),
    ]);
    await known.until("two bare Pods to run", () => podsWith(benchLabel, leg).filter(runs).length === pair.length);
  });
  const deleteMs = await timed(async () => {
    await Promise.all([
      ...pair.map((_, index) => kube.delete(pods, namespace, `${leg}-${index}`)),
      kube.delete(persistentVolumeClaims, namespace, leg),
    ]);
    await known.until("the bare Pods to be gone", () => podsWith(benchLabel, leg).length === 0);
  });
  return { createMs, deleteMs };
}

async function bareSandbox({ pair, resource }: Specimen): Promise<Life> {
  const leg = `bench-${randomBytes(4).toString("hex")}`;
  const workload = pair.find(({ metadata }) => metadata.name === resource.metadata.name) as Live<Pod>;
  const { spec } = bare(workload, leg, 0);
  // The controller brings the claim's volume itself.
  const claims = new Set((resource.spec.volumeClaimTemplates ?? []).map(({ metadata }) => metadata?.name));
  const volumes = (spec?.volumes ?? []).filter(({ name }) => !claims.has(name));
  const template = { metadata: { labels: { [benchLabel]: leg } }, spec: { ...spec, volumes } };
  const body = {
    apiVersion: resource.apiVersion,
    kind: resource.kind,
    metadata: { name: leg },
    spec: { ...resource.spec, podTemplate: template, operatingMode: "Running" },
  } as AgentSandbox;
  const createMs = await timed(async () => {
    await kube.create(sandboxResource, namespace, body);
    await known.until("the bare Sandbox's Pod to run", () => podsWith(benchLabel, leg).some(runs));
  });
  const deleteMs = await timed(async () => {
    await kube.delete(sandboxResource, namespace, leg);
    await known.until("its Pod to be gone", () => podsWith(benchLabel, leg).length === 0);
  });
  return { createMs, deleteMs };
}

const model = await specimen();
const state = machine();
const legs = { ours, "two bare Pods": () => bothBare(model), "a bare Sandbox": () => bareSandbox(model) } as const;
type Leg = keyof typeof legs;
const order = Object.keys(legs) as Leg[];
const lives: Record<Leg, Life[]> = { ours: [], "two bare Pods": [], "a bare Sandbox": [] };
// What is only slow the first time is nobody's.
for (const leg of order) await legs[leg]();
for (let round = 0; round < rounds; round += 1) {
  for (const leg of round % 2 === 0 ? order : order.toReversed()) lives[leg].push(await legs[leg]());
  progress.note(`round ${round + 1} of ${rounds}`);
}

const targets = [
  { what: "createMs", name: "create → Ready", beside: "two bare Pods", most: 1.15 },
  { what: "createMs", name: "create → Ready", beside: "a bare Sandbox", most: 1.25 },
  { what: "deleteMs", name: "delete → gone", beside: "two bare Pods", most: 1.2 },
] as const;
const results = targets.map(({ what, name, beside, most }) => {
  const ratios = lives.ours.map((life, round) => life[what] / (lives[beside][round]?.[what] ?? Number.NaN));
  const times = (leg: Leg) => median(lives[leg].map((life) => life[what]));
  return {
    what: name,
    beside,
    oursMs: times("ours"),
    besideMs: times(beside),
    ratio: median(ratios),
    range: [Math.min(...ratios), Math.max(...ratios)],
    most,
  };
});

const rows = results.map(({ what, beside, oursMs, besideMs, ratio, range: [low = 0, high = 0], most }) => {
  const verdict = ratio <= most ? "met" : "missed";
  return `| ${what} | ${oursMs.toFixed(0)} ms | ${besideMs.toFixed(0)} ms, ${beside} | ${ratio.toFixed(2)} (${low.toFixed(2)} to ${high.toFixed(2)}) | ${most}: ${verdict} |`;
});
const markdown = `
Medians of ${rounds} rounds; ratios are medians of per-round ratios. ${machineLine(state)}; cluster ${provider.name}.

| what | ours | beside | ratio | target |
|---|--:|--:|--:|---|
${rows.join("\n")}
`;
publish("driver", { machine: state, provider: provider.name, rounds, results, lives }, markdown, values.out);

for (const { metadata } of (await kube.list(secrets, namespace)).items) {
  if (metadata.name.startsWith("bench-")) await kube.delete(secrets, namespace, metadata.name);
}
await known.stop();
