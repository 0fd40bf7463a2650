import type { Live, Pod } from "../kube/index.ts";
import type { BoundaryRole } from "../manifests/index.ts";
import { type Action, type PlanMemory, secretKey } from "./action.ts";
import { isGated, isReleased, isScheduled, type Observed } from "./observed.ts";
import { firstPlaced } from "./placement-order.ts";
import type { Failure, GenerationRecord } from "./record.ts";
import { remake } from "./remake.ts";
import { admissionFailure } from "./verify-pods.ts";

/** Between two gated Pods and two released ones: verify, write the Secrets, open the gates in order. */
export function planBootstrap(
  observed: Observed,
  record: GenerationRecord,
  memory: PlanMemory,
  workload: Live<Pod>,
  supervisor: Live<Pod>,
): { readonly actions: readonly Action[] } | { readonly failure: Failure } {
  const first = firstPlaced(record);
  const failure = admissionFailure(observed, record, memory, { workload, supervisor }, first);
  if (failure !== undefined) {
    const anew = remake(observed, record, memory, { workload, supervisor });
    return anew === undefined ? { failure } : { actions: [anew] };
  }
  if (!observed.cluster.fenceIsUp) return { actions: [] };
  const gated = (
    [
      ["workload", workload, supervisor],
      ["supervisor", supervisor, workload],
    ] as const
  ).filter(([, pod]) => isGated(pod));
  // A gate that is closed means that nobody has used the Pod's Secret: it is safe to write it anew.
  const unwritten = gated.filter(([, pod]) => !memory.writtenSecrets.has(secretKey(pod, record)));
  if (unwritten.length > 0) {
    return { actions: unwritten.map(([role, pod]) => ({ do: "write-secret", role, pod, record })) };
  }
  if (record.settings.sandbox_runtime.pod_anti_affinity !== "required") return { actions: gated.map(release(record)) };
  const next = gated.find(([role]) => role === first) ?? gated[0];
  const peerIsPlaced = isScheduled(first === "workload" ? workload : supervisor);
  return { actions: next === undefined || (next[0] !== first && !peerIsPlaced) ? [] : [release(record)(next)] };
}

/** Somebody deleted the Secret of a Pod that is released and whose main container has not started: another one is as good. */
export function rewriteMissingSecrets(
  { cluster }: Observed,
  record: GenerationRecord,
  memory: PlanMemory,
  workload: Live<Pod>,
  supervisor: Live<Pod>,
): readonly Action[] {
  return (
    [
      ["workload", workload],
      ["supervisor", supervisor],
    ] as const
  )
    .filter(
      ([, pod]) =>
        memory.missingSecrets.has(pod.metadata.uid) &&
        isReleased(pod, record, cluster) &&
        pod.status?.phase === "Pending",
    )
    .map(([role, pod]) => ({ do: "write-secret", role, pod, record, ifMissing: true }));
}

function release(record: GenerationRecord) {
  return ([role, pod, peer]: readonly [BoundaryRole, Live<Pod>, Live<Pod>]): Action => ({
    do: "release",
    role,
    pod,
    peerUid: peer.metadata.uid,
    record,
  });
}
