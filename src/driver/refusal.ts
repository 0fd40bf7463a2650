import { realClock, retry } from "../common/async.ts";
import { cut, longestText } from "../common/cut.ts";
import { OpenShellError } from "../common/errors.ts";
import { kubeStatusOf, type Pod, type Refusal, refusalOf } from "../kube/index.ts";
import { annotations } from "../manifests/index.ts";
import type { Action } from "./action.ts";
import { isScheduled, type Observed, supervisorOf } from "./observed.ts";
import type { Reason } from "./reasons.ts";
import type { Failure, GenerationRecord } from "./record.ts";

const reasonsOfRefusals: Readonly<Record<string, Reason>> = {
  quota: "QuotaExceeded",
  "limit-range": "LimitRangeRefused",
  "pod-security": "PodSecurityRefused",
  "runtime-class": "RuntimeClassNotFound",
  "priority-class": "PriorityClassNotFound",
  "service-account": "ServiceAccountNotFound",
  "admission-policy": "AdmissionRefused",
  webhook: "AdmissionRefused",
  "webhook-unreachable": "AdmissionRefused",
  "namespace-terminating": "NamespaceTerminating",
  permission: "PermissionDenied",
  invalid: "InvalidPod",
};

/** A refusal's text, as a failure; undefined when it is none, or one that passes by itself (a former Pod of the same name is still ending). */
export function refusalFailure(what: string, text: string): Failure | undefined {
  const refusal = refusalOf(text);
  const reason = refusal === undefined ? undefined : reasonOf(refusal);
  return refusal === undefined || reason === undefined ? undefined : refused(what, reason, refusal.message);
}

/** No request of ours is above its own limit, so one that the API server finds above one is above a LimitRange's default. */
function reasonOf({ kind, message }: Refusal): Reason | undefined {
  const isAboveDefault = kind === "invalid" && /must be less than or equal to \S+ limit of/.test(message);
  return isAboveDefault ? "LimitRangeRefused" : reasonsOfRefusals[kind];
}

/** The cluster refused a write, which it may accept another time; any other failure is of what became of an object. */
export function isRefusal({ reason }: Failure): boolean {
  return Object.values(reasonsOfRefusals).includes(reason);
}

/** What the executor itself finds wrong with an answer. */
const ownReasons = ["NameTaken", "SecretNameTaken", "AdmissionViolation"] as const satisfies readonly Reason[];

/**
 * What may be over in a moment: a webhook's Pods that are being replaced, and an API server that has just begun and does not know the
 * rights in the cluster yet. It counts when it lasts.
 */
const isMomentary = (text: string): boolean => /^(webhook-unreachable|permission)$/.test(refusalOf(text)?.kind ?? "");

/**
 * What is momentary counts after a few seconds, in which callers are to hear of it: ours after four tries, 3.3 s at the latest, or with the
 * first that fails more than two seconds after the first began, since a webhook may take its time to fail; the controller's after four seconds.
 */
const momentary = { tries: { attempts: 4, initialMs: 250, factor: 3 }, lastTryBeforeMs: 2_000, controllerMs: 4_000 };
/** The controller's own tries are closer to each other in the first of these. */
const nudgeEveryMs = 30_000;

/** Repeats a write as long as its refusal may be over in a moment. */
export async function insisting<T>(write: () => Promise<T>, clock = realClock): Promise<T> {
  const begin = clock.now();
  const retryable = (error: unknown) =>
    isMomentary(kubeStatusOf(error)?.message ?? "") && clock.now() - begin < momentary.lastTryBeforeMs;
  return await retry(write, { ...momentary.tries, retryable, pause: clock.sleep });
}

/** What a write of ours was refused with, as a failure; undefined when the error may pass. */
export function writeFailure(what: string, error: unknown): Failure | undefined {
  if (error instanceof OpenShellError && ownReasons.some((reason) => reason === error.details.reason)) {
    const reason = error.details.reason as (typeof ownReasons)[number];
    return { condition: "PodsAdmitted", reason, message: `${what}: ${error.message}` };
  }
  const status = kubeStatusOf(error);
  if (status === undefined) return undefined;
  const known = refusalFailure(what, status.message);
  if (known !== undefined) return known;
  if (status.httpCode === 403) return refused(what, "AdmissionRefused", status.message);
  if (status.httpCode === 422) return refused(what, "InvalidPod", status.message);
  return undefined;
}

function errorCondition({ resource }: Observed) {
  const ready = resource?.status?.conditions?.find(({ type }) => type === "Ready");
  const isCurrent =
    ready?.observedGeneration === undefined || ready.observedGeneration === resource?.metadata.generation;
  return ready?.reason === "ReconcilerError" && isCurrent ? ready : undefined;
}

/** The controller says on the CR what the API server answered when it made the Pod. */
export function controllerError(observed: Observed): string | undefined {
  return errorCondition(observed)?.message;
}

/**
 * A refusal of the workload Pod or its volume that will not pass by itself, or how long it may still do so: the controller tries again, too. It
 * makes the Pod although it was refused the claim (measured), and the Pod then waits for a volume that nobody makes.
 */
export function controllerRefusal(
  observed: Observed,
  record: GenerationRecord,
  workload: Pod | undefined,
): { readonly failure?: Failure; readonly leftMs?: number } {
  const { message = "", lastTransitionTime = "" } = errorCondition(observed) ?? {};
  const isOfClaim = /\bpersistentvolumeclaims\b/.test(message);
  if (workload !== undefined && (!isOfClaim || isScheduled(workload))) return {};
  const failure = refusalFailure(isOfClaim ? "the workspace volume's claim" : "the workload Pod", message);
  if (failure === undefined) return {};
  // A quota may not have counted the end of the former Pod yet, where one is made anew that nobody asked for; its supervisor is made right before.
  const isAnew = failure.reason === "QuotaExceeded" && record.generation.session > record.firstSession;
  const made = isAnew ? supervisorOf(observed, record)?.metadata.creationTimestamp : undefined;
  const times = [record.startedAt, lastTransitionTime, made ?? ""].map(timeOf(observed, momentary.controllerMs));
  const since = Math.max(...times);
  const leftMs = isMomentary(message) || isAnew ? since + momentary.controllerMs - observed.now.getTime() : 0;
  return leftMs > 0 ? { leftMs } : { failure };
}

/**
 * Nobody tells the controller that the cause of its error is gone (a webhook that was away, a claim that a former Sandbox left), and each of
 * its tries comes later than the one before, after a quarter of an hour at last (measured). Any write of the CR lets it try again.
 */
export function nudge(
  observed: Observed,
  { startedAt }: GenerationRecord,
  workload: Pod | undefined,
): { readonly actions: readonly Action[]; readonly leftMs?: number } {
  if (controllerError(observed) === undefined || (workload && isScheduled(workload))) return { actions: [] };
  const last = observed.resource?.metadata.annotations?.[annotations.nudge] ?? "";
  const since = Math.max(...[startedAt, last].map(timeOf(observed, nudgeEveryMs)));
  const leftMs = since + nudgeEveryMs - observed.now.getTime();
  return leftMs > 0 ? { actions: [], leftMs } : { actions: [{ do: "nudge" }] };
}

/** A time that others write, by clocks that may be wrong. One further ahead than what is waited for says nothing: it would keep us waiting. */
function timeOf({ now }: Observed, waitMs: number): (text: string) => number {
  return (text) => {
    const time = Date.parse(text) || 0;
    return time - now.getTime() > waitMs ? 0 : time;
  };
}

function refused(what: string, reason: Reason, message: string): Failure {
  return { condition: "PodsAdmitted", reason, message: `the cluster refused ${what}: ${cut(message, longestText)}` };
}
