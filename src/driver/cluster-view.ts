import type { Logger } from "../common/log.ts";
import type { KubernetesSettings } from "../config/index.ts";
import {
  type AgentSandbox,
  type AgentSandboxVersion,
  type Informer,
  type Informers,
  type KubeEvent,
  type KubeObject,
  type Live,
  type NetworkPolicy,
  type Pod,
  type PriorityClass,
  pods,
  priorityClasses,
  type RuntimeClass,
  runtimeClasses,
  type Service,
  services,
} from "../kube/index.ts";
import type { BoundaryRole, ManifestObject } from "../manifests/index.ts";
import { same } from "./_json.ts";
import { NamespaceView } from "./namespace-view.ts";
import { type ClusterFacts, hasNameOfPair, isGoing, type Observed, roleOf, sandboxIdOf } from "./observed.ts";
import { WriteOverlay } from "./overlay.ts";
import { expectedPolicies } from "./policies.ts";
import type { ReadRecord } from "./record.ts";
import { RecordProgress } from "./record-progress.ts";
import type { RecordSeal } from "./record-seal.ts";
import type { ReleaseSeal } from "./release-seal.ts";

const bySandbox = "sandbox";
/** Of Sandboxes: kept up with every change, since it is asked for at every look at any of them. */
const byBoundaryPort = "boundary-port";
const sandboxPlural = "sandboxes";

export interface MissingPolicy {
  readonly namespace: string;
  readonly wanted: ManifestObject;
  readonly found: Live<NetworkPolicy> | undefined;
}

export interface ClusterViewOptions {
  readonly informers: Informers;
  readonly settings: KubernetesSettings;
  readonly gatewayId: string;
  readonly seal: RecordSeal;
  readonly releases: ReleaseSeal;
  readonly log: Logger;
  /** A sandbox's objects changed. */
  readonly onSandbox: (sandboxId: string) => void;
  /** Nothing is left of a Pod of a sandbox; told before the sandbox's change. */
  readonly onPodGone: (sandboxId: string, last: Live<Pod>) => void;
  /** A NetworkPolicy or what one should say changed, or a namespace is followed from now on. */
  readonly onPolicies: () => void;
  /** The cluster tells of an object. */
  readonly onEvent: (event: KubeEvent) => void;
  /** A Pod has the labels of a sandbox and is not its own; told once. */
  readonly onForeignPod: (sandboxId: string, pod: Live<Pod>) => void;
  readonly now: () => Date;
}

interface WantedPolicies {
  readonly ports: readonly number[];
  readonly wanted: readonly ManifestObject[];
  /** What was wanted before and opens all of these ports, and another one. */
  readonly wider: readonly Omit<WantedPolicies, "wider">[];
}

/**
 * What the shared watches show, and what our own writes answered in the milliseconds before a watch shows it. One watch for each kind and
 * namespace, for all sandboxes in it; nothing is ever read for one sandbox alone.
 */
export class ClusterView {
  readonly overlay: WriteOverlay;
  readonly #options: ClusterViewOptions;
  readonly #runtimeClasses: Informer<RuntimeClass>;
  readonly #priorityClasses: Informer<PriorityClass>;
  readonly #namespaces = new Map<string, NamespaceView>();
  readonly #following = new Map<string, { readonly synced: Promise<void>; readonly stop: () => Promise<void> }>();
  readonly #listenedTo = new WeakSet<object>();
  #api: AgentSandboxVersion | undefined;
  readonly #records = new WeakMap<object, ReadRecord>();
  readonly #progress = new RecordProgress();
  readonly #complained = new Set<string>();
  /** UIDs of CRs whose record was read. */
  readonly #readable = new Set<string>();
  /** Namespaces of sandboxes, by their ids, from the first look at a CR of ours on. */
  readonly #homes = new Map<string, string>();
  readonly #policiesFor = new Map<string, WantedPolicies>();

  constructor(options: ClusterViewOptions) {
    this.#options = options;
    this.overlay = new WriteOverlay(
      () => options.now().getTime(),
      (plural, namespace = "") => this.#namespaces.get(namespace)?.progressOf(plural),
      (uid) => this.#forgetObject(uid),
    );
    this.#runtimeClasses = options.informers.of(runtimeClasses);
    this.#priorityClasses = options.informers.of(priorityClasses);
  }

  /** Resolves when what belongs to no namespace is known. */
  async synced(): Promise<void> {
    await Promise.all([this.#runtimeClasses.synced, this.#priorityClasses.synced]);
  }

  get api(): AgentSandboxVersion | undefined {
    return this.#api;
  }

  /** Begins to follow the Sandboxes of a served version, in every namespace. */
  async useApi(api: AgentSandboxVersion): Promise<void> {
    if (this.#api === api) return;
    const all = () => [...this.#namespaces.values()];
    const list = (namespace: NamespaceView) =>
      this.#resourcesOf(namespace, api).synced.catch((error: unknown) => {
        // It is not to be followed any more.
        if (this.#namespaces.get(namespace.name) === namespace) throw error;
      });
    // Others may come to be followed meanwhile.
    const listed = new Set<NamespaceView>();
    for (let left = all(); left.length > 0; left = all().filter((each) => !listed.has(each))) {
      await Promise.all(left.map(list));
      for (const each of left) listed.add(each);
    }
    this.#api = api;
    await Promise.all(all().map((namespace) => namespace.adopt(api)));
    this.#options.onPolicies();
    for (const id of this.sandboxIds()) this.#options.onSandbox(id);
  }

  /** Namespaces whose sandboxes are known. */
  namespaces(): string[] {
    return [...this.#namespaces.keys()];
  }

  /** Resolves when the sandboxes of a namespace are known, and rejects when it is no longer to be followed. */
  follow(name: string): Promise<void> {
    const known = this.#following.get(name);
    if (known !== undefined) return known.synced;
    const { informers, gatewayId, onPolicies, onEvent, onSandbox } = this.#options;
    const namespace = new NamespaceView(informers, name, gatewayId);
    this.#listen(pods.plural, namespace.pods, sandboxIdOf, () => true);
    this.#listen(services.plural, namespace.services, sandboxIdOf, () => false);
    namespace.policies.on("changed", () => {
      if (this.#namespaces.get(name) !== namespace) return;
      onPolicies();
      for (const id of this.#idsIn(namespace)) onSandbox(id);
    });
    const list = async () => {
      await namespace.synced();
      for (let api = this.#api; namespace.api !== api; api = this.#api) {
        if (api === undefined) break;
        await this.#resourcesOf(namespace, api).synced;
        await namespace.adopt(api);
      }
      // It may have gone meanwhile.
      if (this.#following.get(name) !== following) return;
      for (const change of ["added", "modified"] as const) namespace.events.on(change, onEvent);
      this.#namespaces.set(name, namespace);
      onPolicies();
      for (const id of this.#idsIn(namespace)) onSandbox(id);
    };
    const synced = list();
    synced.catch(() => undefined);
    const following = { synced, stop: () => namespace.stop() };
    this.#following.set(name, following);
    return synced;
  }

  /** Its namespace is gone, or not ours any more. */
  async unfollow(name: string): Promise<void> {
    const namespace = this.#namespaces.get(name);
    const shown = namespace === undefined ? [] : this.#idsIn(namespace);
    for (const { metadata } of namespace?.sandboxes?.list() ?? []) this.#forgetObject(metadata.uid);
    const followed = this.#following.get(name);
    this.#namespaces.delete(name);
    this.#following.delete(name);
    this.#policiesFor.delete(name);
    await followed?.stop();
    for (const id of new Set([...shown, ...this.overlay.forgetNamespace(name)])) this.#options.onSandbox(id);
  }

  #resourcesOf(namespace: NamespaceView, api: AgentSandboxVersion): Informer<AgentSandbox> {
    const resources = namespace.sandboxesIn(api);
    if (this.#listenedTo.has(resources)) return resources;
    const isOurs = (resource: Live<AgentSandbox>) => this.#recordOf(resource).ok;
    this.#listen(sandboxPlural, resources, this.#sandboxIdOfResource, isOurs);
    resources.addIndex(byBoundaryPort, (resource) => {
      const record = this.#recordOf(resource);
      return record.ok ? [String(record.record.settings.sandbox_runtime.boundary_port)] : [];
    });
    let ports: string | undefined;
    resources.on("changed", () => {
      const before = ports;
      ports = portsOf(resources.valuesOf(byBoundaryPort)).join();
      if (ports !== before) this.#options.onPolicies();
    });
    return resources;
  }

  /** Sandboxes that the watches of a namespace show. */
  sandboxIdsIn(name: string): string[] {
    const namespace = this.#namespaces.get(name);
    return namespace === undefined ? [] : [...new Set(this.#idsIn(namespace))];
  }

  /** Every sandbox of which anything is left. */
  sandboxIds(): string[] {
    const watched = [...this.#namespaces.values()].flatMap((namespace) => this.#idsIn(namespace));
    return [...new Set([...watched, ...this.overlay.sandboxIds()])];
  }

  #idsIn({ pods: ofPods, sandboxes }: NamespaceView): string[] {
    const ids = [...(sandboxes?.list() ?? []).map(this.#sandboxIdOfResource), ...ofPods.list().map(sandboxIdOf)];
    return ids.filter((id) => id !== undefined);
  }

  observe(sandboxId: string): Observed {
    const { overlay } = this;
    const all = [...this.#namespaces.values()];
    const shown = all.flatMap(({ sandboxes }) => sandboxes?.by(bySandbox, sandboxId) ?? []);
    const lostResource = overlay.departed<AgentSandbox>(sandboxId, sandboxPlural);
    const resources = [...overlay.merge(sandboxId, sandboxPlural, shown), ...lostResource];
    const shownPods = all.flatMap((namespace) => namespace.pods.by(bySandbox, sandboxId));
    const everyPod = overlay.merge(sandboxId, pods.plural, shownPods);
    const home = this.#homeOf(sandboxId, resources, everyPod);
    const isAtHome = ({ metadata }: Live<KubeObject>) => metadata.namespace === home;
    const resource = resources.find((each) => isAtHome(each) && this.#recordOf(each).ok) ?? resources.find(isAtHome);
    const strangers = [...resources.filter((each) => each !== resource), ...everyPod.filter((pod) => !isAtHome(pod))];
    for (const each of strangers) this.#ignore(sandboxId, each);
    const cluster = this.facts(resource?.metadata.namespace);
    // With its CR a Pod goes whatever its labels say: its owner is gone.
    const lostPods = isGoing({ resource, cluster }) ? [] : overlay.departed<Pod>(sandboxId, pods.plural);
    const [ofSandbox, foreign] = partition([...everyPod, ...lostPods].filter(isAtHome), (pod) =>
      hasNameOfPair(pod, sandboxId, resource),
    );
    for (const pod of foreign) this.#tellForeign(sandboxId, pod);
    const shownServices = all.flatMap((namespace) => namespace.services.by(bySandbox, sandboxId));
    const service = overlay.merge(sandboxId, services.plural, shownServices).find(isAtHome);
    const role = (wanted: BoundaryRole) => ofSandbox.filter((pod) => roleOf(pod, sandboxId) === wanted);
    return {
      sandboxId,
      api: this.api,
      resource,
      record: resource && this.#progress.judge(resource, this.#recordOf(resource)),
      workloads: role("workload"),
      supervisors: role("supervisor"),
      service,
      departed: new Set([...lostResource, ...lostPods].map(({ metadata }) => metadata.uid)),
      cluster,
      now: this.#options.now(),
    };
  }

  /**
   * Whoever may make objects in one namespace can give them the id of a sandbox of another: a sandbox lives where the CR with the sealed
   * record is, or last was; without any, where the oldest object is.
   */
  #homeOf(
    sandboxId: string,
    resources: readonly Live<AgentSandbox>[],
    itsPods: readonly Live<Pod>[],
  ): string | undefined {
    const known = this.#homes.get(sandboxId);
    const ours = resources.filter((resource) => this.#recordOf(resource).ok).map(({ metadata }) => metadata.namespace);
    const home = ours.includes(known) ? known : ours[0];
    if (home !== undefined) this.#homes.set(sandboxId, home);
    return home ?? known ?? [...byAge(resources), ...byAge(itsPods)][0]?.metadata.namespace;
  }

  #ignore(sandboxId: string, { metadata: { namespace, name, uid } }: Live<KubeObject>): void {
    if (this.#complained.has(`${uid} ignored`)) return;
    this.#complained.add(`${uid} ignored`);
    this.#options.log.warn(
      { sandbox: sandboxId, namespace, name },
      "ignoring an object with the id of another sandbox",
    );
  }

  #tellForeign(sandboxId: string, pod: Live<Pod>): void {
    const { uid } = pod.metadata;
    if (this.#complained.has(`${uid} foreign`)) return;
    this.#complained.add(`${uid} foreign`);
    this.#options.onForeignPod(sandboxId, pod);
  }

  /** @param name the namespace; only the classes are known where none is given */
  facts(name?: string): ClusterFacts {
    const { settings } = this.#options;
    const namespace = name === undefined ? undefined : this.#namespaces.get(name);
    const ours =
      namespace === undefined ? [] : this.#wantedPolicies(namespace).wanted.map(({ metadata }) => metadata.name);
    return {
      fenceIsUp: namespace !== undefined && this.#fenceHolds(namespace),
      foreignPolicies: namespace?.policies.list().filter(({ metadata }) => !ours.includes(metadata.name)) ?? [],
      runtimeClass: (className) => this.#runtimeClasses.get(undefined, className),
      priorityClass: (className) =>
        className === ""
          ? this.#priorityClasses.list().find(({ globalDefault }) => globalDefault)
          : this.#priorityClasses.get(undefined, className),
      imageRewrites: settings.admission.allowed_image_rewrites,
      toleratedPolicies: settings.sandbox_runtime.tolerated_network_policies,
      sealedPeerOf: (pod) => this.#options.releases.peerOf(pod),
      isDeleted: (uid) => this.overlay.isDeleted(uid),
      isGone: (uid) => this.overlay.isGone(uid),
    };
  }

  /** Policies of ours that are absent or say something else, with what is there. */
  missingPolicies(): MissingPolicy[] {
    return [...this.#namespaces.values()].flatMap((namespace) => this.#missingPolicies(namespace));
  }

  #missingPolicies(namespace: NamespaceView): MissingPolicy[] {
    return this.#wantedPolicies(namespace).wanted.flatMap((wanted) => {
      const found = namespace.policies.get(namespace.name, wanted.metadata.name);
      return found !== undefined && same(found.spec, wanted.spec) ? [] : [{ namespace: namespace.name, wanted, found }];
    });
  }

  /** The port of a former setting may still be open: it is closed beside the work, and no sandbox waits for that. */
  #fenceHolds(namespace: NamespaceView): boolean {
    const { wanted, wider } = this.#wantedPolicies(namespace);
    return [wanted, ...wider.map((each) => each.wanted)].some((policies) =>
      policies.every(({ metadata, spec }) => same(namespace.policies.get(namespace.name, metadata.name)?.spec, spec)),
    );
  }

  /** The two policies as they should be: the boundary ports of all generations, today's included. */
  #wantedPolicies({ name, sandboxes }: NamespaceView): WantedPolicies {
    const { settings, gatewayId } = this.#options;
    const ports = portsOf([settings.sandbox_runtime.boundary_port, ...(sandboxes?.valuesOf(byBoundaryPort) ?? [])]);
    const known = this.#policiesFor.get(name);
    if (known?.ports.join() === ports.join()) return known;
    const before = known === undefined ? [] : [known, ...known.wider];
    const now = {
      ports,
      wanted: expectedPolicies(settings, name, gatewayId, ports),
      wider: before.filter(
        (each) => each.ports.length > ports.length && ports.every((one) => each.ports.includes(one)),
      ),
    };
    this.#policiesFor.set(name, now);
    return now;
  }

  /** The sandbox that a cluster event is about. */
  sandboxOfEvent({ involvedObject }: KubeEvent): string | undefined {
    const { kind, name = "", namespace = "" } = involvedObject;
    const view = this.#namespaces.get(namespace);
    if (kind === "Pod") {
      const pod = view?.pods.get(namespace, name);
      return this.#livesIn(namespace, pod && sandboxIdOf(pod));
    }
    if (kind !== "Sandbox" && kind !== "PersistentVolumeClaim") return undefined;
    const resource = view?.sandboxes?.get(namespace, name.replace(/^workspace-/, ""));
    return this.#livesIn(namespace, resource && this.#sandboxIdOfResource(resource));
  }

  /** @returns the id, unless that sandbox is known to live elsewhere */
  #livesIn(namespace: string, sandboxId: string | undefined): string | undefined {
    const home = sandboxId === undefined ? undefined : this.#homes.get(sandboxId);
    return home === undefined || home === namespace ? sandboxId : undefined;
  }

  /** Objects whose Sandbox is gone, for the sweep. */
  orphans(): { readonly pods: Live<Pod>[]; readonly services: Live<Service>[] } {
    if (this.#api === undefined) return { pods: [], services: [] };
    const all = [...this.#namespaces.values()];
    const written = new Set<string | undefined>(this.overlay.sandboxIds());
    const orphansOf = <T extends KubeObject>(namespace: NamespaceView, informer: Informer<T>) => {
      const alive = new Set((namespace.sandboxes?.list() ?? []).map(this.#sandboxIdOfResource));
      return informer.list().filter((object) => !alive.has(sandboxIdOf(object)) && !written.has(sandboxIdOf(object)));
    };
    return {
      pods: all.flatMap((namespace) => orphansOf(namespace, namespace.pods)),
      services: all.flatMap((namespace) => orphansOf(namespace, namespace.services)),
    };
  }

  /** A supervisor Pod by its name. */
  podNamed(namespace: string, name: string): Live<Pod> | undefined {
    return this.#namespaces.get(namespace)?.pods.get(namespace, name);
  }

  #recordOf(resource: Live<AgentSandbox>): ReadRecord {
    const known = this.#records.get(resource);
    if (known !== undefined) return known;
    const { uid, name } = resource.metadata;
    const now = this.#options.seal.read(resource);
    const read = now.ok ? now : { ...now, wasReadable: this.#readable.has(uid) };
    if (now.ok) this.#readable.add(uid);
    this.#records.set(resource, read);
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
    this.overlay.forgetSandbox(sandboxId);
    this.#homes.delete(sandboxId);
  }

  #forgetObject(uid: string): void {
    this.#readable.delete(uid);
    this.#progress.forget(uid);
  }

  /** By its record, so that a label that somebody changed hides it from nobody. */
  readonly #sandboxIdOfResource = (resource: Live<AgentSandbox>): string | undefined => {
    const read = this.#recordOf(resource);
    return read.ok ? read.record.sandbox.id : sandboxIdOf(resource);
  };

  /** @param isMissed whether one that left our selection is looked for, and not simply made again */
  #listen<T extends KubeObject>(
    plural: string,
    informer: Informer<T>,
    idOf: (object: Live<T>) => string | undefined,
    isMissed: (object: Live<T>) => boolean,
  ): Informer<T> {
    if (this.#listenedTo.has(informer)) return informer;
    this.#listenedTo.add(informer);
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
      this.#complained.delete(`${uid} ignored`);
      this.#complained.delete(`${uid} foreign`);
      // A watch tells a label taken away as it tells an end; of an end by us, or of a slow one, we know.
      const wasEnding = deletionTimestamp !== undefined || this.overlay.isDeleted(uid);
      if (id !== undefined && !wasEnding && isMissed(object)) this.overlay.depart(id, plural, object);
      else this.overlay.gone(uid);
      if (id !== undefined && plural === pods.plural) this.#options.onPodGone(id, object as unknown as Live<Pod>);
      wake(object);
    });
    return informer;
  }
}

/** Each once, ascending. */
function portsOf(values: readonly (string | number)[]): number[] {
  return [...new Set(values.map(Number))].sort((a, b) => a - b);
}

function partition<T>(all: readonly T[], isWanted: (each: T) => boolean): readonly [T[], T[]] {
  return [all.filter(isWanted), all.filter((each) => !isWanted(each))];
}

/** Oldest first; nobody but the API server writes that time. */
function byAge<T extends KubeObject>(objects: readonly Live<T>[]): Live<T>[] {
  const ageOf = ({ metadata }: Live<T>) => metadata.creationTimestamp ?? "";
  return [...objects].sort((a, b) => ageOf(a).localeCompare(ageOf(b)));
}
