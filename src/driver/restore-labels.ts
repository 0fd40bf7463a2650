import type { KubeObject, Live, Pod } from "../kube/index.ts";
import { labels, labelsOf, supervisorPodName } from "../manifests/index.ts";
import type { Action, PlanMemory } from "./action.ts";
import { generationOf, isEnding, isReleased, isRunning, type Observed } from "./observed.ts";
import { type Failure, type GenerationRecord, pairOf } from "./record.ts";

type Kind = "sandbox" | "workloadPod" | "supervisorPod";
type Restore = Extract<Action, { do: "restore-labels" }>;

/**
 * What may live on under other labels than we watch for: who takes the gateway's label from a Pod takes it out of the fence, too (measured:
 * open in 4 s). Its labels are put back unseen; what is answered tells whether it was there.
 */
export function missedObjects(observed: Observed, record: GenerationRecord, gatewayId: string): Restore[] {
  const { resource, workloads, supervisors, departed, cluster } = observed;
  if (resource === undefined) return [];
  const { metadata } = resource;
  if (departed.has(metadata.uid)) return [restore("sandbox", metadata, expected("sandbox", record, gatewayId))];
  const left = (
    [
      ["workloadPod", workloads],
      ["supervisorPod", supervisors],
    ] as const
  ).flatMap(([kind, pods]) =>
    pods
      .filter((pod) => departed.has(pod.metadata.uid))
      .map((pod) => restore(kind, pod.metadata, expected(kind, record, gatewayId, pod))),
  );
  if (left.length > 0 || record.intent !== "running" || !isRunning(resource)) return left;
  // Of a former process's time only the record tells.
  const { sandbox, generation } = record;
  const shown = new Set([...workloads, ...supervisors].map((pod) => pod.metadata.uid));
  const recorded = [
    ["workloadPod", record.workloadUid, metadata.name],
    ["supervisorPod", record.supervisorUid, supervisorPodName(sandbox.id, generation.session)],
  ] as const;
  return recorded.flatMap(([kind, uid, name]) => {
    if (uid === undefined || shown.has(uid) || cluster.isGone(uid) || cluster.isDeleted(uid)) return [];
    return [restore(kind, { ...metadata, name, uid }, expected(kind, record, gatewayId))];
  });
}

/** The same without a record that says what the labels of a Pod were: those that it was last seen with. */
export function missedPods({ workloads, supervisors, departed }: Observed): Restore[] {
  return [...workloads, ...supervisors]
    .filter(({ metadata }) => departed.has(metadata.uid))
    .map(({ metadata }) => restore("workloadPod", metadata, ours(metadata.labels ?? {})));
}

/** Labels that somebody changed after we had verified them. Those of a Pod that is still gated are a matter of its admission. */
export function changedLabels(observed: Observed, record: GenerationRecord, gatewayId: string): Restore[] {
  const { resource, cluster } = observed;
  if (resource === undefined) return [];
  const isVerified = (pod: Live<Pod>) => isReleased(pod, record, cluster) && generationOf(pod) === record.generation.id;
  const verified = (pods: readonly Live<Pod>[]) => pods.filter((pod) => isVerified(pod) && !isEnding(pod, cluster));
  const all: (readonly [Kind, Live<KubeObject>])[] = [
    ["sandbox", resource],
    ...verified(observed.workloads).map((pod) => ["workloadPod", pod] as const),
    ...verified(observed.supervisors).map((pod) => ["supervisorPod", pod] as const),
  ];
  return all.flatMap(([kind, { metadata }]) => {
    const wanted = Object.entries(expected(kind, record, gatewayId));
    const wrong = wanted.filter(([key, value]) => metadata.labels?.[key] !== value);
    return wrong.length === 0 ? [] : [restore(kind, metadata, Object.fromEntries(wrong))];
  });
}

/** Of one object within a minute; whoever changes its labels once more does not leave them, and the generation ends. */
export const mostRestorations = 8;
const restorationsCountMs = 60_000;
const longestPauseMs = 1_000;

/**
 * Those that are due. Who changes labels again, such as the Agent Sandbox controller after somebody changed its template, is answered later
 * and later, so that the API server does not bear the quarrel: for 5 s in all, in which the fence may be open.
 */
export function paced(
  wanted: readonly Restore[],
  restored: PlanMemory["restored"],
  now: Date,
): { readonly due: readonly Restore[]; readonly leftMs?: number; readonly failure?: Failure } {
  const all = wanted.map((action) => {
    const times = (restored?.get(action.metadata.uid) ?? []).filter((at) => now.getTime() - at < restorationsCountMs);
    const pauseMs = Math.min(longestPauseMs, 50 * 2 ** times.length);
    return { action, times, leftMs: (times.at(-1) ?? Number.NEGATIVE_INFINITY) + pauseMs - now.getTime() };
  });
  const waits = all.map(({ leftMs }) => leftMs).filter((ms) => ms > 0);
  const fought = all.find(({ times }) => times.length >= mostRestorations);
  return {
    due: all.filter(({ leftMs }) => leftMs <= 0).map(({ action }) => action),
    ...(waits.length > 0 && { leftMs: Math.min(...waits) }),
    ...(fought && { failure: foughtOver(fought.action) }),
  };
}

function foughtOver({ kind, metadata, labels: wanted }: Restore): Failure {
  return {
    condition: "PodsAdmitted",
    reason: "AdmissionViolation",
    message: `somebody changes ${Object.keys(wanted).join(", ")} of ${kind} ${metadata.name} again and again: put back ${mostRestorations} times within a minute; look for who writes there, or into spec.podTemplate of the Sandbox`,
  };
}

function expected(kind: Kind, record: GenerationRecord, gatewayId: string, pod?: Pod): Record<string, string> {
  const generation = pod && generationOf(pod);
  return {
    ...ours(labelsOf(kind, pairOf(record, gatewayId))),
    ...(generation !== undefined && { [labels.pairId]: generation }),
  };
}

function ours(all: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(all).filter(([key]) => key.startsWith("openshell.ai/")));
}

function restore(kind: Kind, { name, uid, namespace }: Restore["metadata"], wanted: Restore["labels"]): Restore {
  const metadata = { name, uid, ...(namespace !== undefined && { namespace }) };
  return { do: "restore-labels", kind: kind === "sandbox" ? "Sandbox" : "Pod", metadata, labels: wanted };
}
