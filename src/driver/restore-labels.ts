import type { KubeObject, Live, Pod } from "../kube/index.ts";
import { labels, labelsOf, supervisorPodName } from "../manifests/index.ts";
import type { Action } from "./action.ts";
import { generationOf, isEnding, isReleased, isRunning, type Observed } from "./observed.ts";
import { type GenerationRecord, pairOf } from "./record.ts";

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
