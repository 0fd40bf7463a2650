import { type Action, sessionKey } from "./action.ts";
import { agentStatus, currentWorkload, isRunning, type Observed } from "./observed.ts";
import type { GenerationRecord } from "./record.ts";
import { isReplacement } from "./replacement.ts";

/** The record whose supervisor was lost beside a workload that runs, and is replaced by the action; undefined for any other action. */
export function lostBefore(action: Action, observed: Observed): GenerationRecord | undefined {
  const former = replacedRecord(action, observed);
  const isCounted = former !== undefined && action.do === "create-supervisor" && former.outdated === undefined;
  return isCounted ? former : undefined;
}

/**
 * The session whose supervisor may wait for the cluster to take it, when the action makes that or what it needs: of a workload that runs, or
 * of a pair that is made anew, for which nobody asked.
 */
export function waitingSession(action: Action, observed: Observed): string | undefined {
  if (action.do === "create-supervisor") {
    const isWaiting = replacedRecord(action, observed) !== undefined || isMadeAnew(action.record, observed);
    return isWaiting ? sessionKey(action.record) : undefined;
  }
  if ((action.do !== "write-secret" && action.do !== "release") || action.role !== "supervisor") return undefined;
  // Before its first supervisor a workload may run, and has no agent yet.
  if (action.record.replacedAt === undefined) return undefined;
  const workload = currentWorkload(observed, action.record);
  return workload !== undefined && agentStatus(workload)?.started === true ? sessionKey(action.record) : undefined;
}

function replacedRecord(action: Action, observed: Observed): GenerationRecord | undefined {
  const record = observed.record?.ok === true ? observed.record.record : undefined;
  if (action.do !== "create-supervisor" || record === undefined) return undefined;
  return isReplacement(action.record, record, currentWorkload(observed, record)) ? record : undefined;
}

function isMadeAnew({ generation }: GenerationRecord, { resource, record }: Observed): boolean {
  if (resource === undefined || record?.ok !== true || record.record.generation.id !== generation.id) return false;
  const { outdated, supervisorUid, resourceUid } = record.record;
  return isRunning(resource) ? outdated !== undefined : supervisorUid === undefined && resourceUid !== undefined;
}
