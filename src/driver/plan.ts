import { parseDuration } from "../config/index.ts";
import { type Live, type Pod, refusalOf } from "../kube/index.ts";
import { annotations, labels, pairSelector } from "../manifests/index.ts";
import {
  agentStatus,
  currentWorkload,
  isEnding,
  isGated,
  isGoing,
  isReleased,
  isRunning,
  isScheduled,
  isSuspended,
  isTerminal,
  type Observed,
  supervisorOf,
} from "./observed.ts";
import { firstPlaced, podInTheWay } from "./placement-order.ts";
import { troubleOf } from "./pod-trouble.ts";
import { type Reason, reasonClass } from "./reasons.ts";
import { type Failure, type GenerationRecord, pairOf } from "./record.ts";
import { admissionFailure, type Role } from "./verify-pods.ts";

/** One write. The executor knows how; this says what and why. */
export type Action =
  | { readonly do: "create-service"; readonly record: GenerationRecord }
  | { readonly do: "point-service"; readonly record: GenerationRecord }
  | { readonly do: "create-supervisor"; readonly record: GenerationRecord }
  /** The CR begins to run; a new generation's template goes with it in the same patch. */
  | { readonly do: "run"; readonly record: GenerationRecord; readonly newTemplate: boolean }
  | { readonly do: "write-secret"; readonly role: Role; readonly pod: Live<Pod>; readonly record: GenerationRecord }
  | {
      readonly do: "release";
      readonly role: Role;
      readonly pod: Live<Pod>;
      readonly peerUid: string;
      readonly record: GenerationRecord;
    }
  | { readonly do: "record"; readonly record: GenerationRecord }
  /** The CR is suspended and says why in its record. */
  | { readonly do: "suspend"; readonly record: GenerationRecord }
  | { readonly do: "restore-labels"; readonly pod: Live<Pod>; readonly labels: Readonly<Record<string, string>> }
  | { readonly do: "delete-pod"; readonly pod: Live<Pod> };

export interface Plan {
  /** May be done at the same time. Afterwards the plan is made anew. */
  readonly actions: readonly Action[];
  /** Nothing in the cluster will wake us at this time. */
  readonly againAfterMs?: number;
}

/** What a caller asked for and the CR does not say yet. */
export type Request = { readonly kind: "start"; readonly record: GenerationRecord } | { readonly kind: "stop" };

export interface PlanMemory {
  readonly gatewayId: string;
  readonly request: Request | undefined;
  /** Secrets that this process wrote, by `secretKey`. No Secret is ever read. */
  readonly writtenSecrets: ReadonlySet<string>;
}

/** A Secret belongs to one Pod in one session. */
export function secretKey(pod: Live<Pod>, record: GenerationRecord): string {
  return `${pod.metadata.uid}/${record.generation.session}`;
}

/** Supervisors that a generation may use up before it is given up. */
export const maxReplacements = 10;
const silentControllerMs = 10_000;
const nothing: Plan = { actions: [] };

/** What is to be done next for one sandbox. Pure; safe to repeat at any point. */
export function plan(observed: Observed, memory: PlanMemory): Plan {
  if (isGoing(observed)) return nothing;
  if (observed.record?.ok !== true) return nothing;
  const { record } = observed.record;
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
  return { actions: [...suspend, ...supervisorsToDelete(observed)] };
}

/** Suspends the CR and deletes the supervisors at once: two writes. */
function endWith(observed: Observed, record: GenerationRecord): Plan {
  return { actions: [{ do: "suspend", record }, ...supervisorsToDelete(observed)] };
}

function supervisorsToDelete({ supervisors, cluster }: Observed): Action[] {
  return supervisors.filter((pod) => !isEnding(pod, cluster)).map((pod) => ({ do: "delete-pod", pod }));
}

function stopped(record: GenerationRecord): GenerationRecord {
  return {
    ...record,
    intent: "stopped",
    failure: undefined,
    placement: undefined,
    supervisorUid: undefined,
    workloadUid: undefined,
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
  const old = supervisorsToDelete(observed).filter(
    (action) => action.do === "delete-pod" && action.pod.metadata.labels?.[labels.pairId] !== record.generation.id,
  );
  if (isRunning(resource) && observed.record?.ok === true) {
    return { actions: [{ do: "suspend", record: stopped(observed.record.record) }, ...old] };
  }
  if (workloads.length > 0 || !isSuspended(resource)) return { actions: old };
  const preparation = prepare(observed, record);
  if (preparation.length > 0) return { actions: [...preparation, ...old] };
  return { actions: [run(observed, record, true)] };
}

/** The Service and the supervisor Pod, whichever is missing. */
function prepare(observed: Observed, record: GenerationRecord): Action[] {
  const supervisor = supervisorOf(observed, record);
  return [
    ...pointService(observed, record),
    ...(supervisor === undefined ? [{ do: "create-supervisor", record } as const] : []),
  ];
}

function pointService({ service }: Observed, record: GenerationRecord): Action[] {
  if (service === undefined) return [{ do: "create-service", record }];
  const selector = pairSelector("workload", record.generation.id);
  const port = service.spec?.ports?.[0]?.port;
  const isRight =
    Object.entries(selector).every(([key, value]) => service.spec?.selector?.[key] === value) &&
    port === record.settings.sandbox_runtime.boundary_port;
  return isRight ? [] : [{ do: "point-service", record }];
}

function run(observed: Observed, record: GenerationRecord, newTemplate: boolean): Action {
  const supervisorUid = supervisorOf(observed, record)?.metadata.uid;
  return { do: "run", record: { ...record, intent: "running", failure: undefined, supervisorUid }, newTemplate };
}

function planRunning(observed: Observed, record: GenerationRecord, memory: PlanMemory): Plan {
  const { resource, cluster } = observed;
  if (resource === undefined) return nothing;
  const fail = (failure: Failure): Plan => endWith(observed, failed(record, failure));
  const supervisor = supervisorOf(observed, record);

  if (!isRunning(resource)) {
    const preparation = prepare(observed, record);
    if (preparation.length > 0) return { actions: preparation };
    // One that somebody deleted is waited out, and made again.
    return supervisor !== undefined && isEnding(supervisor, cluster)
      ? nothing
      : { actions: [run(observed, record, false)] };
  }

  const workload = currentWorkload(observed, record);
  const over = endOfWorkload(observed, record, workload, supervisor);
  if (over !== undefined) return fail(over);
  const timeout = provisioningTimeout(observed, record, workload);
  if (timeout.failure !== undefined) return fail(timeout.failure);
  const again = timeout.leftMs === undefined ? {} : { againAfterMs: timeout.leftMs };

  if (workload === undefined) {
    const refused = controllerRefusal(observed);
    if (refused !== undefined) return fail(refused);
    return {
      actions: pointService(observed, record),
      againAfterMs: Math.min(timeout.leftMs ?? silentControllerMs, silentControllerMs),
    };
  }
  if (isEnding(workload, cluster)) return { actions: [], ...again };
  const evicted = [workload, supervisor].filter(
    (pod) => pod !== undefined && record.placement?.evicted.includes(pod.metadata.uid),
  );
  const leaving = evicted.flatMap((pod) =>
    pod === undefined || isEnding(pod, cluster) ? [] : [{ do: "delete-pod", pod } as const],
  );
  if (leaving.length > 0) return { actions: leaving };

  if (supervisor === undefined || isEnding(supervisor, cluster) || isTerminal(supervisor)) {
    return replaceSupervisor(observed, record, workload, supervisor, fail);
  }
  const trouble = troubleOf(supervisor);
  if (trouble !== undefined && reasonClass(trouble.reason) === "failed") {
    return fail({ condition: "WorkloadReady", reason: trouble.reason, message: `supervisor Pod: ${trouble.message}` });
  }

  if (!isReleased(workload) || !isReleased(supervisor)) {
    const bootstrap = planBootstrap(observed, record, memory, workload, supervisor);
    return "failure" in bootstrap ? fail(bootstrap.failure) : { actions: bootstrap.actions, ...again };
  }
  if (
    record.settings.sandbox_runtime.pod_anti_affinity === "required" &&
    isScheduled(workload) &&
    workload.spec?.nodeName === supervisor.spec?.nodeName
  ) {
    return fail({
      condition: "Scheduled",
      reason: "PlacementViolated",
      message: `workload and supervisor are both on node ${workload.spec?.nodeName} although pod_anti_affinity is required`,
    });
  }
  const inTheWay = podInTheWay(record, { workload, supervisor }, observed.now);
  if (inTheWay !== undefined) {
    if (inTheWay.waitMs > 0) return { actions: [], againAfterMs: inTheWay.waitMs };
    const placement = { evicted: [...(record.placement?.evicted ?? []), inTheWay.pod.metadata.uid].slice(-20) };
    return { actions: [{ do: "record", record: { ...record, placement } }] };
  }
  const repairs = [...pointService(observed, record), ...restoreLabels(observed, record, workload, supervisor)];
  const isRunningNow = agentStatus(workload)?.state?.running !== undefined;
  const completed: Action[] =
    isRunningNow && !record.seeded
      ? [{ do: "record", record: { ...record, seeded: true, workloadUid: workload.metadata.uid } }]
      : [];
  return { actions: [...repairs, ...completed], ...again };
}

/** Why the workload is over, if it is. */
function endOfWorkload(
  { cluster }: Observed,
  record: GenerationRecord,
  workload: Live<Pod> | undefined,
  supervisor: Live<Pod> | undefined,
): Failure | undefined {
  const evicted = record.placement?.evicted ?? [];
  const known = record.workloadUid ?? supervisor?.metadata.annotations?.[annotations.peerUid];
  const isAnother = known !== undefined && workload?.metadata.uid !== known && !evicted.includes(known);
  const isEvicted = workload !== undefined && evicted.includes(workload.metadata.uid);
  const isDeleted = workload !== undefined && isEnding(workload, cluster) && !isGated(workload) && !isEvicted;
  if (isAnother || isDeleted) {
    return {
      condition: "WorkloadReady",
      reason: "WorkloadDeleted",
      message: "the workload Pod was deleted by somebody else; start the sandbox again, its workspace is kept",
    };
  }
  const trouble = isEvicted ? undefined : workload && troubleOf(workload);
  if (trouble === undefined || reasonClass(trouble.reason) !== "failed") return undefined;
  return { condition: "WorkloadReady", reason: trouble.reason, message: trouble.message };
}

function provisioningTimeout(
  { now }: Observed,
  record: GenerationRecord,
  workload: Live<Pod> | undefined,
): { readonly failure?: Failure; readonly leftMs?: number } {
  const setting = record.settings.provisioning_timeout;
  const limitMs = parseDuration(setting);
  if (limitMs === undefined || (workload && agentStatus(workload)?.started === true)) return {};
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

const refusals: Readonly<Record<string, Reason>> = {
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
  const reason = refusal === undefined ? undefined : refusals[refusal.kind];
  if (refusal === undefined || reason === undefined) return undefined;
  return { condition: "PodsAdmitted", reason, message: `the cluster refused ${what}: ${refusal.message}` };
}

/** The controller says on the CR what the API server answered when it made the Pod. */
export function controllerError({ resource }: Observed): string | undefined {
  const ready = resource?.status?.conditions?.find(({ type }) => type === "Ready");
  const isCurrent =
    ready?.observedGeneration === undefined || ready.observedGeneration === resource?.metadata.generation;
  return ready?.reason === "ReconcilerError" && isCurrent ? ready.message : undefined;
}

function controllerRefusal(observed: Observed): Failure | undefined {
  const text = controllerError(observed);
  return text === undefined ? undefined : refusalFailure("the workload Pod", text);
}

/** The next session: its Pod first, then the record, so that a session number is never used twice. */
function replaceSupervisor(
  observed: Observed,
  record: GenerationRecord,
  workload: Live<Pod>,
  lost: Live<Pod> | undefined,
  fail: (failure: Failure) => Plan,
): Plan {
  const session = record.generation.session + 1;
  const count = session - record.firstSession;
  if (count > maxReplacements) {
    const trouble = lost && troubleOf(lost);
    return fail({
      condition: "WorkloadReady",
      reason: "SupervisorLost",
      message: `${maxReplacements} supervisors ended in this generation; the last: ${trouble?.message ?? "deleted"}`,
    });
  }
  const next: GenerationRecord = { ...record, generation: { ...record.generation, session } };
  const replacement = supervisorOf(observed, next);
  if (replacement !== undefined) {
    const adopted = { ...next, supervisorUid: replacement.metadata.uid };
    const workloadUid = isGated(workload) ? undefined : workload.metadata.uid;
    return { actions: [{ do: "record", record: { ...adopted, workloadUid } }] };
  }
  const waitMs = replacementWaitMs(count, lost, observed.now);
  if (waitMs > 0) return { actions: [], againAfterMs: waitMs };
  return { actions: [{ do: "create-supervisor", record: next }] };
}

/** The first is replaced at once; later ones only after their predecessor has had time to live. */
function replacementWaitMs(count: number, lost: Live<Pod> | undefined, now: Date): number {
  const created = lost?.metadata.creationTimestamp;
  if (count <= 1 || created === undefined) return 0;
  return Date.parse(created) + Math.min(60_000, 1_000 * 2 ** count) - now.getTime();
}

/** Between two gated Pods and two released ones: verify, write the Secrets, open the gates in order. */
function planBootstrap(
  observed: Observed,
  record: GenerationRecord,
  memory: PlanMemory,
  workload: Live<Pod>,
  supervisor: Live<Pod>,
): { readonly actions: readonly Action[] } | { readonly failure: Failure } {
  if (!observed.cluster.fenceIsUp) return nothing;
  const failure = admissionFailure(
    observed,
    pairOf(record, memory.gatewayId),
    { workload, supervisor },
    firstPlaced(record),
  );
  if (failure !== undefined) return { failure };
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
  const first = firstPlaced(record);
  const next = gated.find(([role]) => role === first) ?? gated[0];
  const peerIsPlaced = isScheduled(first === "workload" ? workload : supervisor);
  return next === undefined || (next[0] !== first && !peerIsPlaced) ? nothing : { actions: [release(record)(next)] };
}

function release(record: GenerationRecord) {
  return ([role, pod, peer]: readonly [Role, Live<Pod>, Live<Pod>]): Action => ({
    do: "release",
    role,
    pod,
    peerUid: peer.metadata.uid,
    record,
  });
}
/** After release anyone who may patch Pods can change labels, and with them which policies select a Pod (measured: the fence opened in 4 s). */
function restoreLabels(
  { cluster, resource }: Observed,
  record: GenerationRecord,
  workload: Live<Pod>,
  supervisor: Live<Pod>,
): Action[] {
  if (resource === undefined) return [];
  return (
    [
      ["workload", workload],
      ["supervisor", supervisor],
    ] as const
  ).flatMap(([role, pod]) => {
    if (isEnding(pod, cluster)) return [];
    const wanted = { ...identifyingLabels(record, resource.metadata.labels), [labels.boundaryRole]: role };
    const wrong = Object.entries(wanted).filter(([key, value]) => pod.metadata.labels?.[key] !== value);
    return wrong.length === 0 ? [] : [{ do: "restore-labels", pod, labels: Object.fromEntries(wrong) } as const];
  });
}

function identifyingLabels(
  record: GenerationRecord,
  ofResource: Readonly<Record<string, string>> = {},
): Record<string, string> {
  return {
    [labels.gatewayId]: ofResource[labels.gatewayId] ?? "",
    [labels.sandboxId]: record.sandbox.id,
    [labels.pairId]: record.generation.id,
  };
}
