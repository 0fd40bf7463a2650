import type {
  AgentSandbox,
  AgentSandboxVersion,
  KubeObject,
  Live,
  NetworkPolicy,
  Pod,
  PriorityClass,
  RuntimeClass,
  Service,
} from "../kube/index.ts";
import {
  annotations,
  type BoundaryRole,
  bootstrapGate,
  containers,
  isSupervisorPodName,
  labels,
  supervisorPodName,
} from "../manifests/index.ts";
import type { GenerationRecord, ReadRecord } from "./record.ts";

/** What the caches show of one sandbox, at one moment. All decisions are functions of this. */
export interface Observed {
  readonly sandboxId: string;
  readonly api: AgentSandboxVersion | undefined;
  readonly resource: Live<AgentSandbox> | undefined;
  readonly record: ReadRecord | undefined;
  /** Workload Pods of any generation; more than one only while an old one ends. */
  readonly workloads: readonly Live<Pod>[];
  /** Supervisor Pods of any session. */
  readonly supervisors: readonly Live<Pod>[];
  readonly service: Live<Service> | undefined;
  /**
   * UIDs among the above of what left our label selection although nobody was seen deleting it: somebody took its labels away, or it went
   * at once. They are shown as they were last seen.
   */
  readonly departed: ReadonlySet<string>;
  readonly cluster: ClusterFacts;
  readonly now: Date;
}

/** What is the same for all sandboxes. */
export interface ClusterFacts {
  /** Our two policies exist and say what they should. */
  readonly fenceIsUp: boolean;
  /** Policies in the namespace that are not ours. */
  readonly foreignPolicies: readonly Live<NetworkPolicy>[];
  readonly runtimeClass: (name: string) => Live<RuntimeClass> | undefined;
  readonly priorityClass: (name: string) => Live<PriorityClass> | undefined;
  readonly imageRewrites: Readonly<Record<string, string>>;
  readonly toleratedPolicies: readonly string[];
  /** The UID that our own release wrote on a Pod, by its seal; undefined where there is none. */
  readonly sealedPeerOf: (pod: Live<Pod>) => string | undefined;
  /** Pods whose DELETE was accepted and is not seen yet, by UID. */
  readonly isDeleted: (uid: string) => boolean;
  /** Objects that are known to exist no more, by UID. */
  readonly isGone: (uid: string) => boolean;
}

/** The driver's own gate is still on the Pod. */
export function isGated(pod: Pod): boolean {
  return pod.spec?.schedulingGates?.some(({ name }) => name === bootstrapGate) ?? false;
}

/** We opened the gate: the same patch wrote the peer's UID. A gate that is gone without it was taken by somebody else. */
export function isReleased(pod: Live<Pod>, record: GenerationRecord, cluster: ClusterFacts): boolean {
  return !isGated(pod) && releasedWith(pod, record, cluster) !== undefined;
}

/** UID of the peer that a Pod was released with. Where releases were not sealed yet the annotation counts, and the Pod is verified on. */
export function releasedWith(pod: Live<Pod>, record: GenerationRecord, cluster: ClusterFacts): string | undefined {
  const written = record.bindsUids ? undefined : pod.metadata.annotations?.[annotations.peerUid];
  return cluster.sealedPeerOf(pod) ?? written;
}

/** Gates of other controllers. */
export function foreignGates(pod: Pod): string[] {
  return (pod.spec?.schedulingGates ?? []).map(({ name }) => name).filter((name) => name !== bootstrapGate);
}

export function isTerminal(pod: Pod): boolean {
  return pod.status?.phase === "Failed" || pod.status?.phase === "Succeeded";
}

export function isEnding(pod: Live<Pod>, cluster: ClusterFacts): boolean {
  return pod.metadata.deletionTimestamp !== undefined || cluster.isDeleted(pod.metadata.uid);
}

export function isScheduled(pod: Pod): boolean {
  return Boolean(pod.spec?.nodeName);
}

/** The sandbox is deleted, or is being deleted. */
export function isGoing({ resource, cluster }: Pick<Observed, "resource" | "cluster">): boolean {
  if (resource === undefined || resource.metadata.deletionTimestamp !== undefined) return true;
  return cluster.isDeleted(resource.metadata.uid);
}

/** The generation that a Pod was made for: read from its spec, which nobody can change on a living Pod. */
export function generationOf(pod: Pod): string | undefined {
  return environmentOf(pod, "OPENSHELL_GENERATION_ID");
}

/** The sandbox that an object belongs to; a Pod's is in its spec, so that no label can hide it from its sandbox. */
export function sandboxIdOf(object: KubeObject): string | undefined {
  return environmentOf(object, "OPENSHELL_SANDBOX_ID") ?? object.metadata?.labels?.[labels.sandboxId];
}

/** Which of a sandbox's pair a Pod is, by its name: whatever admission made of the rest. */
export function roleOf({ metadata }: Live<Pod>, sandboxId: string): BoundaryRole {
  return isSupervisorPodName(metadata.name, sandboxId) ? "supervisor" : "workload";
}

function environmentOf({ spec }: Pod, wanted: string): string | undefined {
  for (const { env = [] } of [...(spec?.containers ?? []), ...(spec?.initContainers ?? [])]) {
    const found = env.find(({ name }) => name === wanted)?.value;
    if (found !== undefined) return found;
  }
  return undefined;
}

/**
 * Whether a Pod has one of the names that a sandbox's own have. No other Pod is its own, whatever labels, containers and owner were copied
 * onto it: nothing waits for one.
 */
export function hasNameOfPair(pod: Live<Pod>, sandboxId: string, resource: Live<AgentSandbox> | undefined): boolean {
  const { name, ownerReferences = [] } = pod.metadata;
  if (roleOf(pod, sandboxId) === "supervisor") return true;
  // The workload has its CR's name; once the CR is gone the garbage collector ends what it owned.
  if (resource !== undefined) return name === resource.metadata.name;
  return ownerReferences.some((owner) => owner.kind === "Sandbox" && owner.name === name);
}

/** Whether the Pod or Service is the very CR's. */
export function isOwned(object: KubeObject, { resource }: Observed): boolean {
  return object.metadata?.ownerReferences?.some(({ uid }) => uid === resource?.metadata.uid) ?? false;
}

/** The workload Pod of the record's generation that belongs to this very CR. */
export function currentWorkload(observed: Observed, record: GenerationRecord): Live<Pod> | undefined {
  return observed.workloads.find((pod) => generationOf(pod) === record.generation.id && isOwned(pod, observed));
}

/** The supervisor Pod of a session, by the name that only it has. */
export function supervisorOf(
  observed: Observed,
  record: GenerationRecord,
  session: number = record.generation.session,
): Live<Pod> | undefined {
  const name = supervisorPodName(record.sandbox.id, session);
  return observed.supervisors.find(
    (pod) => pod.metadata.name === name && generationOf(pod) === record.generation.id && isOwned(pod, observed),
  );
}

/** The CR asks for a Pod. */
export function isRunning(resource: AgentSandbox): boolean {
  if (resource.spec.operatingMode !== undefined) return resource.spec.operatingMode === "Running";
  return resource.spec.replicas !== 0;
}

/** The controller has seen the suspension of this very spec, and the Pod is gone. */
export function isSuspended(resource: Live<AgentSandbox>): boolean {
  const condition = resource.status?.conditions?.find(({ type }) => type === "Suspended");
  return (
    condition?.status === "True" &&
    (condition.observedGeneration === undefined || condition.observedGeneration === resource.metadata.generation)
  );
}

/** The agent's container, as the kubelet reports it. */
export function agentStatus(pod: Pod) {
  return pod.status?.containerStatuses?.find(({ name }) => name === containers.agent);
}
