import type { Live, Pod } from "../kube/index.ts";
import type { BoundaryRole } from "../manifests/index.ts";
import type { ActedOn, PlanMemory } from "./action.ts";
import { violationText } from "./admission.ts";
import { actsOnNode, comesWithNode } from "./admission-rules.ts";
import { isReleased, type Observed } from "./observed.ts";
import type { Failure, GenerationRecord } from "./record.ts";
import { violationsOf } from "./verify-pods.ts";

/**
 * What of a released Pod somebody may change and its node acts on, by the fields' names in a violation: images, and the annotations that a
 * runtime or a CNI reads when it starts the Pod.
 */
export function actedOn({ metadata, spec }: Live<Pod>): ActedOn {
  const images = (["initContainers", "containers"] as const).flatMap((list) =>
    (spec?.[list] ?? []).map(({ name, image = "" }) => [`spec.${list}[${name}].image`, image] as const),
  );
  const notes = Object.entries(metadata.annotations ?? {})
    .filter(([key]) => actsOnNode(key) && !comesWithNode(key))
    .map(([key, value]) => [`metadata.annotations.${key}`, value] as const);
  return Object.fromEntries([...images, ...notes]);
}

/**
 * Whoever may patch Pods may change an image of one that runs, and its node starts that one in the container's place; or an annotation of one
 * that still waits for its node. What differs from the record since this process saw it first is left alone: an operator may have changed
 * `allowed_image_rewrites` meanwhile.
 */
export function changedSince(
  { cluster }: Observed,
  record: GenerationRecord,
  { gatewayId, seen }: Pick<PlanMemory, "gatewayId" | "seen">,
  pods: Readonly<Record<BoundaryRole, Live<Pod> | undefined>>,
): Failure | undefined {
  for (const role of ["workload", "supervisor"] as const) {
    const pod = pods[role];
    const before = pod && seen?.get(pod.metadata.uid);
    if (pod === undefined || before === undefined || !isReleased(pod, record, cluster)) continue;
    const now = actedOn(pod);
    const isChanged = (field: string) => now[field] !== before[field];
    if (!Object.keys({ ...before, ...now }).some(isChanged)) continue;
    const wrong = violationsOf(role, pod, record, gatewayId, cluster).filter(({ field }) => isChanged(field));
    if (wrong.length === 0) continue;
    return {
      condition: "PodsAdmitted",
      reason: "AdmissionViolation",
      message: violationText(role, wrong, "somebody"),
    };
  }
  return undefined;
}
