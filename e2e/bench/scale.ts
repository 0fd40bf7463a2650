/**
 * The driver under many sandboxes, on hollow nodes: nothing there is pulled, started or connected, so that all of it is the control plane
 * only. Beside it, in turns, a bare client that makes two Pods, a Service and two Secrets for each sandbox that the gateway is asked for.
 *
 *   npm run bench -- scale [--sandboxes 1000] [--nodes 100] [--rounds 5] [--batch 40] [--at-once 16]
 *                          [--rate 10] [--arrivals 200] [--idle 60] [--real 30] [--provider NAME] [--out DIRECTORY]
 *
 *   --sandboxes           how many there are in the end; 0 leaves the hollow nodes out
 *   --rounds, --batch     how often, and with how many pairs, each leg is run for the rate of pairs
 *   --rate, --arrivals    creates a second at random times on hollow nodes, and how many of them each leg has
 *   --idle                seconds in which the gateway is left alone with all its sandboxes
 *   --real                creates at 1 a second on the cluster's real nodes; 0 leaves that out
 *
 * Prints JSON, and Markdown to standard error; with --out also writes scale.json and scale.md. Everything it made goes at its end.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { cacheDirectory } from "../cluster/cache.ts";
import { applyObjects, kubectl } from "../cluster/clients.ts";
import { lockCluster } from "../cluster/local/state.ts";
import { stderrProgress } from "../cluster/progress.ts";
import type { Scrape } from "../support/gateway-metrics.ts";
import { releaseNamed } from "../support/release.ts";
import { type Arrivals, inParallel, poisson, tail } from "./_arrivals.ts";
import { benchLabel } from "./_bare-pairs.ts";
import { openBenchCluster } from "./_bench-cluster.ts";
import {
  apiServerCpuSeconds,
  difference,
  machineCpuSeconds,
  ofSandboxes,
  quantileBetween,
  requestsBetween,
  total,
  writesIn,
} from "./_counts.ts";
import { HollowNodes, hollowPlacement } from "./_hollow-nodes.ts";
import type { Milestone } from "./_pair-watch.ts";
import { hollowRelease, type Leg, Place, removePlace } from "./_place.ts";
import { programCpuSeconds, spentBetween } from "./_programs.ts";
import { machine, machineLine, median, publish } from "./_report.ts";
import {
  hollowRows,
  type OnHollowNodes,
  type OnRealNodes,
  type Reported,
  realRows,
  type Throughput,
} from "./_scale-rows.ts";

const { values } = parseArgs({
  options: {
    sandboxes: { type: "string", default: "1000" },
    nodes: { type: "string", default: "100" },
    rounds: { type: "string", default: "5" },
    batch: { type: "string", default: "40" },
    "at-once": { type: "string", default: "16" },
    rate: { type: "string", default: "10" },
    arrivals: { type: "string", default: "200" },
    idle: { type: "string", default: "60" },
    real: { type: "string", default: "30" },
    provider: { type: "string" },
    out: { type: "string" },
  },
});
const size = {
  sandboxes: Number(values.sandboxes),
  nodes: Number(values.nodes),
  rounds: Number(values.rounds),
  batch: Number(values.batch),
  atOnce: Number(values["at-once"]),
  rate: Number(values.rate),
  arrivals: Number(values.arrivals),
  idleSeconds: Number(values.idle),
  real: Number(values.real),
};
/** Arrivals at one a second among all the sandboxes. */
const calmArrivals = 60;
const storageClass = "openshell-hollow";
const volumes = { group: "", version: "v1", kind: "PersistentVolume", plural: "persistentvolumes", namespaced: false };

// Ended by hand, it leaves what it made in the cluster; the next run removes that.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(130));
await using undo = new AsyncDisposableStack();
const progress = stderrProgress();
const state = machine();
// Nobody's tests are to meet this load, nor this bench theirs.
undo.use(await lockCluster(join(cacheDirectory, "conformance"), progress));
const cluster = await openBenchCluster(values.provider, progress);
const { provider, kubeconfig, access, kube } = cluster;
undo.defer(() => kube.close());
const placeOptions = { ...cluster, progress };

/** As fast as a few clients at once can ask, from the first request until the last pair has its nodes. */
async function throughput({ create, watch }: Leg, count: number): Promise<Throughput> {
  const apiServerBefore = await apiServerCpuSeconds(kube);
  const programsBefore = programCpuSeconds();
  const cpuBefore = machineCpuSeconds();
  const begin = performance.now();
  const keys: string[] = [];
  await inParallel(count, size.atOnce, async () => void keys.push(await create()));
  const patienceMs = Math.max(300_000, count * 3_000);
  const ends = await Promise.all(keys.map((key) => watch.reached(key, "scheduled", patienceMs)));
  const pairsPerSecond = count / ((Math.max(...ends) - begin) / 1000);
  // What is left to do for these is not the next leg's.
  await Promise.all(keys.map((key) => watch.reached(key, "running", patienceMs)));
  const cpuSecondsPerPair = (machineCpuSeconds() - cpuBefore) / count;
  const apiServerCpuSecondsPerPair = ((await apiServerCpuSeconds(kube)) - apiServerBefore) / count;
  const programCpuSecondsPerPair = Object.fromEntries(spentBetween(programsBefore, programCpuSeconds(), count));
  return { pairsPerSecond, cpuSecondsPerPair, apiServerCpuSecondsPerPair, programCpuSecondsPerPair };
}

/** Creates at random times, until both Pods have come so far. */
function arrive({ create, watch }: Leg, perSecond: number, count: number, milestone: Milestone): Promise<Arrivals> {
  return poisson(perSecond, count, async () => {
    const begin = performance.now();
    const key = await create();
    return (await watch.reached(key, milestone, 300_000)) - begin;
  });
}

const reported = (arrivals: Arrivals): Reported => ({ ...tail(arrivals.latenciesMs), raw: arrivals });

async function makeVolumes(count: number): Promise<void> {
  await applyObjects(kubeconfig, [
    {
      apiVersion: "storage.k8s.io/v1",
      kind: "StorageClass",
      metadata: { name: storageClass },
      provisioner: "kubernetes.io/no-provisioner",
      volumeBindingMode: "Immediate",
    },
  ]);
  await inParallel(count, 16, async (index) => {
    const volume = {
      apiVersion: "v1",
      kind: "PersistentVolume",
      metadata: { name: `${storageClass}-${index}`, labels: { [benchLabel]: "volume" } },
      spec: {
        capacity: { storage: "64Mi" },
        accessModes: ["ReadWriteOnce"],
        storageClassName: storageClass,
        persistentVolumeReclaimPolicy: "Retain",
        hostPath: { path: "/nowhere" },
      },
    };
    await kube.create(volumes, undefined, volume);
  });
}

async function onHollowNodes(): Promise<OnHollowNodes> {
  await using end = new AsyncDisposableStack();
  const directory = join(cacheDirectory, "bench-scale");
  mkdirSync(directory, { recursive: true });
  const { nodes: count } = size;
  progress.note(`starting ${count} hollow nodes`);
  end.use(await HollowNodes.start({ access, kube, count, directory, progress }));
  const removeVolumes = async () => {
    await kubectl(kubeconfig, ["delete", "persistentvolume", "-l", `${benchLabel}=volume`, "--timeout=300s"]);
    await kubectl(kubeconfig, ["delete", "storageclass", storageClass, "--ignore-not-found"]);
  };
  // What an interrupted run left; a volume goes after its claim.
  await removePlace(placeOptions, releaseNamed(hollowRelease));
  await removeVolumes();
  end.defer(removeVolumes);
  const bareOnes = size.rounds * size.batch + 2 * size.arrivals;
  await makeVolumes(size.sandboxes + bareOnes + calmArrivals + 50);
  const place = end.use(
    await Place.open(placeOptions, hollowRelease, {
      ...hollowPlacement,
      workspace_storage_class: storageClass,
      workspace_default_storage_size: "64Mi",
    }),
  );
  const { ours, bare, bareWithoutVolume } = place;
  const empty = await place.quiet();
  let made = 1;

  const legs = [ours, bare, bareWithoutVolume];
  const rates: Record<string, Throughput[]> = Object.fromEntries(legs.map(({ name }) => [name, []]));
  const ofOurs: { readonly gatewayCpuSeconds: number; readonly requests: number }[] = [];
  // What is only slow the first time is nobody's.
  for (const leg of legs) await throughput(leg, 5);
  made += 5;
  for (let round = 0; round < size.rounds; round += 1) {
    for (const leg of round % 2 === 0 ? legs : legs.toReversed()) {
      const before = await place.quiet(2);
      rates[leg.name]?.push(await throughput(leg, size.batch));
      if (leg !== ours) continue;
      made += size.batch;
      const after = await place.quiet(2);
      ofOurs.push({
        gatewayCpuSeconds: difference("process_cpu_seconds_total", before, after) / size.batch,
        requests: total(ofSandboxes(requestsBetween(before, after))) / size.batch,
      });
    }
    progress.note(`round ${round + 1} of ${size.rounds}`);
  }

  progress.note(`creates at ${size.rate} a second`);
  const oursAtRate = await arrive(ours, size.rate, size.arrivals, "scheduled");
  made += size.arrivals;
  await place.quiet();
  const bareAtRate = await arrive(bare, size.rate, size.arrivals, "scheduled");

  const missing = Math.max(0, size.sandboxes - made);
  progress.note(`${missing} more sandboxes, to ${size.sandboxes}`);
  if (missing > 0) await throughput(ours, missing);
  const full = await place.quiet(30);

  progress.note("creates at 1 a second among all of them");
  const calm = await arrive(ours, 1, calmArrivals, "scheduled");
  const afterCalm = await place.quiet();

  progress.note(`${size.idleSeconds} s of nothing`);
  const idleBefore = await place.quiet(30);
  await sleep(size.idleSeconds * 1000);
  const idleAfter = await place.scrape();

  progress.note("another gateway");
  const { namespace } = place.release;
  const begin = performance.now();
  await kubectl(kubeconfig, ["-n", namespace, "delete", "pod", place.gateway.podName, "--wait=true"]);
  await place.gateway.reconnect();
  const restartMs = performance.now() - begin;
  const restarted = await place.quiet(15);

  const idle = requestsBetween(idleBefore, idleAfter);
  const restart = requestsBetween(undefined, restarted);
  const memory = (scrape: Scrape) => scrape.values.get("process_resident_memory_bytes") ?? Number.NaN;
  const sandboxesNow = [...idleAfter.values]
    .filter(([series]) => series.startsWith("openshell_sandboxes{"))
    .reduce((sum, [, value]) => sum + value, 0);
  return {
    sandboxes: sandboxesNow,
    rates,
    gatewayCpuSecondsPerPair: median(ofOurs.map(({ gatewayCpuSeconds }) => gatewayCpuSeconds)),
    requestsPerPair: median(ofOurs.map(({ requests }) => requests)),
    atRate: { ours: reported(oursAtRate), bare: reported(bareAtRate) },
    calm: reported(calm),
    reconcileSeconds: {
      p50: quantileBetween("openshell_reconcile_seconds", full, afterCalm, 0.5),
      p99: quantileBetween("openshell_reconcile_seconds", full, afterCalm, 0.99),
    },
    memory: { empty: memory(empty), full: memory(full), restarted: memory(restarted) },
    idle: {
      seconds: size.idleSeconds,
      requests: Object.fromEntries(idle),
      ofSandboxes: total(ofSandboxes(idle)),
      gatewayCpuSeconds: difference("process_cpu_seconds_total", idleBefore, idleAfter),
    },
    restart: { ms: restartMs, requests: Object.fromEntries(restart), writes: total(writesIn(restart)) },
  };
}

/** Each leg in an empty place: the nodes have no room for both at once. */
async function onRealNodes(): Promise<OnRealNodes> {
  const measure = async (which: "ours" | "bare") => {
    progress.note(`creates at 1 a second on real nodes, ${which}`);
    await using place = await Place.open(placeOptions, "openshell-bench", { workspace_default_storage_size: "64Mi" });
    const leg = place[which];
    // As the arrivals' own: undefined for one that never came so far.
    const scheduled = new Array<number | undefined>(size.real).fill(undefined);
    const arrivals = await poisson(1, size.real, async (index) => {
      const begin = performance.now();
      const key = await leg.create();
      scheduled[index] = (await leg.watch.reached(key, "scheduled", 300_000)) - begin;
      return (await leg.watch.reached(key, "running", 300_000)) - begin;
    });
    return { scheduled: tail(scheduled), running: tail(arrivals.latenciesMs), raw: arrivals };
  };
  return { ours: await measure("ours"), bare: await measure("bare") };
}

const hollow = size.sandboxes > 0 ? await onHollowNodes() : undefined;
const real = size.real > 0 ? await onRealNodes() : undefined;

const rows = [...(hollow ? hollowRows(hollow, size) : []), ...(real ? realRows(real) : [])];
const markdown = `
Control plane only, on ${size.nodes} hollow nodes, except where real nodes are named: no supervisor connects. Medians of ${size.rounds} rounds of
${size.batch} pairs, ${size.atOnce} at once; ratios are medians of per-round ratios. ${machineLine(state)}; cluster ${provider.name}.

| what | ours | beside | ratio (range) | target |
|---|--:|--:|--:|---|
${rows.join("\n")}
`;
publish("scale", { machine: state, provider: provider.name, size, hollow, real }, markdown, values.out);
