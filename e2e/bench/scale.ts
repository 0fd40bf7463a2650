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
import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Informer, type Live, type Pod, pods, sandboxes } from "../../src/kube/index.ts";
import { labels } from "../../src/manifests/names.ts";
import { cacheDirectory } from "../cluster/cache.ts";
import { applyObjects, kubectl } from "../cluster/clients.ts";
import { lockCluster } from "../cluster/local/state.ts";
import { stderrProgress } from "../cluster/progress.ts";
import { GatewayAccess } from "../support/gateway-access.ts";
import { type Scrape, scrapeGateway } from "../support/gateway-metrics.ts";
import { imageValues, install, type Release, releaseNamed, uninstall } from "../support/release.ts";
import { type Arrivals, inParallel, poisson, tail } from "./_arrivals.ts";
import { BareClient } from "./_bare-client.ts";
import { benchLabel, sandboxesOf, specimenOf } from "./_bare-pairs.ts";
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
import { type Milestone, PairWatch } from "./_pair-watch.ts";
import { programCpuSeconds, spentBetween } from "./_programs.ts";
import { machine, machineLine, median, publish } from "./_report.ts";

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
/** The leg that is asked for as much as ours. */
const bareName = "two bare Pods, Service, two Secrets, volume";
const hollowRelease = "openshell-scale";
const storageClass = "openshell-hollow";
const volumes = { group: "", version: "v1", kind: "PersistentVolume", plural: "persistentvolumes", namespaced: false };

// Ended by hand, it leaves what it made in the cluster; the next run removes that.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(130));
await using undo = new AsyncDisposableStack();
const progress = stderrProgress();
const state = machine();
// Nobody's tests are to meet this load, nor this bench theirs.
undo.use(await lockCluster(join(cacheDirectory, "conformance"), progress));
const { provider, kubeconfig, access, gatewayDigest, kube, version } = await openBenchCluster(
  values.provider,
  progress,
);
undo.defer(() => kube.close());

/** One of the two things that are measured beside each other: makes a pair and says how it is called. */
interface Leg {
  readonly name: string;
  create(): Promise<string>;
  readonly watch: PairWatch;
}

function bareNamespaceOf({ name }: Release): string {
  return `${name}-bare`;
}

/** With all that was made there, whoever made it. */
async function removePlace(release: Release): Promise<void> {
  progress.note(`removing ${release.name}`);
  const all = [bareNamespaceOf(release), release.sandboxNamespace, release.namespace];
  await kubectl(kubeconfig, ["delete", "namespace", ...all.slice(0, 1), "--ignore-not-found", "--wait=false"]);
  await uninstall(kubeconfig, release).catch(() => undefined);
  // On hollow nodes there is nothing to end; one by one a thousand pairs take kwok many minutes.
  if (release.name === hollowRelease) {
    for (const namespace of all.slice(0, 2)) {
      const path = `/api/v1/namespaces/${namespace}/pods?gracePeriodSeconds=0`;
      await kubectl(kubeconfig, ["delete", "--raw", path]).catch(() => undefined);
    }
  }
  await kubectl(kubeconfig, ["delete", "namespace", ...all, "--ignore-not-found", "--timeout=900s"]);
}

/** A gateway, and the bare client that imitates it in a namespace of its own. */
class Place implements AsyncDisposable {
  readonly release: Release;
  readonly gateway: GatewayAccess;
  readonly ours: Leg;
  readonly bare: Leg;
  readonly bareWithoutVolume: Leg;
  readonly #end: AsyncDisposableStack;

  private constructor(
    parts: Pick<Place, "release" | "gateway" | "ours" | "bare" | "bareWithoutVolume">,
    end: AsyncDisposableStack,
  ) {
    this.release = parts.release;
    this.gateway = parts.gateway;
    this.ours = parts.ours;
    this.bare = parts.bare;
    this.bareWithoutVolume = parts.bareWithoutVolume;
    this.#end = end;
  }

  static async open(name: string, settings: object): Promise<Place> {
    await using end = new AsyncDisposableStack();
    const release = releaseNamed(name);
    const bareNamespace = bareNamespaceOf(release);
    await removePlace(release);
    end.defer(() => removePlace(release));
    const gatewayConfig = { "openshell.gateway": { log_level: "info" }, "openshell.drivers.kubernetes": settings };
    await install({
      kubeconfig,
      release,
      presets: ["conformance"],
      values: { ...imageValues(gatewayDigest), gatewayConfig },
    });
    const gateway = end.use(await GatewayAccess.open(kubeconfig, release));
    const informed = async (
      namespace: string,
      labelSelector: string,
      pairOf: (pod: Live<Pod>) => string | undefined,
    ) => {
      const informer = end.use(new Informer({ client: kube, resource: pods, namespace, labelSelector }));
      await informer.synced;
      return { informer, watch: new PairWatch(informer, pairOf) };
    };
    const own = await informed(
      release.sandboxNamespace,
      labels.sandboxId,
      ({ metadata }) => metadata.labels?.[labels.sandboxId],
    );
    const createNamed = sandboxesOf(() => gateway.client);
    const created = () => createNamed(`s-${randomBytes(5).toString("hex")}`);

    const first = await created();
    await own.watch.reached(first.id, "running");
    const pair = own.informer.list().filter(({ metadata }) => metadata.labels?.[labels.sandboxId] === first.id);
    const model = await specimenOf(kube, sandboxes(version), release.sandboxNamespace, first, pair);
    const client = end.use(await BareClient.open(kubeconfig, bareNamespace, model));
    const { watch } = await informed(bareNamespace, benchLabel, ({ metadata }) => metadata.labels?.[benchLabel]);
    const bareLeg = (what: string, withClaim: boolean): Leg => ({
      name: what,
      create: () => client.create({ withClaim }),
      watch,
    });
    return new Place(
      {
        release,
        gateway,
        ours: { name: "ours", create: async () => (await created()).id, watch: own.watch },
        bare: bareLeg(bareName, true),
        bareWithoutVolume: bareLeg("two bare Pods, Service, two Secrets", false),
      },
      end.move(),
    );
  }

  scrape(): Promise<Scrape> {
    return scrapeGateway(kube, this.release);
  }

  /** Until the driver has had nothing to do for a while. */
  async quiet(seconds = 5): Promise<Scrape> {
    for (let calm = 0; ; ) {
      const scrape = await this.scrape();
      calm = scrape.values.get("openshell_reconcile_depth") === 0 ? calm + 1 : 0;
      if (calm > seconds) return scrape;
      await sleep(1_000);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end.disposeAsync();
  }
}

interface Throughput {
  readonly pairsPerSecond: number;
  /** Of the whole machine, whoever spent it. */
  readonly cpuSecondsPerPair: number;
  /** Of these the API server's. */
  readonly apiServerCpuSecondsPerPair: number;
  /** Of these each program's, where they run on this machine. */
  readonly programCpuSecondsPerPair: Readonly<Record<string, number>>;
}

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

const reported = (arrivals: Arrivals) => ({ ...tail(arrivals.latenciesMs), raw: arrivals });

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

async function onHollowNodes() {
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
  await removePlace(releaseNamed(hollowRelease));
  await removeVolumes();
  end.defer(removeVolumes);
  const bareOnes = size.rounds * size.batch + 2 * size.arrivals;
  await makeVolumes(size.sandboxes + bareOnes + calmArrivals + 50);
  const place = end.use(
    await Place.open(hollowRelease, {
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
async function onRealNodes() {
  const measure = async (which: "ours" | "bare") => {
    progress.note(`creates at 1 a second on real nodes, ${which}`);
    await using place = await Place.open("openshell-bench", { workspace_default_storage_size: "64Mi" });
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

const verdict = (met: boolean) => (met ? "met" : "missed");
const seconds = (ms: number) => (Number.isFinite(ms) ? `${(ms / 1000).toFixed(2)} s` : "never");
type Tail = ReturnType<typeof tail>;
const tailText = ({ p50, p90, p99, failed }: Tail) =>
  `${[p50, p90, p99].map(seconds).join(" / ")}${failed === 0 ? "" : `, ${failed} failed`}`;
const below = (mostMs: number, { p99 }: Tail) => `p99 below ${mostMs / 1000} s: ${verdict(p99 < mostMs)}`;
const mib = (bytes: number) => `${(bytes / 2 ** 20).toFixed(0)} MiB`;
const row = (what: string, ours: string, beside = "", ratio = "", target = "") =>
  `| ${what} | ${ours} | ${beside} | ${ratio} | ${target} |`;

function hollowRows(result: Awaited<ReturnType<typeof onHollowNodes>>): string[] {
  const { rates, sandboxes: count, atRate, calm, reconcileSeconds, memory, idle, restart } = result;
  const each = (name: string) => (rates[name] ?? []).map(({ pairsPerSecond }) => pairsPerSecond);
  const cpu = (name: string) => median((rates[name] ?? []).map(({ cpuSecondsPerPair }) => cpuSecondsPerPair));
  const apiServer = (name: string) =>
    `the API server's ${median((rates[name] ?? []).map(({ apiServerCpuSecondsPerPair }) => apiServerCpuSecondsPerPair)).toFixed(2)} s`;
  const others = Object.keys(rates).filter((name) => name !== "ours");
  const program = (leg: string, name: string) =>
    median((rates[leg] ?? []).map(({ programCpuSecondsPerPair }) => programCpuSecondsPerPair[name] ?? 0));
  const programs = [...new Set((rates.ours ?? []).flatMap((each) => Object.keys(each.programCpuSecondsPerPair)))]
    .filter((name) => program("ours", name) >= 0.01)
    .sort((left, right) => program("ours", right) - program("ours", left));
  const perPair = (leg: string) => programs.map((name) => `${name} ${program(leg, name).toFixed(2)}`).join(", ");
  return [
    ...others.map((beside) => {
      const ratios = each("ours").map((rate, round) => rate / (each(beside)[round] ?? Number.NaN));
      const ratio = median(ratios);
      const range = `${ratio.toFixed(2)} (${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)})`;
      const rate = (name: string) => median(each(name)).toFixed(1);
      const target = `at least 0.8: ${verdict(ratio >= 0.8)}`;
      return row("pairs/s until both Pods have a node", rate("ours"), `${rate(beside)}, ${beside}`, range, target);
    }),
    ...others.map((beside) =>
      row(
        "CPU of the whole machine per pair",
        `${cpu("ours").toFixed(2)} s, of it ${apiServer("ours")}, the gateway's ${result.gatewayCpuSecondsPerPair.toFixed(2)} s`,
        `${cpu(beside).toFixed(2)} s, of it ${apiServer(beside)}, ${beside}`,
        (cpu("ours") / cpu(beside)).toFixed(2),
      ),
    ),
    ...(programs.length === 0 ? [] : [row("seconds of it", perPair("ours"), perPair(bareName))]),
    row("requests of the driver per pair", result.requestsPerPair.toFixed(1), "", "", "9"),
    row(
      `create at ${size.rate}/s, p50 / p90 / p99`,
      tailText(atRate.ours),
      `${tailText(atRate.bare)}, with volume`,
      (atRate.ours.p99 / atRate.bare.p99).toFixed(2),
      below(5_000, atRate.ours),
    ),
    row(`create at 1/s among ${count} sandboxes, p50 / p90 / p99`, tailText(calm), "", "", below(5_000, calm)),
    row(
      "one reconcile meanwhile, p50 / p99",
      `${(reconcileSeconds.p50 * 1000).toFixed(0)} / ${(reconcileSeconds.p99 * 1000).toFixed(0)} ms`,
    ),
    row(
      `the gateway's resident memory: with 1 sandbox, with ${size.sandboxes}, after a restart with ${count}`,
      [memory.empty, memory.full, memory.restarted].map(mib).join(", "),
    ),
    row(
      `requests for ${count} idle sandboxes in ${idle.seconds} s`,
      String(idle.ofSandboxes),
      "",
      "",
      `0: ${verdict(idle.ofSandboxes === 0)}`,
    ),
    row(
      "writes when the gateway restarts with them",
      String(restart.writes),
      "",
      "",
      `0: ${verdict(restart.writes === 0)}`,
    ),
  ];
}

function realRows({ ours, bare }: Awaited<ReturnType<typeof onRealNodes>>): string[] {
  const both = (what: string, of: "scheduled" | "running", target?: string) =>
    row(
      `real nodes, create at 1/s, ${what}, p50 / p90 / p99`,
      tailText(ours[of]),
      `${tailText(bare[of])}, with volume`,
      (ours[of].p99 / bare[of].p99).toFixed(2),
      target,
    );
  return [both("both Pods have a node", "scheduled", below(5_000, ours.scheduled)), both("both Pods run", "running")];
}

const rows = [...(hollow ? hollowRows(hollow) : []), ...(real ? realRows(real) : [])];
const markdown = `
Control plane only, on ${size.nodes} hollow nodes, except where real nodes are named: no supervisor connects. Medians of ${size.rounds} rounds of
${size.batch} pairs, ${size.atOnce} at once; ratios are medians of per-round ratios. ${machineLine(state)}; cluster ${provider.name}.

| what | ours | beside | ratio (range) | target |
|---|--:|--:|--:|---|
${rows.join("\n")}
`;
publish("scale", { machine: state, provider: provider.name, size, hollow, real }, markdown, values.out);
