import { parseDuration } from "../config/index.ts";
import type { Live, Pod } from "../kube/index.ts";
import type { PlanMemory } from "./action.ts";
import { agentStatus, isEnding, isGated, isReleased, isScheduled, type Observed, releasedWith } from "./observed.ts";
import { disruptionOf, troubleOf } from "./pod-trouble.ts";
import { reasonClass, reasons } from "./reasons.ts";
import type { Failure, GenerationRecord } from "./record.ts";
import { foreignPolicyFailure } from "./verify-pods.ts";

/** Why the workload is over, if it is. */
export function endOfWorkload(
  { cluster }: Observed,
  record: GenerationRecord,
  workload: Live<Pod> | undefined,
  supervisor: Live<Pod> | undefined,
  { troubled = [], nodeRefusals }: Pick<PlanMemory, "troubled" | "nodeRefusals"> = {},
): Failure | undefined {
  const evicted = record.placement?.evicted ?? [];
  const known = record.workloadUid ?? (supervisor && releasedWith(supervisor, record, cluster));
  const isAnother = known !== undefined && workload?.metadata.uid !== known && !evicted.includes(known);
  const isEvicted = workload !== undefined && evicted.includes(workload.metadata.uid);
  const isDeleted = workload !== undefined && isEnding(workload, cluster) && !isGated(workload) && !isEvicted;
  if (isAnother || isDeleted) {
    // The API server says on the Pod who took it away; a Pod that is gone may have said it before.
    return deleted(isDeleted ? workload : troubled.find(({ metadata }) => metadata.uid === known));
  }
  if (workload === undefined || isEvicted) return undefined;
  const refusal = nodeRefusals?.get(workload.metadata.uid);
  // An event is shown for an hour: what runs by now was not refused for good.
  if (refusal !== undefined && agentStatus(workload)?.started !== true) {
    return {
      condition: "WorkloadReady",
      reason: "NodeRefused",
      message: `node ${workload.spec?.nodeName} ${refusal}`,
    };
  }
  const trouble = troubleOf(workload);
  if (trouble === undefined || reasonClass(trouble.reason) !== "failed") return undefined;
  return { condition: "WorkloadReady", reason: trouble.reason, message: trouble.message };
}

/**
 * Nothing is left of a supervisor, and the workload waits behind its gate: it may have taken the place of one that ran and went together
 * with that supervisor. A record of a seeded sandbox says nothing of its workload before the first loss of a supervisor, and the seal that
 * did is gone. So the generation goes on only where this process saw that no workload ran, or that it was this one.
 */
export function endOfPair(
  record: GenerationRecord,
  workload: Live<Pod>,
  supervisor: Live<Pod> | undefined,
  { lastSupervisor, troubled = [] }: Pick<PlanMemory, "lastSupervisor" | "troubled">,
): Failure | undefined {
  const { supervisorUid, workloadUid, placement, outdated, seeded } = record;
  const isTold = workloadUid !== undefined || placement !== undefined || outdated !== undefined || !seeded;
  if (supervisor !== undefined || supervisorUid === undefined || isTold || !isGated(workload)) return undefined;
  if (lastSupervisor?.uid !== supervisorUid) {
    return deleted(
      undefined,
      "the supervisor Pod is gone, and whether a workload Pod ran and went with it is not known",
    );
  }
  const { peerUid } = lastSupervisor;
  if (peerUid === undefined || peerUid === workload.metadata.uid) return undefined;
  return deleted(troubled.find(({ metadata }) => metadata.uid === peerUid));
}

function deleted(
  last: Live<Pod> | undefined,
  how = "somebody else deleted the workload Pod, or suspended its Sandbox",
): Failure {
  const disruption = last && disruptionOf(last);
  return {
    condition: "WorkloadReady",
    reason: disruption?.reason ?? "WorkloadDeleted",
    message: `${disruption?.message ?? how}; start the sandbox again, its workspace is kept`,
  };
}

/** What must not go on although the Pods were what was asked for when they were released. */
export function breachWhileRunning(
  observed: Observed,
  record: GenerationRecord,
  workload: Live<Pod>,
  supervisor: Live<Pod> | undefined,
): Failure | undefined {
  for (const [role, pod] of [
    ["workload", workload],
    ["supervisor", supervisor],
  ] as const) {
    const [foreign] = pod?.spec?.ephemeralContainers ?? [];
    if (pod === undefined || foreign === undefined || !isReleased(pod, record, observed.cluster)) continue;
    return {
      condition: "PodsAdmitted",
      reason: "ForeignContainer",
      message: `ephemeral container ${foreign.name} (image ${foreign.image ?? "unknown"}) was added to the ${role} Pod; debug a copy of the Pod instead (kubectl debug --copy-to)`,
    };
  }
  if (
    record.settings.sandbox_runtime.pod_anti_affinity === "required" &&
    isScheduled(workload) &&
    workload.spec?.nodeName === supervisor?.spec?.nodeName
  ) {
    return {
      condition: "Scheduled",
      reason: "PlacementViolated",
      message: `workload and supervisor are both on node ${workload.spec?.nodeName} although pod_anti_affinity is required`,
    };
  }
  if (!isReleased(workload, record, observed.cluster)) return undefined;
  return foreignPolicyFailure(observed, workload, record.settings.sandbox_runtime.boundary_port);
}

/** The generation was ended for what its Pods are, or what they can reach. */
export function isBreach({ failure }: GenerationRecord): boolean {
  return failure !== undefined && reasons[failure.reason].isBreach;
}

/** `provisioning_timeout`: when it is over, and how long it still runs. */
export function provisioningTimeout(
  { now }: Observed,
  record: GenerationRecord,
  workload: Live<Pod> | undefined,
): { readonly failure?: Failure; readonly leftMs?: number } {
  const setting = record.settings.provisioning_timeout;
  const limitMs = parseDuration(setting);
  const agent = workload && agentStatus(workload);
  // One that ended did run: its node takes `started` back, and says how it ended a moment later.
  if (limitMs === undefined || agent?.started === true || agent?.state?.terminated !== undefined) return {};
  const leftMs = Date.parse(record.startedAt) + limitMs - now.getTime();
  if (leftMs > 0) return { leftMs };
  return {
    failure: {
      condition: "WorkloadReady",
      reason: "ProvisioningTimeout",
      message: `the sandbox was not running within provisioning_timeout (${setting})`,
    },
  };
}
