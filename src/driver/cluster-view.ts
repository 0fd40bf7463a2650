import type { Logger } from "../common/log.ts";
import type { KubernetesSettings } from "../config/index.ts";
import {
  type AgentSandbox,
  type AgentSandboxVersion,
  events,
  type Informer,
  type Informers,
  type KubeEvent,
  type KubeObject,
  type Live,
  type NetworkPolicy,
  networkPolicies,
  type Pod,
  type PriorityClass,
  pods,
  priorityClasses,
  type RuntimeClass,
  runtimeClasses,
  type Service,
  sandboxes,
  services,
} from "../kube/index.ts";
import { type BoundaryRole, labels, type ManifestObject, managedByValue } from "../manifests/index.ts";
import { same } from "./_json.ts";
import type { ClusterFacts, Observed } from "./observed.ts";
import { WriteOverlay } from "./overlay.ts";
import { expectedPolicies } from "./policies.ts";
import { type ReadRecord, readRecord } from "./record.ts";

const bySandbox = "sandbox";
const sandboxIdsOf = (object: KubeObject): string[] => {
  const id = object.metadata?.labels?.[labels.sandboxId];
  return id === undefined ? [] : [id];
};

export interface ClusterViewOptions {
  readonly informers: Informers;
  readonly settings: KubernetesSettings;
  readonly gatewayId: string;
  readonly log: Logger;
  /** A sandbox's objects changed. */
  readonly onSandbox: (sandboxId: string) => void;
  /** A NetworkPolicy of the namespace changed. */
  readonly onPolicies: () => void;
  readonly now: () => Date;
}

/**
 * What the shared watches show, and what our own writes answered in the milliseconds before a watch shows it. One watch for each kind, for
 * all sandboxes; nothing is ever read for one sandbox alone.
 */
export class ClusterView {
  readonly overlay: WriteOverlay;
  readonly #options: ClusterViewOptions;
  readonly #pods: Informer<Pod>;
  readonly #services: Informer<Service>;
  readonly #policies: Informer<NetworkPolicy>;
  readonly #runtimeClasses: Informer<RuntimeClass>;
  readonly #priorityClasses: Informer<PriorityClass>;
  readonly #events: Informer<KubeEvent>;
  #sandboxes: { readonly api: AgentSandboxVersion; readonly informer: Informer<AgentSandbox> } | undefined;
  readonly #records = new WeakMap<object, ReadRecord>();
  readonly #complained = new Set<string>();
  #policiesFor: { readonly key: string | undefined; readonly wanted: ManifestObject[] } = {
    key: undefined,
    wanted: [],
  };

  constructor(options: ClusterViewOptions) {
    this.#options = options;
    this.overlay = new WriteOverlay(() => options.now().getTime());
    const { informers } = options;
    const { namespace } = options.settings;
    const ours = { namespace, labelSelector: `${labels.gatewayId}=${options.gatewayId}` };
    this.#pods = this.#follow(informers.of(pods, ours));
    this.#services = this.#follow(informers.of(services, ours));
    this.#policies = informers.of(networkPolicies, { namespace });
    this.#runtimeClasses = informers.of(runtimeClasses);
    this.#priorityClasses = informers.of(priorityClasses);
    this.#events = informers.of(events, { namespace });
    this.#policies.on("changed", () => {
      options.onPolicies();
      for (const id of this.sandboxIds()) options.onSandbox(id);
    });
  }

  get api(): AgentSandboxVersion | undefined {
    return this.#sandboxes?.api;
  }

  get events(): Informer<KubeEvent> {
    return this.#events;
  }

  /** Begins to follow the Sandboxes of a served version. */
  async useApi(api: AgentSandboxVersion): Promise<void> {
    if (this.#sandboxes?.api === api) return;
    const { informers, settings, gatewayId } = this.#options;
    const scope = { namespace: settings.namespace, labelSelector: `${labels.gatewayId}=${gatewayId}` };
    const informer = this.#follow(informers.of(sandboxes(api), scope));
    // Swapped only when it has listed: until then every Sandbox would look gone.
    await informer.synced;
    const before = this.#sandboxes;
    this.#sandboxes = { api, informer };
    if (before !== undefined) await informers.stop(sandboxes(before.api), scope);
    for (const id of this.sandboxIds()) this.#options.onSandbox(id);
  }

  /** Every sandbox of which anything is left. */
  sandboxIds(): string[] {
    const all: KubeObject[] = [...(this.#sandboxes?.informer.list() ?? []), ...this.#pods.list()];
    return [...new Set([...all.flatMap(sandboxIdsOf), ...this.overlay.sandboxIds()])];
  }

  observe(sandboxId: string): Observed {
    const found = this.overlay.merge(sandboxId, "sandboxes", this.#sandboxes?.informer.by(bySandbox, sandboxId) ?? []);
    const ofSandbox = this.overlay.merge(sandboxId, "pods", this.#pods.by(bySandbox, sandboxId));
    const [service] = this.overlay.merge(sandboxId, "services", this.#services.by(bySandbox, sandboxId));
    const role = (wanted: BoundaryRole) => ofSandbox.filter((pod) => roleOf(pod) === wanted);
    const [resource] = found as Live<AgentSandbox>[];
    const record = resource && this.#recordOf(resource);
    return {
      sandboxId,
      api: this.api,
      resource,
      record,
      workloads: role("workload") as Live<Pod>[],
      supervisors: role("supervisor") as Live<Pod>[],
      service: service as Live<Service> | undefined,
      cluster: this.facts(),
      now: this.#options.now(),
    };
  }

  facts(): ClusterFacts {
    const { settings } = this.#options;
    const ours = this.wantedPolicies().map(({ metadata }) => metadata.name);
    return {
      fenceIsUp: this.missingPolicies().length === 0,
      foreignPolicies: this.#policies.list().filter(({ metadata }) => !ours.includes(metadata.name)),
      runtimeClass: (name) => this.#runtimeClasses.get(undefined, name),
      priorityClass: (name) =>
        name === ""
          ? this.#priorityClasses.list().find(({ globalDefault }) => globalDefault)
          : this.#priorityClasses.get(undefined, name),
      imageRewrites: settings.admission.allowed_image_rewrites,
      toleratedPolicies: settings.sandbox_runtime.tolerated_network_policies,
      isDeleted: (uid) => this.overlay.isDeleted(uid),
    };
  }

  /** The two policies as they should be: the boundary ports of all generations, today's included. */
  wantedPolicies(): ManifestObject[] {
    const ports = (this.#sandboxes?.informer.list() ?? []).flatMap((resource) => {
      const record = this.#recordOf(resource);
      return record.ok ? [record.record.settings.sandbox_runtime.boundary_port] : [];
    });
    const inUse = [...new Set(ports)].sort((a, b) => a - b);
    const key = inUse.join();
    if (this.#policiesFor.key !== key) {
      const { settings, gatewayId } = this.#options;
      this.#policiesFor = { key, wanted: expectedPolicies(settings, gatewayId, inUse) };
    }
    return this.#policiesFor.wanted;
  }

  /** Those that are absent or say something else, with what is there. */
  missingPolicies(): { readonly wanted: ManifestObject; readonly found: Live<NetworkPolicy> | undefined }[] {
    return this.wantedPolicies().flatMap((wanted) => {
      const found = this.#policies.get(this.#options.settings.namespace, wanted.metadata.name);
      return found !== undefined && same(found.spec, wanted.spec) ? [] : [{ wanted, found }];
    });
  }

  /** The sandbox that a cluster event is about. */
  sandboxOfEvent({ involvedObject }: KubeEvent): string | undefined {
    const { kind, name = "" } = involvedObject;
    const { namespace } = this.#options.settings;
    const object =
      kind === "Pod"
        ? this.#pods.get(namespace, name)
        : kind === "Sandbox"
          ? this.#sandboxes?.informer.get(namespace, name)
          : kind === "PersistentVolumeClaim"
            ? this.#sandboxes?.informer.get(namespace, name.replace(/^workspace-/, ""))
            : undefined;
    return object === undefined ? undefined : sandboxIdsOf(object)[0];
  }

  /** Objects whose Sandbox is gone, for the sweep. */
  orphans(): { readonly pods: Live<Pod>[]; readonly services: Live<Service>[] } {
    if (this.#sandboxes === undefined) return { pods: [], services: [] };
    const alive = new Set(this.#sandboxes.informer.list().flatMap(sandboxIdsOf));
    const isOrphan = (object: KubeObject) => sandboxIdsOf(object).every((id) => !alive.has(id));
    return { pods: this.#pods.list().filter(isOrphan), services: this.#services.list().filter(isOrphan) };
  }

  /** A supervisor Pod by its name. */
  podNamed(name: string): Live<Pod> | undefined {
    return this.#pods.get(this.#options.settings.namespace, name);
  }

  #recordOf(resource: Live<AgentSandbox>): ReadRecord {
    const known = this.#records.get(resource);
    if (known !== undefined) return known;
    const read = readRecord(resource);
    this.#records.set(resource, read);
    const { uid, name } = resource.metadata;
    if (!read.ok && !this.#complained.has(uid)) {
      this.#complained.add(uid);
      this.#options.log.warn(
        { sandbox: name, problem: read.problem },
        "skipping a Sandbox whose generation record cannot be read",
      );
    }
    return read;
  }

  #follow<T extends KubeObject>(informer: Informer<T>): Informer<T> {
    informer.addIndex(bySandbox, sandboxIdsOf);
    const wake = (object: Live<T>) => {
      for (const id of sandboxIdsOf(object)) this.#options.onSandbox(id);
    };
    informer.on("added", wake);
    informer.on("modified", (object, previous) => {
      this.overlay.seen(object);
      wake(object);
      // A label that somebody changed must not hide the Pod from its sandbox.
      if (previous !== undefined && sandboxIdsOf(previous)[0] !== sandboxIdsOf(object)[0]) wake(previous);
    });
    informer.on("deleted", (object) => {
      this.#complained.delete(object.metadata.uid);
      this.overlay.gone(object);
      wake(object);
    });
    return informer;
  }
}

/** By the label, else by the owner: a workload Pod belongs to its CR's controller. */
function roleOf(pod: Live<KubeObject>): BoundaryRole | undefined {
  const role = pod.metadata.labels?.[labels.boundaryRole];
  if (role === "workload" || role === "supervisor") return role;
  if (pod.metadata.labels?.[labels.managedBy] !== managedByValue) return undefined;
  return pod.metadata.ownerReferences?.some(({ controller }) => controller) ? "workload" : "supervisor";
}
