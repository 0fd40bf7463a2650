import type { Live, Pod } from "../kube/index.ts";
import {
  type BoundaryRole,
  bootstrapGate,
  labelsOf,
  type PairProps,
  pvcName,
  sandboxResourceName,
  supervisorPodSpec,
  workloadPodTemplate,
} from "../manifests/index.ts";
import type { PlanMemory } from "./action.ts";
import { type ExpectedPod, type Violation, verifyAdmission, violationText } from "./admission.ts";
import { names, type RuleContext } from "./admission-rules.ts";
import { classRules, isClassMade } from "./class-made.ts";
import { foreignOpening } from "./fence.ts";
import { livingRules } from "./living-rules.ts";
import { type ClusterFacts, generationOf, isEnding, isOwned, isReleased, type Observed } from "./observed.ts";
import { type Failure, type GenerationRecord, pairOf } from "./record.ts";

/** Compares one Pod with what was asked for; `rules` in place of those of admission. */
export function violationsOf(
  role: BoundaryRole,
  pod: Live<Pod>,
  record: GenerationRecord,
  gatewayId: string,
  cluster: ClusterFacts,
  rules: RuleContext["rules"] = {},
): Violation[] {
  const pair = pairOf(record, gatewayId);
  const expected = role === "workload" ? expectedWorkload(pair) : expectedSupervisor(pair);
  const context = ruleContext(role, pair, expected, cluster);
  const gated = !isReleased(pod, record, cluster);
  return verifyAdmission(expected, pod as unknown as Record<string, unknown>, { ...context, gated, rules });
}

/** Compares a Pod behind our gate: what was verified before need not be what today's classes would make of it. */
export function waitingViolations(
  role: BoundaryRole,
  pod: Live<Pod>,
  record: GenerationRecord,
  { gatewayId, verified }: Pick<PlanMemory, "gatewayId" | "verified">,
  cluster: ClusterFacts,
): Violation[] {
  return violationsOf(role, pod, record, gatewayId, cluster, classRules(verified?.get(pod.metadata.uid)));
}

/** Why the generation must not go on, or undefined when both Pods are what was asked for and the fence holds. */
export function admissionFailure(
  observed: Observed,
  record: GenerationRecord,
  memory: Pick<PlanMemory, "gatewayId" | "verified">,
  pods: Readonly<Record<BoundaryRole, Live<Pod>>>,
  first: BoundaryRole,
): Failure | undefined {
  const { cluster } = observed;
  for (const role of ["workload", "supervisor"] as const) {
    // A released Pod was verified when it was released, and again in the answer to that.
    if (isReleased(pods[role], record, cluster)) continue;
    const violations = waitingViolations(role, pods[role], record, memory, cluster);
    if (violations.length > 0) return violationFailure(role, violations, observed, record);
  }
  return (
    foreignPolicyFailure(observed, pods.workload, record.settings.sandbox_runtime.boundary_port) ??
    preemption(record, pods, first)
  );
}

/**
 * A Pod that a gateway before seals released, or anybody in its place: for as long as it lives it has to be what was asked for, but for what
 * a living Pod may come to differ in. Labels are put back instead.
 */
export function unsealedViolation(
  observed: Observed,
  record: GenerationRecord,
  gatewayId: string,
  pods: Readonly<Record<BoundaryRole, Live<Pod> | undefined>>,
): Failure | undefined {
  const { cluster } = observed;
  for (const role of ["workload", "supervisor"] as const) {
    const pod = pods[role];
    if (pod === undefined || !isReleased(pod, record, cluster) || cluster.sealedPeerOf(pod) !== undefined) continue;
    const violations = violationsOf(role, pod, record, gatewayId, cluster, livingRules);
    const wrong = violations.filter(({ field }) => !field.startsWith("metadata.labels."));
    if (wrong.length > 0) return violationFailure(role, wrong, observed, record);
  }
  return undefined;
}

/** A policy of somebody else that opens the workload's fence, by the labels that the Pod has now. */
export function foreignPolicyFailure(
  { cluster }: Observed,
  workload: Live<Pod>,
  boundaryPort: number,
): Failure | undefined {
  const labels = workload.metadata.labels ?? {};
  const opening = foreignOpening(cluster.foreignPolicies, labels, boundaryPort, cluster.toleratedPolicies);
  if (opening === undefined) return undefined;
  return {
    condition: "PodsAdmitted",
    reason: "ForeignNetworkPolicy",
    message: `${opening}; delete it, or name it in tolerated_network_policies`,
  };
}

/** A Pod that is made for a Sandbox's former state, from a controller's cache, is ended as soon as the controller sees the present one. */
const staleWorkloadMs = 10_000;

/**
 * The CR's own Pod, of which admission took what says of which generation it is. A CR is run when no Pod of a former one is seen, but it and
 * the Pods are watched apart: one that is older than this generation and names another may be one of those that is still to end.
 */
export function unknownWorkload(
  observed: Observed,
  record: GenerationRecord,
  gatewayId: string,
): { readonly failure?: Failure; readonly leftMs?: number } {
  const { workloads, cluster, now } = observed;
  const pod = workloads.find((each) => isOwned(each, observed) && !isEnding(each, cluster));
  if (pod === undefined) return {};
  const startedAt = Date.parse(record.startedAt);
  const mayBeFormer = generationOf(pod) !== undefined && Date.parse(pod.metadata.creationTimestamp ?? "") <= startedAt;
  const leftMs = mayBeFormer ? startedAt + staleWorkloadMs - now.getTime() : 0;
  if (leftMs > 0) return { leftMs };
  const violations = violationsOf("workload", pod, record, gatewayId, cluster);
  return violations.length === 0 ? {} : { failure: violationFailure("workload", violations, observed, record) };
}

const byClasses =
  "unless an operator changed a RuntimeClass or PriorityClass since the Pod was made; start the sandbox again then";

const openedByOthers = (role: BoundaryRole): string =>
  `the gate of the ${role} Pod was opened without this gateway's seal, by somebody else or by an earlier release of the gateway that ran meanwhile; start the sandbox again`;

export function violationFailure(
  role: BoundaryRole,
  violations: readonly Violation[],
  observed: Observed,
  { settings }: GenerationRecord,
): Failure {
  const text = violationText(role, violations);
  const isOpened = violations.some(
    ({ field, admitted }) => field === "spec.schedulingGates" && !names(admitted).includes(bootstrapGate),
  );
  const isByClasses = violations.every(({ field }) => isClassMade(field));
  const said = isByClasses ? `${text}, ${byClasses}` : text;
  const message = isOpened ? `${openedByOthers(role)}; ${text}` : said;
  const byImageVolume = settings.sandbox_runtime.delivery === "image_volume";
  if (
    byImageVolume &&
    violations.some(({ field }) => /volumes\[openshell-runtime-image\]|volumeMounts\[\/openshell\]/.test(field))
  ) {
    return {
      condition: "PodsAdmitted",
      reason: "ImageVolumeUnsupported",
      message: `the cluster drops image volumes; set sandbox_runtime.delivery = "copy" (${message})`,
    };
  }
  // What is missing in the stored template too was pruned by the CRD, not by admission.
  const stored = observed.resource?.spec.podTemplate.spec as unknown as Record<string, unknown> | undefined;
  const pruned = violations.filter(({ field, admitted }) => {
    const top = /^spec\.([A-Za-z]+)/.exec(field)?.[1];
    return (
      role === "workload" &&
      admitted === undefined &&
      top !== undefined &&
      stored !== undefined &&
      stored[top] === undefined
    );
  });
  if (pruned.length > 0) {
    return {
      condition: "PodsAdmitted",
      reason: "AgentSandboxSchemaTooOld",
      message: `the installed Sandbox CRD dropped ${pruned.map(({ field }) => field).join(", ")}; update Agent Sandbox`,
    };
  }
  return { condition: "PodsAdmitted", reason: "AdmissionViolation", message };
}

/** In required mode the Pod that is placed second must not be able to preempt the first: it would end its own peer (measured). */
function preemption(
  { settings }: GenerationRecord,
  pods: Readonly<Record<BoundaryRole, Live<Pod>>>,
  first: BoundaryRole,
): Failure | undefined {
  if (settings.sandbox_runtime.pod_anti_affinity !== "required") return undefined;
  const second: BoundaryRole = first === "workload" ? "supervisor" : "workload";
  if (!couldPreempt(pods[second], pods[first])) return undefined;
  const [placed, later] = [pods[first].spec, pods[second].spec];
  const name = (spec: Pod["spec"]) => `${spec?.priorityClassName ?? "(none)"} (${spec?.priority ?? 0})`;
  return {
    condition: "PodsAdmitted",
    reason: "PriorityWouldPreemptPeer",
    message: `the ${second}'s PriorityClass ${name(later)} could preempt the ${first}'s ${name(placed)}; use one class for both, or one with preemptionPolicy Never for the ${second}`,
  };
}

/** Whether the scheduler may end `placed` to make room for `later`. */
export function couldPreempt({ spec: later }: Pod, { spec: placed }: Pod): boolean {
  return (later?.priority ?? 0) > (placed?.priority ?? 0) && later?.preemptionPolicy !== "Never";
}

function expectedWorkload(pair: PairProps): ExpectedPod {
  return workloadPodTemplate(pair);
}

function expectedSupervisor(pair: PairProps): ExpectedPod {
  return {
    metadata: {
      labels: { ...pair.settings.supervisor_labels, ...labelsOf("supervisorPod", pair) },
      annotations: pair.settings.supervisor_annotations,
    },
    spec: supervisorPodSpec(pair),
  };
}

function ruleContext(
  role: BoundaryRole,
  pair: PairProps,
  expected: ExpectedPod,
  cluster: ClusterFacts,
): Omit<RuleContext, "gated" | "rules"> {
  const className = expected.spec.runtimeClassName;
  const runtimeClass = typeof className === "string" ? cluster.runtimeClass(className) : undefined;
  const priorityClass = cluster.priorityClass(
    typeof expected.spec.priorityClassName === "string" ? expected.spec.priorityClassName : "",
  );
  return {
    runtimeClass: runtimeClass && {
      ...(runtimeClass.overhead?.podFixed && { overhead: runtimeClass.overhead.podFixed }),
      ...(runtimeClass.scheduling?.nodeSelector && { nodeSelector: runtimeClass.scheduling.nodeSelector }),
    },
    priorityClass: priorityClass && {
      name: priorityClass.metadata.name,
      value: priorityClass.value ?? 0,
      preemptionPolicy: priorityClass.preemptionPolicy ?? "PreemptLowerPriority",
    },
    imageRewrites: cluster.imageRewrites,
    workspaceClaim:
      role === "workload" ? pvcName(sandboxResourceName(pair.sandbox.workspace, pair.sandbox.name)) : undefined,
  };
}
