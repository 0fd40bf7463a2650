import type { AgentSandbox, Condition, Live, Pod } from "../../../src/kube/index.ts";
import { nameHash, nameHashLabel } from "./names.ts";
import { wantsPod } from "./objects.ts";
import { ownershipOf } from "./ownership.ts";
import { isExpired, type Observed, type PodView, viewOfPods } from "./plan.ts";

type Status = NonNullable<AgentSandbox["status"]>;
type ConditionType = "Suspended" | "PodScheduled" | "Ready" | "Finished";
type Word = Pick<Condition, "status" | "reason" | "message">;
/** null: the condition is absent; undefined: it stays as it was. */
type Words = Record<ConditionType, Word | null | undefined>;

/**
 * The status to write, by the contract's table of conditions.
 *
 * @param errors what stood in the way in this pass; the first one is shown
 * @returns undefined when the status is frozen, because the sandbox is being deleted
 */
export function statusOf(observed: Observed, errors: readonly string[]): Status | undefined {
  const { sandbox, now } = observed;
  if (sandbox.metadata.deletionTimestamp) return undefined;
  const conditions = conditionsOf(sandbox, wordsOf(observed, errors), now);
  if (isExpired(observed)) return { conditions };
  const view = viewOfPods(observed);
  return {
    conditions,
    selector: `${nameHashLabel}=${nameHash(sandbox.metadata.name)}`,
    ...(view.state === "ours" && podPart(sandbox, view.pod)),
    ...servicePart(observed),
    ...(sandbox.spec.replicas !== undefined && { replicas: view.state === "ours" ? 1 : 0 }),
  };
}

/** True when the difference is worth a write. A node name alone waits for the next one. */
export function differs(sandbox: Live<AgentSandbox>, next: Status): boolean {
  const settled = next.conditions?.find((condition) => condition.type === "Ready")?.status === "True";
  const comparable = ({ nodeName, ...status }: Status): string => sorted(settled ? { ...status, nodeName } : status);
  return comparable(sandbox.status ?? {}) !== comparable(next);
}

/** JSON whose keys are in order, so that equal things have equal texts. */
function sorted(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) =>
    typeof part === "object" && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}

function wordsOf(observed: Observed, errors: readonly string[]): Words {
  if (isExpired(observed)) {
    return {
      Suspended: undefined,
      PodScheduled: null,
      Ready: no("SandboxExpired", "Sandbox has expired"),
      Finished: undefined,
    };
  }
  const view = viewOfPods(observed);
  const words = wantsPod(observed.sandbox) ? runningWords(observed, view) : suspendedWords(view);
  const [error] = errors;
  return error === undefined ? words : { ...words, Ready: no("ReconcilerError", `Error seen: ${error}`) };
}

function runningWords(observed: Observed, view: PodView): Words {
  const Suspended = no("NotSuspended", "Sandbox is not suspended");
  if (view.state === "several") {
    return { Suspended, PodScheduled: schedulingUnknown, Ready: several(view.names), Finished: null };
  }
  if (view.state !== "ours") {
    return {
      Suspended,
      PodScheduled: schedulingUnknown,
      Ready: no("DependenciesNotReady", "Pod does not exist"),
      Finished: null,
    };
  }
  return {
    Suspended,
    PodScheduled: scheduled(view.pod),
    Ready: ready(observed, view.pod),
    Finished: finished(view.pod),
  };
}

function suspendedWords(view: PodView): Words {
  const suspending = no("SandboxSuspended", "Sandbox is suspending");
  switch (view.state) {
    case "none": {
      const Suspended = yes("PodTerminated", "Pod is terminated");
      return { Suspended, PodScheduled: null, Ready: no("SandboxSuspended", "Sandbox is suspended"), Finished: null };
    }
    case "ours":
      return {
        Suspended: no("PodTerminating", "Pod is terminating"),
        PodScheduled: undefined,
        Ready: suspending,
        Finished: finished(view.pod),
      };
    case "several": {
      const Suspended = word("Unknown", "PodStateUnknown", "several Pods are owned");
      return { Suspended, PodScheduled: schedulingUnknown, Ready: several(view.names), Finished: null };
    }
    default:
      return {
        Suspended: no("PodNotOwned", "Pod is not owned by this sandbox"),
        PodScheduled: null,
        Ready: suspending,
        Finished: null,
      };
  }
}

const schedulingUnknown = word("Unknown", "PodSchedulingUnknown", "Pod state is unknown");

function scheduled(pod: Live<Pod>): Word {
  const condition = pod.status?.conditions?.find((each) => each.type === "PodScheduled");
  if (!condition) return schedulingUnknown;
  if (condition.status === "True") return yes("PodScheduled", "");
  return word(condition.status as Word["status"], condition.reason ?? "PodSchedulingUnknown", condition.message ?? "");
}

function ready(observed: Observed, pod: Live<Pod>): Word {
  const phase = pod.status?.phase ?? "Pending";
  if (phase === "Failed") return no("PodFailed", "Pod failed");
  if (phase === "Succeeded") return no("PodSucceeded", "Pod completed successfully");
  if (phase !== "Running") return no("DependenciesNotReady", `Pod exists with phase: ${phase}`);
  const isReady = pod.status?.conditions?.some((each) => each.type === "Ready" && each.status === "True");
  if (!isReady) return no("DependenciesNotReady", "Pod is Running but not Ready");
  return yes("DependenciesReady", ownsService(observed) ? "Pod is Ready; Service Exists" : "Pod is Ready");
}

function finished(pod: Live<Pod>): Word | null {
  if (pod.status?.phase === "Failed") return yes("PodFailed", "Pod failed");
  if (pod.status?.phase === "Succeeded") return yes("PodSucceeded", "Pod completed successfully");
  return null;
}

function several(names: readonly string[]): Word {
  return no("MultiplePods", `several Pods are owned: ${names.join(", ")}`);
}

function conditionsOf({ metadata, status }: Live<AgentSandbox>, words: Words, now: Date): Condition[] {
  const present = status?.conditions ?? [];
  return (Object.entries(words) as [ConditionType, Words[ConditionType]][]).flatMap(([type, next]) => {
    const former = present.find((condition) => condition.type === type);
    if (next === undefined) return former ?? [];
    if (next === null) return [];
    const lastTransitionTime =
      former?.status === next.status ? former.lastTransitionTime : `${now.toISOString().slice(0, 19)}Z`;
    return { type, ...next, lastTransitionTime, observedGeneration: metadata.generation ?? 0 };
  });
}

function podPart(sandbox: Live<AgentSandbox>, pod: Live<Pod>): Partial<Status> {
  const podIPs = pod.status?.podIPs?.flatMap(({ ip }) => ip ?? []) ?? [];
  const { nodeName } = pod.spec ?? {};
  // The older version has no node name.
  const hasNodeName = sandbox.apiVersion !== "agents.x-k8s.io/v1alpha1" && nodeName;
  return { ...(podIPs.length > 0 && { podIPs }), ...(hasNodeName && { nodeName }) };
}

function servicePart(observed: Observed): Partial<Status> {
  const { name, namespace } = observed.sandbox.metadata;
  return ownsService(observed) ? { service: name, serviceFQDN: `${name}.${namespace}.svc.cluster.local` } : {};
}

function ownsService({ sandbox, service }: Observed): boolean {
  return service !== undefined && ownershipOf(sandbox, "service", service).whose === "ours";
}

function word(status: Word["status"], reason: string, message: string): Word {
  return { status, reason, message };
}

function yes(reason: string, message: string): Word {
  return word("True", reason, message);
}

function no(reason: string, message: string): Word {
  return word("False", reason, message);
}
