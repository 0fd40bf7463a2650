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
import { type BoundaryRole, labels, type ManifestObject } from "../manifests/index.ts";
import { same } from "./_json.ts";
import { type ClusterFacts, isGoing, type Observed, roleOf, sandboxIdOf } from "./observed.ts";
import { WriteOverlay } from "./overlay.ts";
import { expectedPolicies } from "./policies.ts";
import { type ReadRecord, readRecord } from "./record.ts";

const bySandbox = "sandbox";
const sandboxPlural = "sandboxes";

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
    this.#pods = this.#follow(pods.plural, informers.of(pods, ours), sandboxIdOf, () => true);
    this.#services = this.#follow(services.plural, informers.of(services, ours), sandboxIdOf, () => false);
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
    const isOurs = (resource: Live<AgentSandbox>) => this.#recordOf(resource).ok;
    const watch = informers.of(sandboxes(api), scope);
    const informer = this.#follow(sandboxPlural, watch, this.#sandboxIdOfResource, isOurs);
    // Swapped only when it has listed: until then every Sandbox would look gone.
    await informer.synced;
    const before = this.#sandboxes;
    this.#sandboxes = { api, informer };
    if (before !== undefined) await informers.stop(sandboxes(before.api), scope);
    for (const id of this.sandboxIds()) this.#options.onSandbox(id);
  }

  /** Every sandbox of which anything is left. */
  sandboxIds(): string[] {
    const ofPods = this.#pods.list().map(sandboxIdOf);
    const all = [...this.#resourceIds(), ...ofPods, ...this.overlay.sandboxIds()];
    return [...new Set(all.filter((id) => id !== undefined))];
  }

  observe(sandboxId: string): Observed {
    const { overlay } = this;
    const shown = this.#sandboxes?.informer.by(bySandbox, sandboxId) ?? [];
    const lostResource = overlay.departed<AgentSandbox>(sandboxId, sandboxPlural);
    const [resource] = [...overlay.merge(sandboxId, sandboxPlural, shown), ...lostResource];
    const cluster = this.facts();
    // With its CR a Pod goes whatever its labels say: its owner is gone.
    const lostPods = isGoing({ resource, cluster }) ? [] : overlay.departed<Pod>(sandboxId, pods.plural);
    const ofSandbox = [...overlay.merge(sandboxId, pods.plural, this.#pods.by(bySandbox, sandboxId)), ...lostPods];
    const [service] = overlay.merge(sandboxId, services.plural, this.#services.by(bySandbox, sandboxId));
    const role = (wanted: BoundaryRole) => ofSandbox.filter((pod) => roleOf(pod) === wanted);
    return {
      sandboxId,
      api: this.api,
      resource,
      record: resource && this.#recordOf(resource),
      workloads: role("workload"),
      supervisors: role("supervisor"),
      service,
      departed: new Set([...lostResource, ...lostPods].map(({ metadata }) => metadata.uid)),
      cluster,
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
      isGone: (uid) => this.overlay.isGone(uid),
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
    if (kind === "Pod") {
      const pod = this.#pods.get(namespace, name);
      return pod && sandboxIdOf(pod);
    }
    if (kind !== "Sandbox" && kind !== "PersistentVolumeClaim") return undefined;
    const resource = this.#sandboxes?.informer.get(namespace, name.replace(/^workspace-/, ""));
    return resource && this.#sandboxIdOfResource(resource);
  }

  /** Objects whose Sandbox is gone, for the sweep. */
  orphans(): { readonly pods: Live<Pod>[]; readonly services: Live<Service>[] } {
    if (this.#sandboxes === undefined) return { pods: [], services: [] };
    const alive = new Set([...this.#resourceIds(), ...this.overlay.sandboxIds()]);
    const isOrphan = (object: KubeObject) => !alive.has(sandboxIdOf(object));
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

  /** Nothing is left of a sandbox. */
  forget(sandboxId: string): void {
    this.overlay.forgetDeparted(sandboxId);
  }

  #resourceIds(): (string | undefined)[] {
    return (this.#sandboxes?.informer.list() ?? []).map(this.#sandboxIdOfResource);
  }

  /** By its record, so that a label that somebody changed hides it from nobody. */
  readonly #sandboxIdOfResource = (resource: Live<AgentSandbox>): string | undefined => {
    const read = this.#recordOf(resource);
    return read.ok ? read.record.sandbox.id : sandboxIdOf(resource);
  };

  /** @param isMissed whether one that left our selection is looked for, and not simply made again */
  #follow<T extends KubeObject>(
    plural: string,
    informer: Informer<T>,
    idOf: (object: Live<T>) => string | undefined,
    isMissed: (object: Live<T>) => boolean,
  ): Informer<T> {
    informer.addIndex(bySandbox, (object) => [idOf(object) ?? []].flat());
    const wake = (object: Live<T>) => {
      const id = idOf(object);
      if (id !== undefined) this.#options.onSandbox(id);
    };
    for (const change of ["added", "modified"] as const) {
      informer.on(change, (object) => {
        this.overlay.seen(object);
        wake(object);
      });
    }
    informer.on("deleted", (object) => {
      const { uid, deletionTimestamp } = object.metadata;
      const id = idOf(object);
      this.#complained.delete(uid);
      // A watch tells a label taken away as it tells an end; of an end by us, or of a slow one, we know.
      const wasEnding = deletionTimestamp !== undefined || this.overlay.isDeleted(uid);
      if (id !== undefined && !wasEnding && isMissed(object)) this.overlay.depart(id, plural, object);
      else this.overlay.gone(uid);
      wake(object);
    });
    return informer;
  }
}
