import type { Live, Pod } from "../kube/index.ts";
import type { PlanMemory, RefusedReplacement } from "./action.ts";
import {
  agentStatus,
  currentWorkload,
  foreignGates,
  isEnding,
  isGated,
  isGoing,
  isOwned,
  isRunning,
  isScheduled,
  type Observed,
  supervisorOf,
} from "./observed.ts";
import { awaitsLastPhase, hasSandbox, isOnSilentNode, schedulingTrouble, troubleOf } from "./pod-trouble.ts";
import { type ConditionType, conditionTypes, type Reason, reasonClass } from "./reasons.ts";
import type { GenerationRecord } from "./record.ts";
import { controllerError } from "./refusal.ts";

/** One condition of a sandbox; a time is added where it is reported. */
export interface Condition {
  readonly type: ConditionType;
  readonly status: "True" | "False";
  readonly reason: Reason;
  readonly message: string;
}

const silentAfterMs = 10_000;

/** What the driver says about a sandbox: always the three conditions, in their order. */
export function conditionsOf(
  observed: Observed,
  memory: Pick<PlanMemory, "request" | "refusedReplacement" | "startTroubles"> = { request: undefined },
): Condition[] {
  const { resource, record } = observed;
  const { request, refusedReplacement, startTroubles } = memory;
  if (resource === undefined || isGoing(observed)) {
    return everywhere("Deleting", heldPod(observed) ?? "the sandbox is being deleted");
  }
  if (record?.ok !== true) {
    return withoutRecord(observed);
  }
  if (request?.kind === "start") return starting(observed);
  if (record.record.intent === "stopped" || request?.kind === "stop") {
    const left = [...observed.workloads, ...observed.supervisors];
    return left.length > 0 || isRunning(resource)
      ? everywhere("Stopping", inTheWay(observed) ?? heldPod(observed) ?? "the Pods are being ended")
      : everywhere("Stopped", "stopped; the workspace is kept");
  }
  if (record.record.intent === "failed") {
    const { failure } = record.record;
    return failing(
      failure?.condition ?? "WorkloadReady",
      failure?.reason ?? "WorkloadExited",
      failure?.message ?? "the generation failed",
    );
  }
  // One of a former generation says nothing about this one.
  const isOfThis = refusedReplacement?.of.startsWith(`${record.record.generation.id}/`) === true;
  const refused = isOfThis ? refusedMessage(refusedReplacement) : undefined;
  return running(observed, record.record, refused, startTroubles);
}

/** What is left to do with a sandbox whose record cannot be read. */
export const remedyWithoutRecord = "the sandbox cannot be started any more: delete it and create it anew";

/** What is said of Pods is what is seen of them; the record that would say what they should be is not there. */
function withoutRecord({ resource, record, workloads, supervisors }: Observed): Condition[] {
  const problem = record?.ok === false ? record.problem : "no record";
  const isRunningOn = resource !== undefined && isRunning(resource);
  if (!isRunningOn && workloads.length + supervisors.length === 0) {
    return everywhere("Stopped", `stopped; ${problem}; ${remedyWithoutRecord}`);
  }
  const isLeft = isRunningOn && record?.ok === false && record.wasReadable !== true;
  const pods = isLeft
    ? "its Pods run on and nothing watches over them, until it is stopped or deleted"
    : "its Pods are being ended";
  const message = `${problem}; ${pods}; ${remedyWithoutRecord}`;
  return conditionTypes.map((type) =>
    type === "PodsAdmitted"
      ? waiting(type, "RecordUnreadable", message)
      : waiting(type, "GenerationFailed", `${pods}: RecordUnreadable`),
  );
}

/** A Pod of somebody else's that has the workload's name: no Pod of ours can be made as long as it lives. */
function inTheWay(observed: Observed): string | undefined {
  const pod = observed.workloads.find((each) => !isOwned(each, observed));
  return pod && `Pod ${pod.metadata.name} has the name of the workload and does not belong to this Sandbox; delete it`;
}

/** Queueing controllers hold a Pod until they have counted it out (Kueue): it is not for us to take their finalizer away. */
function heldPod({ workloads, supervisors }: Observed): string | undefined {
  const pod = [...workloads, ...supervisors].find(
    ({ metadata }) => metadata.deletionTimestamp !== undefined && (metadata.finalizers ?? []).length > 0,
  );
  const by = pod?.metadata.finalizers?.join(", ");
  return pod && `Pod ${pod.metadata.name} waits for the owner of finalizer ${by} to remove it`;
}

function starting(observed: Observed): Condition[] {
  const { workloads, resource } = observed;
  const waits = workloads.length > 0;
  const suspended = resource?.status?.conditions?.some(({ type, status }) => type === "Suspended" && status === "True");
  const admitted: Condition =
    waits || !suspended
      ? waiting(
          "PodsAdmitted",
          "WaitingForOldPod",
          inTheWay(observed) ?? heldPod(observed) ?? "the Pod of the former generation is still ending",
        )
      : waiting("PodsAdmitted", "CreatingPods", "the Pods of a new generation are being made");
  return [
    admitted,
    waiting("Scheduled", "WaitingForAdmission", "the Pods are not made yet"),
    waiting("WorkloadReady", "WaitingForScheduling", "the Pods are not made yet"),
  ];
}

function refusedMessage({ failure }: RefusedReplacement): string {
  return `the next supervisor, for which an agent that runs waits frozen, is asked for again within supervisor_replacement.window_seconds: ${failure.message}`;
}

function running(
  observed: Observed,
  record: GenerationRecord,
  refused: string | undefined,
  startTroubles: PlanMemory["startTroubles"],
): Condition[] {
  const workload = currentWorkload(observed, record);
  const supervisor = supervisorOf(observed, record);
  const admitted = admission(observed, record, workload, supervisor);
  const isWanted = supervisor === undefined || isGated(supervisor);
  if (isWanted && refused !== undefined) {
    const message = "the next supervisor is not admitted yet";
    return [
      waiting("PodsAdmitted", "SupervisorRefused", refused),
      waiting("Scheduled", "WaitingForAdmission", message),
      workload === undefined
        ? waiting("WorkloadReady", "WaitingForScheduling", message)
        : readiness(observed, workload, supervisor, { isPlaced: false, startTroubles }),
    ];
  }
  if (admitted.status === "False" || workload === undefined) {
    return [
      admitted,
      waiting("Scheduled", "WaitingForAdmission", "the Pods are not released to the scheduler yet"),
      waiting("WorkloadReady", "WaitingForScheduling", "the Pods are not released to the scheduler yet"),
    ];
  }
  if (record.placement?.evicted?.includes(workload.metadata.uid)) {
    // We took it away ourselves: what it says while it ends is no trouble of the sandbox.
    const message = "the pair is being placed anew, since the supervisor had no node left beside its workload's";
    return [
      admitted,
      waiting("Scheduled", "WaitingForScheduler", message),
      waiting("WorkloadReady", "WaitingForScheduling", message),
    ];
  }
  const scheduled = scheduling(workload, supervisor);
  const isPlaced = scheduled.status === "True";
  return [admitted, scheduled, readiness(observed, workload, supervisor, { isPlaced, startTroubles })];
}

function admission(observed: Observed, record: GenerationRecord, workload?: Pod, supervisor?: Pod): Condition {
  const not = (reason: Reason, message: string) => waiting("PodsAdmitted", reason, message);
  if (workload === undefined) {
    const error = controllerError(observed);
    if (error !== undefined)
      return not("ControllerError", `the Agent Sandbox controller cannot make the Pod yet: ${error}`);
    const age = observed.now.getTime() - Date.parse(record.startedAt);
    const isSilent = observed.resource !== undefined && isRunning(observed.resource) && age > silentAfterMs;
    return isSilent
      ? not("ControllerSilent", "the Agent Sandbox controller has not made the Pod yet; is it running?")
      : not("CreatingPods", "the Pods are being made");
  }
  // Whichever is released first was verified with its peer.
  if (isGated(workload) && (supervisor === undefined || isGated(supervisor))) {
    return observed.cluster.fenceIsUp
      ? not("CreatingPods", "the Pods are being verified")
      : not("CreatingPods", "the namespace's NetworkPolicies are not in place yet");
  }
  return supervisor === undefined
    ? yes("PodsAdmitted", "Admitted", "the workload Pod is what was asked for; its supervisor is being replaced")
    : yes("PodsAdmitted", "Admitted", "both Pods are what was asked for");
}

function scheduling(workload: Pod, supervisor: Pod | undefined): Condition {
  for (const [role, pod] of [
    ["workload", workload],
    ["supervisor", supervisor],
  ] as const) {
    if (pod === undefined || isScheduled(pod)) continue;
    const [gate] = foreignGates(pod);
    if (gate !== undefined)
      return waiting("Scheduled", "WaitingForGate", `gate ${gate} of another controller holds the ${role} Pod`);
    if (isGated(pod)) continue;
    const trouble = schedulingTrouble(role, pod);
    if (trouble !== undefined) return waiting("Scheduled", trouble.reason, trouble.message);
  }
  if (supervisor === undefined)
    return waiting("Scheduled", "WaitingForScheduler", "the supervisor Pod is being replaced");
  if (!isScheduled(supervisor) || !isScheduled(workload)) {
    const role = isScheduled(workload) ? "supervisor" : "workload";
    return waiting("Scheduled", "WaitingForScheduler", `the ${role} Pod is not released to the scheduler yet`);
  }
  const [one, other] = [workload.spec?.nodeName, supervisor.spec?.nodeName];
  return yes("Scheduled", "Scheduled", `workload on node ${one}, supervisor on node ${other}`);
}

function readiness(
  { cluster }: Observed,
  workload: Live<Pod>,
  supervisor: Live<Pod> | undefined,
  known: { readonly isPlaced: boolean; readonly startTroubles: PlanMemory["startTroubles"] },
): Condition {
  const { isPlaced, startTroubles } = known;
  const trouble = troubleOf(workload);
  if (trouble !== undefined) return waiting("WorkloadReady", trouble.reason, trouble.message);
  if (awaitsLastPhase(workload)) {
    const message = `a container ended, and node ${workload.spec?.nodeName} has not said yet whether the node itself ended it`;
    return waiting("WorkloadReady", "ContainersEnded", message);
  }
  if (isOnSilentNode(workload)) {
    return waiting("WorkloadReady", "NodeNotReady", `node ${workload.spec?.nodeName} does not answer`);
  }
  const supervisorTrouble = supervisor?.status?.phase === "Pending" ? troubleOf(supervisor) : undefined;
  if (supervisorTrouble !== undefined) {
    // Beside a workload that runs it may pass; where it does not, the record says what the generation ended of.
    const isWaitedOut = reasonClass(supervisorTrouble.reason) === "failed" && agentStatus(workload)?.started === true;
    const reason = isWaitedOut ? "StartingContainers" : supervisorTrouble.reason;
    return waiting("WorkloadReady", reason, `supervisor Pod: ${supervisorTrouble.message}`);
  }
  const saidOfStart =
    startMessage(workload, startTroubles) ?? startMessage(supervisor, startTroubles, "supervisor Pod: ");
  if (saidOfStart !== undefined) return waiting("WorkloadReady", "StartingContainers", saidOfStart);
  const isUp = agentStatus(workload)?.state?.running !== undefined;
  if (isUp && !isEnding(workload, cluster)) {
    return yes("WorkloadReady", "WorkloadRunning", "the workload container runs");
  }
  return isPlaced || isScheduled(workload)
    ? waiting("WorkloadReady", "StartingContainers", `node ${workload.spec?.nodeName} is starting the containers`)
    : waiting("WorkloadReady", "WaitingForScheduling", "the workload Pod has no node yet");
}

/** What keeps a Pod's node from starting its containers, until it can. */
function startMessage(
  pod: Live<Pod> | undefined,
  troubles: PlanMemory["startTroubles"],
  whose = "",
): string | undefined {
  if (pod === undefined || !isScheduled(pod) || hasSandbox(pod)) return undefined;
  const trouble = troubles?.get(pod.metadata.uid);
  if (trouble === undefined) return undefined;
  return `${whose}node ${pod.spec?.nodeName} cannot start the containers yet: ${trouble.message}`;
}

function everywhere(reason: Reason, message: string): Condition[] {
  return conditionTypes.map((type) => waiting(type, reason, message));
}

function failing(condition: ConditionType, reason: Reason, message: string): Condition[] {
  return conditionTypes.map((type) =>
    type === condition
      ? waiting(type, reason, message)
      : waiting(type, "GenerationFailed", `this generation was ended: ${reason}`),
  );
}

function waiting(type: ConditionType, reason: Reason, message: string): Condition {
  return { type, status: "False", reason, message };
}

function yes(type: ConditionType, reason: Reason, message: string): Condition {
  return { type, status: reasonClass(reason) === "ok" ? "True" : "False", reason, message };
}
