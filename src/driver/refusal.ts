import { OpenShellError } from "../common/errors.ts";
import { kubeStatusOf, type Refusal, refusalOf } from "../kube/index.ts";
import type { Observed } from "./observed.ts";
import type { Reason } from "./reasons.ts";
import type { Failure } from "./record.ts";

const reasonsOfRefusals: Readonly<Record<string, Reason>> = {
  quota: "QuotaExceeded",
  "limit-range": "LimitRangeRefused",
  "pod-security": "PodSecurityRefused",
  "runtime-class": "RuntimeClassNotFound",
  "priority-class": "PriorityClassNotFound",
  "service-account": "ServiceAccountNotFound",
  "admission-policy": "AdmissionRefused",
  webhook: "AdmissionRefused",
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

/** The controller says on the CR what the API server answered when it made the Pod. */
export function controllerError({ resource }: Observed): string | undefined {
  const ready = resource?.status?.conditions?.find(({ type }) => type === "Ready");
  const isCurrent =
    ready?.observedGeneration === undefined || ready.observedGeneration === resource?.metadata.generation;
  return ready?.reason === "ReconcilerError" && isCurrent ? ready.message : undefined;
}

/** A refusal of the workload Pod that will not pass by itself. */
export function controllerRefusal(observed: Observed): Failure | undefined {
  const text = controllerError(observed);
  return text === undefined ? undefined : refusalFailure("the workload Pod", text);
}

function refused(what: string, reason: Reason, message: string): Failure {
  return { condition: "PodsAdmitted", reason, message: `the cluster refused ${what}: ${message}` };
}
