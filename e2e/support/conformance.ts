import { randomBytes } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { inject } from "vitest";
import { referenceOf, type workloadImages } from "../../images/references.ts";
import { hasCode } from "../../src/common/errors.ts";
import {
  type AgentSandbox,
  type AgentSandboxVersion,
  agentSandboxGroup,
  createKubeClient,
  Informer,
  type KubeClient,
  type KubeObject,
  kubeconfigAccess,
  type Live,
  type Pod,
  pods,
  type Resource,
  sandboxes,
} from "../../src/kube/index.ts";
import { labels } from "../../src/manifests/names.ts";
import { deleteObjects, kubectl, kubectlAttempt } from "../cluster/clients.ts";
import type { Outcome, RunOptions } from "../cluster/exec.ts";
import type { ClusterProvider } from "../cluster/provider.ts";
import { selectProvider } from "../cluster/select.ts";
import { GatewayAccess } from "./gateway-access.ts";
import { givenSecrets, imageValues, install, type Release, workerRelease } from "./release.ts";
import { TestSandbox } from "./test-sandbox.ts";
import { applyPlace, placeOf } from "./workspace-mode.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Path of the administrator's kubeconfig. */
    kubeconfig: string;
    providerName: string;
    /** Digest of the gateway's image: its Pod is replaced when the image changes under the same tag. */
    gatewayDigest: string;
  }
}

export type WorkloadImage = (typeof workloadImages)[number];

/** The two Pods of a sandbox, as the API server shows them. */
export interface Pair {
  readonly workload: Live<Pod>;
  readonly supervisor: Live<Pod>;
}

export interface NewSandbox {
  /** @default a random one */
  readonly name?: string;
  readonly image?: WorkloadImage;
  readonly command?: readonly string[];
  readonly runtimeClass?: string;
  readonly environment?: Readonly<Record<string, string>>;
  /** What the driver takes below `template.driver_config.kubernetes`. */
  readonly driverConfig?: JsonObject;
  /** `template.resources`. */
  readonly resources?: JsonObject;
}

/** Settings below gatewayConfig, keyed by TOML table. */
export type Settings = Readonly<Record<string, object>>;

/** How a suite's gateway is installed, where that is not as in every other suite. */
export interface Installation {
  /** @default the worker's */
  readonly release?: Release;
  /** Values of the chart, beside gatewayConfig. */
  readonly values?: Readonly<Record<string, unknown>>;
}

/** What a suite works with: the cluster, and the gateway of its worker. */
export class Conformance implements AsyncDisposable {
  readonly kubeconfig: string;
  readonly provider: ClusterProvider;
  readonly release: Release;
  /** Of the suite's sandboxes. */
  readonly workspace: string;
  readonly kube: KubeClient;
  readonly gateway: GatewayAccess;
  /** Every Pod of the sandboxes' namespace. */
  readonly pods: Informer<Pod>;
  /** Every Agent Sandbox there. */
  readonly resources: Informer<AgentSandbox>;
  readonly #installation: Installation;

  private constructor(
    parts: Pick<
      Conformance,
      "kubeconfig" | "provider" | "release" | "workspace" | "kube" | "gateway" | "pods" | "resources"
    >,
    installation: Installation,
  ) {
    this.kubeconfig = parts.kubeconfig;
    this.provider = parts.provider;
    this.release = parts.release;
    this.workspace = parts.workspace;
    this.kube = parts.kube;
    this.gateway = parts.gateway;
    this.pods = parts.pods;
    this.resources = parts.resources;
    this.#installation = installation;
  }

  /** Installs the worker's gateway with `settings`, whatever an earlier file left, and opens what a suite needs. */
  static async open(settings: Settings = {}, installation: Installation = {}): Promise<Conformance> {
    const kubeconfig = inject("kubeconfig");
    const own = installation.release ?? workerRelease();
    const place = placeOf(own);
    const release = place ? { ...own, sandboxNamespace: place.namespace } : own;
    const workspace = place?.workspace ?? "default";
    if (place !== undefined) await applyPlace(kubeconfig, place);
    await installed(kubeconfig, release, settings, installation);
    const provider = await selectProvider(inject("providerName"));
    const kube = await createKubeClient({
      component: "openshell-conformance",
      access: await kubeconfigAccess(kubeconfig),
    });
    const [version] = await kube.apiVersionsOf(agentSandboxGroup);
    const namespace = release.sandboxNamespace;
    const podInformer = new Informer({ client: kube, resource: pods, namespace });
    const resource = sandboxes((version ?? "v1beta1") as AgentSandboxVersion);
    const resources = new Informer({ client: kube, resource, namespace });
    await Promise.all([podInformer.synced, resources.synced]);
    const gateway = await GatewayAccess.open(kubeconfig, release);
    if (workspace !== "default") await ensureWorkspace(gateway, workspace);
    const parts = { kubeconfig, provider, release, workspace, kube, gateway, pods: podInformer, resources };
    return new Conformance(parts, installation);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.pods.stop(), this.resources.stop()]);
    await this.gateway[Symbol.asyncDispose]();
    this.kube.close();
  }

  /** A sandbox in the suite's workspace. */
  async create(options: NewSandbox = {}): Promise<TestSandbox> {
    const { name = randomName(), image = "busybox", command, runtimeClass } = options;
    const { environment, driverConfig, resources } = options;
    const spec = {
      template: {
        image: referenceOf(image),
        ...(runtimeClass === undefined ? {} : { runtimeClassName: runtimeClass }),
        ...(driverConfig === undefined ? {} : { driverConfig: { kubernetes: driverConfig } }),
        ...(resources === undefined ? {} : { resources }),
      },
      ...(command === undefined ? {} : { command: [...command] }),
      ...(environment === undefined ? {} : { environment: { ...environment } }),
    };
    return TestSandbox.create(() => this.gateway.client, name, spec, this.workspace);
  }

  /** The sandbox of this name, when the call that made it was answered to nobody. */
  find(name: string): Promise<TestSandbox> {
    return TestSandbox.find(() => this.gateway.client, name, this.workspace);
  }

  /** Pods of a sandbox that are there now, those that are ending too. */
  podsOf(sandbox: Pick<TestSandbox, "id">): Live<Pod>[] {
    return this.pods.list().filter((pod) => pod.metadata.labels?.[labels.sandboxId] === sandbox.id);
  }

  podOf(sandbox: Pick<TestSandbox, "id">, role: "workload" | "supervisor"): Live<Pod> | undefined {
    return this.podsOf(sandbox).find(
      (pod) => pod.metadata.labels?.[labels.boundaryRole] === role && pod.metadata.deletionTimestamp === undefined,
    );
  }

  /** Both Pods, once `fits` holds for the two. */
  async pair(
    sandbox: Pick<TestSandbox, "id" | "name">,
    what = "both Pods of the pair",
    fits: (pair: Pair) => boolean = () => true,
    withinMs = 60_000,
  ): Promise<Pair> {
    return this.pods.until(
      `${what} of ${sandbox.name}`,
      () => {
        const workload = this.podOf(sandbox, "workload");
        const supervisor = this.podOf(sandbox, "supervisor");
        if (workload === undefined || supervisor === undefined) return undefined;
        return fits({ workload, supervisor }) ? { workload, supervisor } : undefined;
      },
      { deadlineMs: withinMs },
    );
  }

  /** Installs the release with other settings than it has. */
  async configure(settings: Settings): Promise<void> {
    await installed(this.kubeconfig, this.release, settings, this.#installation);
    await this.gateway.reconnect();
  }

  /** Ends before the test that waits for it does, so that what the test made is taken away again. */
  kubectl(args: readonly string[], options: RunOptions = {}): Promise<string> {
    return kubectl(this.kubeconfig, args, { timeoutMs: 120_000, ...options });
  }

  kubectlAttempt(args: readonly string[], options: RunOptions = {}): Promise<Outcome> {
    return kubectlAttempt(this.kubeconfig, args, { timeoutMs: 120_000, ...options });
  }

  /** Applies objects and deletes them, and waits until they are gone, when the block ends. */
  async applied(...objects: readonly (KubeObject & object)[]): Promise<AsyncDisposable> {
    const list = JSON.stringify({ apiVersion: "v1", kind: "List", items: objects });
    await this.kubectl(["apply", "-f", "-"], { input: list });
    return { [Symbol.asyncDispose]: () => deleteObjects(this.kubeconfig, objects) };
  }
}

export function randomName(): string {
  return `t-${randomBytes(5).toString("hex")}`;
}

async function ensureWorkspace({ client }: GatewayAccess, name: string): Promise<void> {
  try {
    await client.createWorkspace({ name }, { timeoutMs: 30_000 });
  } catch (error) {
    // Of an earlier file.
    if (!hasCode(error, "already-exists")) throw error;
  }
}

async function installed(
  kubeconfig: string,
  release: Release,
  settings: Settings,
  installation: Installation,
): Promise<void> {
  const place = placeOf(release);
  const all = place ? { ...settings, [tables.driver]: { ...place.settings, ...settings[tables.driver] } } : settings;
  // What a suite asks of the chart may be about certificates; then the hook makes them.
  const own = installation.values ?? (await givenSecrets(kubeconfig, release));
  const values = { ...imageValues(inject("gatewayDigest")), ...own, gatewayConfig: all };
  await install({ kubeconfig, release, presets: ["conformance"], values });
}

/** The driver's tables. */
export const tables = {
  driver: "openshell.drivers.kubernetes",
  runtime: "openshell.drivers.kubernetes.sandbox_runtime",
  replacement: "openshell.drivers.kubernetes.supervisor_replacement",
} as const;

export type { Resource };
