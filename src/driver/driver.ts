import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { backoffMs, retry, sleep } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import {
  type AgentSandboxVersion,
  agentSandboxGroup,
  agentSandboxVersions,
  createKubeClient,
  holdLease,
  Informers,
  isNotFound,
  type KubeClient,
  type Live,
  mayPass,
  type Pod,
  ServerClock,
} from "../kube/index.ts";
import { driverLeaseName, type GatewayFacts } from "../manifests/index.ts";
import type { compute, Implementation } from "../wire/index.ts";
import { ClusterView } from "./cluster-view.ts";
import { Executor } from "./execute.ts";
import { Hub } from "./hub.ts";
import { masterKidOf } from "./identity.ts";
import { whileLeading } from "./leading-client.ts";
import { OutageLog } from "./outage-log.ts";
import { nodeRefusalOf, platformEventOf, podWithoutSecret, startTroubleOf, warningOf } from "./platform-events.ts";
import { PolicyRepair } from "./policy-repair.ts";
import { Reconciler } from "./reconciler.ts";
import { RecordSeal } from "./record-seal.ts";
import { ReleaseSeal } from "./release-seal.ts";
import { computeDriver, noAgentSandboxApi } from "./service.ts";
import { sweep } from "./sweep.ts";
import type { Driver, DriverOptions, Running } from "./types.ts";
import { workspacesOf } from "./workspace-modes.ts";
import { namespaceOf } from "./workspaces.ts";

/** The Kubernetes compute driver. It keeps no state outside the cluster. */
export function createDriver(options: DriverOptions): Driver {
  return new KubernetesDriver(options);
}

const sweepEveryMs = 5 * 60_000;
const rediscoverEveryMs = 15_000;
/** Between two looks at a cluster that does not answer yet. */
const longestStartPauseMs = 10_000;

class KubernetesDriver implements Driver {
  readonly implementation: Implementation<typeof compute.ComputeDriver>;
  readonly #options: DriverOptions;
  readonly #hub = new Hub();
  readonly #clock = new ServerClock();
  readonly #now: () => Date;
  readonly #stop = new AbortController();
  readonly #background = new Set<Promise<void>>();
  #running: Running | undefined;
  #informers: Informers | undefined;
  #isLeader = false;
  /** Of the lease that is held, or was last. */
  #lost = AbortSignal.abort();
  #haveSynced = false;
  #isComplete = false;
  readonly #policies: PolicyRepair;
  readonly #outages: OutageLog;

  constructor(options: DriverOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => this.#clock.now());
    this.#policies = new PolicyRepair({
      log: options.log,
      signal: this.#stop.signal,
      running: () => (this.#isLeader ? this.#running : undefined),
    });
    this.#outages = new OutageLog(options.log);
    this.implementation = computeDriver({
      options,
      now: this.#now,
      hub: this.#hub,
      gateway: gatewayFacts(options),
      running: () => this.#requireRunning(),
      requireLead: () => this.#requireLead(),
      requireComplete: () => this.#requireComplete(),
    });
  }

  ready(): boolean {
    return this.#isComplete;
  }

  leads(): boolean {
    return this.#isLeader;
  }

  depth(): number {
    return this.#running?.reconciler.depth ?? 0;
  }

  async start(parent: AbortSignal): Promise<void> {
    const signal = AbortSignal.any([parent, this.#stop.signal]);
    const { settings, gateway, log, onRequest, masterSecret } = this.#options;
    const { onWatchRestart, onReplacement, onReconciled, onRound } = this.#options;
    const now = this.#now;
    const client =
      this.#options.client ??
      (await createKubeClient({
        component: "openshell-driver",
        ...(this.#options.kubeconfig === undefined ? {} : { kubeconfig: this.#options.kubeconfig }),
        onRequest: (request) => {
          this.#clock.hear(request);
          onRequest?.(request);
        },
      }));
    const onError = (error: unknown) => {
      if (isNotFound(error)) this.#discoverSoon(signal);
      this.#outages.tell(error);
    };
    const informers = new Informers(client, {
      signal,
      onError,
      ...(onWatchRestart === undefined ? {} : { onRestart: onWatchRestart }),
    });
    this.#informers = informers;
    const seal = new RecordSeal({
      masterSecret,
      gatewayId: gateway.id,
      // Sandboxes of another mode's time live on where they are.
      namespacesOf: (workspace) => [namespaceOf(settings, gateway.id, workspace), settings.namespace],
    });
    const releases = new ReleaseSeal(masterSecret, gateway.id);
    const view = new ClusterView({
      informers,
      settings,
      seal,
      releases,
      gatewayId: gateway.id,
      log,
      now,
      onSandbox: (id) => this.#running?.reconciler.wake(id),
      onPodGone: (id, last) => this.#running?.reconciler.podIsGone(id, last),
      onPolicies: () => this.#policies.repair(),
      onEvent: (event) => this.#tellEvent(event),
      onForeignPod: (id, pod) => this.#tellForeignPod(id, pod),
    });
    const executor = new Executor({
      client: whileLeading(client, () => this.#lost),
      gatewayId: gateway.id,
      gatewayCaPem: gateway.caPem,
      masterSecret,
      masterKid: masterKidOf(masterSecret),
      seal,
      releases,
      overlay: view.overlay,
      log,
    });
    const reconciler = new Reconciler({
      view,
      executor,
      hub: this.#hub,
      gatewayId: gateway.id,
      log,
      now,
      onRefused: (namespace, reason) => this.#running?.workspaces.refused(namespace, reason),
      ...(onRound === undefined ? {} : { onRound }),
      ...(onReplacement === undefined ? {} : { onReplacement }),
      ...(onReconciled === undefined ? {} : { onReconciled }),
    });
    const workspaces = workspacesOf({ client, informers, view, settings, gatewayId: gateway.id, log });
    this.#running = { client, view, executor, reconciler, workspaces };
    await this.#patiently(() => this.#discover(signal), signal);
    await this.#patiently(() => workspaces.start(signal), signal);
    // Namespaces are waited for by their mode; one that cannot be listed keeps nobody else from working.
    await view.synced();
    this.#haveSynced = true;
    this.#publishAll();
    const first = Promise.withResolvers<void>();
    this.#background.add(this.#lead(client, reconciler, signal, first.resolve));
    this.#background.add(this.#sweepRegularly(signal));
    await Promise.race([first.promise, aborted(signal)]);
  }

  /** A cluster that is away keeps the driver from being ready, and nothing else from serving. */
  async #patiently(begin: () => Promise<void>, signal: AbortSignal): Promise<void> {
    const retryable = (error: unknown) => {
      if (signal.aborted || !mayPass(error)) return false;
      this.#options.log.warn({ err: error }, "the cluster does not answer yet; trying again");
      return true;
    };
    await retry(begin, { signal, attempts: Number.POSITIVE_INFINITY, maxMs: longestStartPauseMs, retryable });
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#hub.close();
    await Promise.allSettled(this.#background);
    await this.#running?.reconciler.stop();
    await this.#informers?.[Symbol.asyncDispose]();
    if (this.#options.client === undefined) this.#running?.client.close();
  }

  #requireRunning(): Running {
    if (this.#running === undefined) {
      throw new OpenShellError("unavailable", "the Kubernetes driver is still starting", { retryAfterMs: 1_000 });
    }
    return this.#running;
  }

  #requireLead(): void {
    if (this.#isLeader) return;
    throw new OpenShellError("unavailable", "the driver does not hold its lease now; another one may be writing", {
      retryAfterMs: 2_000,
    });
  }

  #requireComplete(): void {
    if (this.#requireRunning().view.api === undefined && this.#haveSynced) throw noAgentSandboxApi();
    if (this.#isComplete) return;
    throw new OpenShellError("unavailable", "the driver has not listed its sandboxes yet", { retryAfterMs: 1_000 });
  }

  /** What is not told when the first list is answered would be taken for deleted. */
  #publishAll(): void {
    if (this.#running?.view.api === undefined || !this.#haveSynced) return;
    for (const id of this.#running.view.sandboxIds()) this.#running.reconciler.publish(id);
    this.#isComplete = true;
  }

  /** Writes only while it holds the Lease, however many drivers there are. */
  async #lead(client: KubeClient, reconciler: Reconciler, signal: AbortSignal, onFirst: () => void): Promise<void> {
    const { settings, gateway, log } = this.#options;
    // The name of the host tells people who it is; that alone would be shared by two gateways of one name.
    const identity = `${hostname()}_${randomUUID()}`;
    while (!signal.aborted) {
      try {
        await using lease = await holdLease({
          client,
          namespace: settings.namespace,
          name: driverLeaseName(gateway.id),
          identity,
          signal,
          onError: (error) => log.warn({ err: error }, "the driver's lease could not be renewed yet"),
        });
        this.#isLeader = true;
        this.#lost = lease.lost;
        reconciler.start(lease.lost);
        this.#policies.repair();
        onFirst();
        await Promise.race([aborted(lease.lost), aborted(signal)]);
        this.#isLeader = false;
        await reconciler.stop();
        if (!signal.aborted) log.error("the driver's lease was lost; waiting to have it again");
      } catch (error) {
        this.#isLeader = false;
        if (!signal.aborted) log.error({ err: error }, "the driver's lease failed");
      }
    }
  }

  /** Finds the best served version of the Agent Sandbox API; when there is none, asks again in the background. */
  async #discover(signal: AbortSignal): Promise<void> {
    const { log } = this.#options;
    const { client, view } = this.#requireRunning();
    const served = await client.apiVersionsOf(agentSandboxGroup, { signal });
    const api = agentSandboxVersions.find((version) => served.includes(version));
    if (api === undefined) {
      log.warn(noAgentSandboxApi().message);
      this.#discoverSoon(signal);
      return;
    }
    await view.useApi(api);
    this.#publishAll();
  }

  #discovering = false;

  #discoverSoon(signal: AbortSignal): void {
    if (this.#discovering || signal.aborted) return;
    this.#discovering = true;
    const attempt = async () => {
      for (let tries = 3; !signal.aborted; tries += 1) {
        await sleep(backoffMs(tries, { maxMs: rediscoverEveryMs }), signal);
        const { client, view } = this.#requireRunning();
        const served = await client.apiVersionsOf(agentSandboxGroup, { signal });
        const api = agentSandboxVersions.find((version: AgentSandboxVersion) => served.includes(version));
        if (api === undefined) continue;
        await view.useApi(api);
        this.#publishAll();
        return;
      }
    };
    const work: Promise<void> = attempt()
      .catch((error: unknown) => {
        if (!signal.aborted) this.#options.log.warn({ err: error }, "looking for the Agent Sandbox API failed");
      })
      .finally(() => {
        this.#discovering = false;
        this.#background.delete(work);
        if (this.#running?.view.api === undefined) this.#discoverSoon(signal);
      });
    this.#background.add(work);
  }

  #tellEvent(event: Parameters<typeof platformEventOf>[0]): void {
    const id = this.#running?.view.sandboxOfEvent(event);
    if (id === undefined) return;
    this.#hub.platformEvent(id, platformEventOf(event));
    const pod = podWithoutSecret(event);
    if (pod !== undefined) this.#running?.reconciler.secretIsMissing(id, pod);
    const refusal = nodeRefusalOf(event);
    if (refusal !== undefined) this.#running?.reconciler.nodeRefuses(id, refusal);
    const trouble = startTroubleOf(event);
    if (trouble !== undefined) this.#running?.reconciler.cannotStartYet(id, trouble);
  }

  #tellForeignPod(sandboxId: string, { metadata: { name, namespace } }: Live<Pod>): void {
    const { log } = this.#options;
    const message = `Pod ${name} has the labels of this sandbox and is not its own; nothing waits for it`;
    log.warn({ sandbox: sandboxId, namespace, pod: name }, "ForeignPod: a Pod has the labels of a sandbox");
    this.#hub.platformEvent(
      sandboxId,
      warningOf({ at: this.#now(), reason: "ForeignPod", message, kind: "Pod", name }),
    );
  }

  async #sweepRegularly(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(sweepEveryMs * (0.75 + Math.random() / 2), signal).catch(() => undefined);
      if (!signal.aborted && this.#isLeader && this.#running)
        await sweep(this.#running, this.#now(), this.#options.log);
    }
  }
}

function gatewayFacts({ gateway }: DriverOptions): GatewayFacts {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = process.env;
  const apiServer = host && port ? [`${host.includes(":") ? `[${host}]` : host}:${port}`] : [];
  return {
    id: gateway.id,
    endpoint: gateway.endpoint,
    fenceTargets: gateway.fenceTargets ?? apiServer,
    hasCa: gateway.caPem !== undefined,
  };
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
