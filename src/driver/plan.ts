import type { Action, Plan, PlanMemory } from "./action.ts";
import { planBootstrap, rewriteMissingSecrets } from "./bootstrap.ts";
import { planToRun, pointService, prepare, runAnew } from "./bring-up.ts";
import { changedSince } from "./changed-since.ts";
import { breachWhileRunning, endOfPair, endOfWorkload, isBreach, provisioningTimeout } from "./ends.ts";
import {
  agentStatus,
  currentWorkload,
  generationOf,
  isEnding,
  isGated,
  isGoing,
  isOwned,
  isReleased,
  isRunning,
  isSuspended,
  isTerminal,
  type Observed,
  supervisorOf,
} from "./observed.ts";
import { podInTheWay, withoutNode } from "./placement-order.ts";
import { awaitsLastPhase, troubleOf } from "./pod-trouble.ts";
import { reasonClass } from "./reasons.ts";
import type { Failure, GenerationRecord } from "./record.ts";
import { controllerRefusal, nudge } from "./refusal.ts";
import { isGivenUp, refusedForMs, replacementWindow, replaceSupervisor } from "./replacement.ts";
import { changedLabels, missedObjects, missedPods, paced } from "./restore-labels.ts";
import { unknownWorkload, unsealedViolation } from "./verify-pods.ts";

const silentControllerMs = 10_000;
const nothing: Plan = { actions: [] };

/** What is to be done next for one sandbox. Pure; safe to repeat at any point. */
export function plan(observed: Observed, memory: PlanMemory): Plan {
  if (isGoing(observed)) return nothing;
  if (observed.record?.ok !== true) return planWithoutRecord(observed, memory);
  const { record } = observed.record;
  // Before anything is concluded from what is not shown.
  const missed = missedObjects(observed, record, memory.gatewayId);
  if (missed.length > 0) {
    const { due, leftMs, failure } = paced(missed, memory.restored, observed.now);
    const isWanted = memory.request === undefined && record.intent === "running";
    if (failure === undefined || !isWanted) return { actions: due, ...again(leftMs) };
    return { actions: [...endWith(observed, failed(record, failure)).actions, ...missed] };
  }
  switch (memory.request?.kind) {
    case "stop":
      return record.intent === "stopped" ? planStopped(observed) : endWith(observed, stopped(record));
    case "start":
      return planStart(observed, memory.request.record);
    case undefined:
      return record.intent === "running" ? planRunning(observed, record, memory) : planStopped(observed);
  }
}

function planStopped(observed: Observed): Plan {
  const { resource, record } = observed;
  if (record?.ok !== true || resource === undefined) return nothing;
  const suspend: Action[] = isRunning(resource) ? [{ do: "suspend", record: record.record }] : [];
  return { actions: [...suspend, ...supervisorsToDelete(observed), ...breachedWorkloads(observed)] };
}

/** Without its record nobody can vouch for the Pods of a sandbox: they are ended, unless it may never have been ours. */
function planWithoutRecord(observed: Observed, { request, restored }: PlanMemory): Plan {
  const { resource, record } = observed;
  if (resource === undefined || record?.ok !== false) return nothing;
  if (!record.wasReadable && request?.kind !== "stop") return nothing;
  const missed = missedPods(observed);
  if (missed.length > 0) {
    const { due, leftMs } = paced(missed, restored, observed.now);
    return { actions: due, ...again(leftMs) };
  }
  const suspend: Action[] = isRunning(resource) ? [{ do: "suspend", record: undefined }] : [];
  return { actions: [...suspend, ...supervisorsToDelete(observed), ...breachedWorkloads(observed)] };
}

/** Suspends the CR and deletes the supervisors at once: two writes. */
function endWith(observed: Observed, record: GenerationRecord): Plan {
  return { actions: [{ do: "suspend", record }, ...supervisorsToDelete(observed)] };
}

function supervisorsToDelete({ supervisors, cluster }: Observed): Action[] {
  return supervisors.filter((pod) => !isEnding(pod, cluster)).map((pod) => ({ do: "delete-pod", pod }));
}

/**
 * What must not run on is not left to the Agent Sandbox controller alone, which may be away. It makes no other in its place once the CR is
 * suspended. What is gated runs nothing.
 */
function breachedWorkloads(observed: Observed): Action[] {
  const { resource, record, workloads, cluster } = observed;
  if (resource === undefined || isRunning(resource)) return [];
  if (record?.ok === true && !isBreach(record.record)) return [];
  return workloads
    .filter((pod) => isOwned(pod, observed) && !isGated(pod) && !isEnding(pod, cluster))
    .map((pod) => ({ do: "delete-pod", pod }));
}

/** Those of former sessions that ended where they were, as an eviction by a kubelet leaves them; their Secrets go with them. */
function replacedSupervisors(observed: Observed, record: GenerationRecord): Action[] {
  const { session } = record.generation;
  const kept = [session, session + 1].map((one) => supervisorOf(observed, record, one));
  return observed.supervisors
    .filter((pod) => isTerminal(pod) && !isEnding(pod, observed.cluster) && !kept.includes(pod))
    .map((pod) => ({ do: "delete-pod", pod }));
}

function stopped(record: GenerationRecord): GenerationRecord {
  return {
    ...record,
    intent: "stopped",
    failure: undefined,
    placement: undefined,
    replacedAt: undefined,
    supervisorUid: undefined,
    workloadUid: undefined,
    outdated: undefined,
  };
}

function failed(record: GenerationRecord, failure: Failure): GenerationRecord {
  return { ...stopped(record), intent: "failed", failure };
}

/**
 * A new generation of a stopped sandbox. The old Pod has to be gone first: the controller would rewrite its labels to the new template's
 * and call it ready (measured). The supervisor is made before the CR runs, so that its refusal leaves the sandbox as it was.
 */
function planStart(observed: Observed, record: GenerationRecord): Plan {
  const { resource, workloads } = observed;
  if (resource === undefined) return nothing;
  const formerSupervisors = supervisorsToDelete(observed).filter(
    (action) => action.do === "delete-pod" && generationOf(action.pod) !== record.generation.id,
  );
  const old = [...formerSupervisors, ...breachedWorkloads(observed)];
  if (isRunning(resource) && observed.record?.ok === true) {
    return { actions: [{ do: "suspend", record: stopped(observed.record.record) }, ...old] };
  }
  if (workloads.length > 0 || !isSuspended(resource)) return { actions: old };
  const preparation = prepare(observed, record);
  if (preparation.length > 0) return { actions: [...preparation, ...old] };
  return { actions: [runAnew(observed, record)] };
}

function planRunning(observed: Observed, record: GenerationRecord, memory: PlanMemory): Plan {
  const { resource, cluster } = observed;
  if (resource === undefined) return nothing;
  const fail = (failure: Failure): Plan => endWith(observed, failed(record, failure));
  const supervisor = supervisorOf(observed, record);

  if (!isRunning(resource)) {
    const next = planToRun(observed, record, memory);
    return "failure" in next ? fail(next.failure) : next;
  }

  const workload = currentWorkload(observed, record);
  const over = endOfWorkload(observed, record, workload, supervisor, memory);
  if (over !== undefined) return fail(over);
  const timeout = provisioningTimeout(observed, record, workload);
  if (timeout.failure !== undefined) return fail(timeout.failure);

  const nudging = nudge(observed, record, workload);
  const refused = controllerRefusal(observed, record, workload);
  if (refused.failure !== undefined) return fail(refused.failure);
  if (workload === undefined) {
    const unknown = unknownWorkload(observed, record, memory.gatewayId);
    if (unknown.failure !== undefined) return fail(unknown.failure);
    return {
      actions: [...pointService(observed, record), ...nudging.actions],
      ...again(timeout.leftMs, refused.leftMs, unknown.leftMs, nudging.leftMs, silentControllerMs),
    };
  }
  if (isEnding(workload, cluster)) return { actions: [], ...again(timeout.leftMs) };
  const givenUp = [workload, supervisor].filter((pod) => pod !== undefined && isGivenUp(record, pod.metadata.uid));
  const leaving = givenUp.flatMap((pod) =>
    pod === undefined || isEnding(pod, cluster) ? [] : [{ do: "delete-pod", pod } as const],
  );
  if (leaving.length > 0) return { actions: leaving };

  const changed = changedLabels(observed, record, memory.gatewayId);
  const restoring = paced(changed, memory.restored, observed.now);
  // A workload that runs is watched and mended whatever its supervisor does meanwhile.
  const breach =
    breachWhileRunning(observed, record, workload, supervisor) ??
    changedSince(observed, record, memory, { workload, supervisor }) ??
    unsealedViolation(observed, record, memory.gatewayId, { workload, supervisor }) ??
    restoring.failure;
  // The fence is to hold until they have ended.
  if (breach !== undefined) return { actions: [...fail(breach).actions, ...changed] };
  const leftMs = again(timeout.leftMs, restoring.leftMs, nudging.leftMs, refused.leftMs).againAfterMs;
  const repairs = [
    ...pointService(observed, record),
    ...restoring.due,
    ...nudging.actions,
    ...replacedSupervisors(observed, record),
  ];
  // Its supervisor ends with it, which is not what the sandbox ends of.
  if (awaitsLastPhase(workload)) return { actions: repairs, ...again(leftMs) };

  if (supervisor === undefined || isEnding(supervisor, cluster) || isTerminal(supervisor)) {
    const both = endOfPair(record, workload, supervisor, memory);
    if (both !== undefined) return fail(both);
    const replacement = replaceSupervisor(observed, record, workload, supervisor, memory.refusedReplacement);
    if ("failure" in replacement) return fail(replacement.failure);
    return { actions: [...repairs, ...replacement.actions], ...again(leftMs, replacement.againAfterMs) };
  }
  // It is replaced once its node says that it is over. Until then it is none that a former loss still waits for.
  if (awaitsLastPhase(supervisor)) return { actions: repairs, ...again(leftMs) };
  const window = replacementWindow(observed, record, workload, supervisor, memory.refusedReplacement);
  if (window.failure !== undefined) return fail(window.failure);
  const trouble = troubleOf(supervisor);
  // What a node says once may pass: an agent that waits for its next supervisor ends by nothing but the window.
  if (window.leftMs === undefined && trouble !== undefined && reasonClass(trouble.reason) === "failed") {
    return fail({ condition: "WorkloadReady", reason: trouble.reason, message: `supervisor Pod: ${trouble.message}` });
  }
  const later = again(leftMs, window.leftMs);
  const refusedMs = refusedForMs(memory.refusedReplacement, record, observed.now);
  if (refusedMs > 0) return { actions: repairs, ...again(refusedMs, later.againAfterMs) };

  repairs.push(...rewriteMissingSecrets(observed, record, memory, workload, supervisor));
  if (!isReleased(workload, record, cluster) || !isReleased(supervisor, record, cluster)) {
    const bootstrap = planBootstrap(observed, record, memory, workload, supervisor);
    if ("failure" in bootstrap) return fail(bootstrap.failure);
    return { actions: [...repairs, ...bootstrap.actions], ...later };
  }
  const inTheWay = podInTheWay(record, { workload, supervisor }, observed.now);
  if (inTheWay?.waitMs === 0) return { actions: [{ do: "record", record: withoutNode(record, inTheWay.pod) }] };
  const isRunningNow = agentStatus(workload)?.state?.running !== undefined;
  // The supervisor names the workload that it was released with, which may have given up its node since.
  const isUnknown = record.placement !== undefined && record.workloadUid === undefined;
  const completed: Action[] =
    isRunningNow && (isUnknown || !record.seeded)
      ? [{ do: "record", record: { ...record, seeded: true, workloadUid: workload.metadata.uid } }]
      : [];
  return { actions: [...repairs, ...completed], ...again(inTheWay?.waitMs, later.againAfterMs) };
}

/** The earliest of what the cluster will not wake us for. */
function again(...times: (number | undefined)[]): Pick<Plan, "againAfterMs"> {
  const known = times.filter((time) => time !== undefined);
  return known.length === 0 ? {} : { againAfterMs: Math.min(...known) };
}
