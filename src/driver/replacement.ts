import type { Live, Pod } from "../kube/index.ts";
import { type Plan, type RefusedReplacement, sessionKey } from "./action.ts";
import { agentStatus, isGated, type Observed, supervisorOf } from "./observed.ts";
import { disruptionOf, troubleOf } from "./pod-trouble.ts";
import type { Reason } from "./reasons.ts";
import type { Failure, GenerationRecord } from "./record.ts";

const hourMs = 3_600_000;
/** Nothing tells us that a quota has room again, or a policy has changed: the cluster is asked once in this time. */
const retryRefusedMs = 5_000;

/**
 * The next session: its Pod first, then the record, so that a session number is never used twice. The operator's
 * `supervisor_replacement`, as it was when the generation began, bounds it. A refusal by quota or admission ends no agent that runs:
 * within the window the cluster is asked again.
 */
export function replaceSupervisor(
  observed: Observed,
  record: GenerationRecord,
  workload: Live<Pod>,
  lost: Live<Pod> | undefined,
  refused?: RefusedReplacement,
): Plan | { readonly failure: Failure } {
  const { now } = observed;
  const { mode, max_per_hour: most } = record.settings.supervisor_replacement;
  const lostUid = lost?.metadata.uid ?? record.supervisorUid;
  const isCounted = lostUid === undefined || !isGivenUp(record, lostUid);
  const recent = (record.replacedAt ?? []).filter((at) => now.getTime() - Date.parse(at) < hourMs);
  const next: GenerationRecord = {
    ...record,
    generation: { ...record.generation, session: record.generation.session + 1 },
    ...(isCounted && { replacedAt: [...recent, now.toISOString()] }),
    outdated: undefined,
  };
  const replacement = supervisorOf(observed, next);
  if (replacement !== undefined) {
    // One that was given up had no workload to serve, or no other than its predecessor's; that may still be moved, and be another Pod then.
    const lostBy = isGated(workload) ? undefined : workload.metadata.uid;
    const workloadUid = isCounted ? lostBy : record.workloadUid;
    return {
      actions: [{ do: "record", record: { ...next, supervisorUid: replacement.metadata.uid, workloadUid } }],
    };
  }
  if (isCounted) {
    const how = (lost && troubleOf(lost)?.message) ?? "its Pod was deleted";
    if (mode === "terminate")
      return { failure: over(`the supervisor was lost and supervisor_replacement.mode is "terminate": ${how}`) };
    if (recent.length >= most) {
      return {
        failure: over(
          `${recent.length + 1} supervisors were lost within an hour, supervisor_replacement.max_per_hour is ${most}; the last: ${how}`,
        ),
      };
    }
    const waitMs = backoffMs(recent.length, lost, now);
    if (waitMs > 0) return { actions: [], againAfterMs: waitMs };
  }
  return afterRefusal(refused, next, now) ?? { actions: [{ do: "create-supervisor", record: next }] };
}

/** While the supervisor of a session may not be asked for again, since the cluster refused it; undefined when it may. */
export function afterRefusal(
  refused: RefusedReplacement | undefined,
  next: GenerationRecord,
  now: Date,
): Plan | { readonly failure: Failure } | undefined {
  if (refused?.of !== sessionKey(next)) return undefined;
  const seconds = next.settings.supervisor_replacement.window_seconds;
  const leftMs = refused.since + seconds * 1000 - now.getTime();
  if (leftMs <= 0) return { failure: windowOver(seconds, refused.failure.message) };
  const waitMs = Math.min(leftMs, refusedForMs(refused, next, now));
  return waitMs > 0 ? { actions: [], againAfterMs: waitMs } : undefined;
}

/** For how long the cluster is not asked again for what it refused of this session; 0 when it may be asked. */
export function refusedForMs(refused: RefusedReplacement | undefined, record: GenerationRecord, now: Date): number {
  return refused?.of === sessionKey(record) ? Math.max(0, refused.at + retryRefusedMs - now.getTime()) : 0;
}

/** A supervisor for a workload that runs already, with the next session of its generation. */
export function isReplacement(
  next: GenerationRecord,
  record: GenerationRecord,
  workload: Live<Pod> | undefined,
): boolean {
  const isNext = next.generation.id === record.generation.id && next.generation.session > record.generation.session;
  return isNext && workload !== undefined && agentStatus(workload)?.started === true;
}

/** What became of a supervisor that had to be replaced, as far as its Pod still says; `ended` is any other end of it. */
export const supervisorLosses = ["deleted", "evicted", "preempted", "node_lost", "out_of_memory", "ended"] as const;

export type SupervisorLoss = (typeof supervisorLosses)[number];

const lossOfReason: Partial<Record<Reason, SupervisorLoss>> = {
  Evicted: "evicted",
  Preempted: "preempted",
  NodeLost: "node_lost",
  OutOfMemory: "out_of_memory",
};

/** @param lost the former supervisor; undefined when nothing is left of it */
export function lossOf(lost: Live<Pod> | undefined): SupervisorLoss {
  const trouble = lost && (disruptionOf(lost) ?? troubleOf(lost));
  if (lost === undefined || trouble === undefined) return "deleted";
  return lossOfReason[trouble.reason] ?? (lost.metadata.deletionTimestamp === undefined ? "ended" : "deleted");
}

/** Its agent waits, frozen, for a supervisor that does not come to run. */
export function replacementWindow(
  { now }: Observed,
  record: GenerationRecord,
  workload: Live<Pod>,
  supervisor: Live<Pod>,
  refused?: RefusedReplacement,
): { readonly failure?: Failure; readonly leftMs?: number } {
  const lostAt = record.replacedAt?.at(-1);
  const isUp = supervisor.status?.containerStatuses?.some(({ state }) => state?.running !== undefined) === true;
  if (lostAt === undefined || isUp || agentStatus(workload)?.started !== true) return {};
  const seconds = record.settings.supervisor_replacement.window_seconds;
  const leftMs = Date.parse(lostAt) + seconds * 1000 - now.getTime();
  if (leftMs > 0) return { leftMs };
  const condition = supervisor.status?.conditions?.find(
    ({ type, status }) => type === "PodScheduled" && status !== "True",
  );
  const refusal = refused?.of === sessionKey(record) ? refused.failure.message : undefined;
  const why = refusal ?? troubleOf(supervisor)?.message ?? condition?.message;
  return { failure: windowOver(seconds, why) };
}

function windowOver(seconds: number, why: string | undefined): Failure {
  const what = `no new supervisor ran within supervisor_replacement.window_seconds (${seconds})`;
  return over(why === undefined ? what : `${what}: ${why}`);
}

/** We delete it ourselves: to place the pair in the opposite order, or since another build of the gateway made it. */
export function isGivenUp({ placement, outdated }: GenerationRecord, uid: string): boolean {
  return outdated === uid || (placement?.evicted.includes(uid) ?? false);
}

/** The first is replaced at once; later ones only after their predecessor has had time to live. */
function backoffMs(before: number, lost: Live<Pod> | undefined, now: Date): number {
  const created = lost?.metadata.creationTimestamp;
  if (before === 0 || created === undefined) return 0;
  return Date.parse(created) + Math.min(60_000, 1_000 * 2 ** (before + 1)) - now.getTime();
}

function over(message: string): Failure {
  return { condition: "WorkloadReady", reason: "SupervisorLost", message };
}
