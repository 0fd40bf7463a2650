import type { Pod } from "../kube/index.ts";
import { containers } from "../manifests/index.ts";
import { isTerminal } from "./observed.ts";
import type { Reason } from "./reasons.ts";

/** What keeps a Pod from running, or ended it. */
export interface Trouble {
  readonly reason: Reason;
  readonly message: string;
}

type ContainerStatus = NonNullable<NonNullable<Pod["status"]>["containerStatuses"]>[number];

/** The kubelet's words for a container that waits, with what they mean here. */
const waiting: Readonly<Record<string, Reason>> = {
  ErrImagePull: "PullingImage",
  ImagePullBackOff: "PullingImage",
  RegistryUnavailable: "PullingImage",
  SignatureValidationFailed: "PullingImage",
  InvalidImageName: "InvalidImageName",
  ErrImageNeverPull: "InvalidImageName",
  CreateContainerConfigError: "ContainerConfigError",
  CreateContainerError: "ContainerStartError",
  RunContainerError: "ContainerStartError",
  PostStartHookError: "ContainerStartError",
};

/** The reason of that condition when a kubelet ends a Pod. */
const endedByKubelet = "TerminationByKubelet";

/** Who takes a Pod away, as the API server and its controllers write it into the condition `DisruptionTarget`. */
const disruptions: Readonly<Record<string, readonly [Reason, string]>> = {
  EvictionByEvictionAPI: ["Evicted", "was evicted through the eviction API, as a drain of its node does"],
  PreemptionByScheduler: ["Preempted", "had to make room for a Pod of higher priority"],
  DeletionByTaintManager: ["NodeLost", "was taken from its node, which does not answer or was tainted"],
  DeletionByPodGC: ["NodeLost", "is gone with its node"],
};

/** Of these a kubelet ends a Pod, by its own sentence; for everything else it is short of something. */
const kubeletEnds: readonly (readonly [RegExp, Reason, string])[] = [
  [/preempted/i, "Preempted", "took the Pod's place for a critical one"],
  [/node shutdown/i, "NodeLost", "shut down"],
];

function disruption({ status }: Pod) {
  return status?.conditions?.find(({ type, status: is }) => type === "DisruptionTarget" && is === "True");
}

/** Why a Pod is being taken away, or was; undefined when nothing but a plain deletion is known. */
export function disruptionOf(pod: Pod, who = "the workload Pod"): Trouble | undefined {
  const { spec } = pod;
  const condition = disruption(pod);
  if (condition?.reason === endedByKubelet) return nodeTrouble(pod);
  const known = disruptions[condition?.reason ?? ""];
  if (known === undefined) return undefined;
  const [reason, what] = known;
  const node = spec?.nodeName === undefined ? "" : ` (node ${spec.nodeName})`;
  return { reason, message: `${who}${node} ${what}${condition?.message ? `: ${condition.message}` : ""}` };
}

/**
 * A Pod that its node ended, or never took, as a whole: the kubelet's own words for it. It says them in the status where a container
 * failed, and in the condition alone where all of them ended well (1.34: kubelet_pods.go, generateAPIPodStatus).
 */
function nodeTrouble(pod: Pod): Trouble | undefined {
  const { spec, status } = pod;
  const condition = disruption(pod);
  const isByKubelet = condition?.reason === endedByKubelet;
  const { reason = "" } = status ?? {};
  const message = status?.message ?? (isByKubelet ? condition.message : undefined);
  const node = spec?.nodeName ?? "unknown";
  if (reason === "Evicted" || reason === "Preempting" || isByKubelet) {
    const [, other, what] = kubeletEnds.find(([pattern]) => pattern.test(message ?? "")) ?? [];
    return {
      reason: other ?? "Evicted",
      message: `node ${node} ${what ?? "evicted the Pod"}: ${message ?? "no message"}`,
    };
  }
  if (status?.phase !== "Failed") return undefined;
  if (/^(NodeShutdown|Terminated|Shutdown)$/.test(reason)) {
    return { reason: "NodeLost", message: `node ${node} shut down: ${message ?? reason}` };
  }
  // The kubelet's preface to every refusal of its own; the reasons (OutOfcpu, AppArmor, SysctlForbidden) are a list that grows.
  const isRefused = /^Pod was rejected: /.test(message ?? "");
  if (
    isRefused ||
    /^(OutOf\w+|UnexpectedAdmissionError|Node(Affinity|Ports|Selector\w*)|PodOSNotSupported)$/.test(reason)
  ) {
    return {
      reason: "NodeRefused",
      message: `node ${node} did not take the Pod: ${reason}: ${message ?? "no message"}`,
    };
  }
  return undefined;
}

/**
 * The Pod's node does not answer: its controller takes the condition Ready from Pods whose containers were ready when they were last
 * heard of. No Pod of a pair has a readiness probe that could say the same.
 */
export function isOnSilentNode({ status }: Pod): boolean {
  const ready = status?.conditions?.find(({ type }) => type === "Ready");
  const containers = status?.containerStatuses ?? [];
  return (
    status?.phase === "Running" &&
    ready?.status === "False" &&
    containers.length > 0 &&
    containers.every((one) => one.ready)
  );
}

/** Its node has made what the containers run in: whatever kept it from that is over. */
export function hasSandbox({ status }: Pod): boolean {
  const { conditions = [], initContainerStatuses = [], containerStatuses = [] } = status ?? {};
  return (
    conditions.some(({ type, status: is }) => type === "PodReadyToStartContainers" && is === "True") ||
    [...initContainerStatuses, ...containerStatuses].some(({ state }) => state?.running ?? state?.terminated)
  );
}

/**
 * Why a Pod does not get on, for the workload as for the supervisor; undefined while it just starts or runs, and while its containers have
 * ended and its node has not said yet whether it was the node that ended them.
 */
export function troubleOf(pod: Pod): Trouble | undefined {
  const { status } = pod;
  const ofNode = nodeTrouble(pod);
  if (ofNode !== undefined) return ofNode;
  const isOver = isTerminal(pod);
  for (const container of status?.initContainerStatuses ?? []) {
    const trouble = waitingTrouble(container) ?? (isOver ? endedTrouble(container, "InitFailed", true) : undefined);
    if (trouble !== undefined) return trouble;
  }
  for (const container of status?.containerStatuses ?? []) {
    const trouble =
      waitingTrouble(container) ?? (isOver ? endedTrouble(container, "WorkloadExited", false) : undefined);
    if (trouble !== undefined) return trouble;
  }
  if (isOver) {
    // No kubelet speaks for a node that is gone: whoever takes its Pods away says so in the condition alone.
    const taken = disruptionOf(pod, "the Pod");
    if (taken !== undefined) return taken;
    const text = [status?.reason, status?.message].filter(Boolean).join(": ");
    return { reason: "WorkloadExited", message: `the Pod ended${text === "" ? "" : `: ${text}`}` };
  }
  return undefined;
}

/**
 * A container ended, or failed to prepare the others, and the Pod's last phase is not there yet. With that phase the kubelet says what it
 * did itself; it comes a moment later (1.34: status_manager.go, mergePodStatus), ten seconds at most, since statuses are reconciled then.
 */
export function awaitsLastPhase(pod: Pod): boolean {
  const { initContainerStatuses = [], containerStatuses = [] } = pod.status ?? {};
  if (isTerminal(pod)) return false;
  return (
    containerStatuses.some(({ state }) => state?.terminated !== undefined) ||
    initContainerStatuses.some(({ state }) => (state?.terminated?.exitCode ?? 0) !== 0)
  );
}

function waitingTrouble({ name, image, state }: ContainerStatus): Trouble | undefined {
  const { reason = "", message } = state?.waiting ?? {};
  const known = waiting[reason];
  if (known === undefined) return undefined;
  return { reason: known, message: `container ${name} (image ${image}): ${reason}${message ? `: ${message}` : ""}` };
}

function endedTrouble({ name, state }: ContainerStatus, otherwise: Reason, isInit: boolean): Trouble | undefined {
  const ended = state?.terminated;
  if (ended === undefined || (isInit && ended.exitCode === 0)) return undefined;
  if (ended.reason === "OOMKilled") {
    return { reason: "OutOfMemory", message: `container ${name} exceeded its memory limit and was killed` };
  }
  const text = ended.message?.trim().split("\n").slice(-3).join(" ");
  const how = ended.signal ? `signal ${ended.signal}` : `exit code ${ended.exitCode}`;
  // The runtime's own word, in the termination log or, where that cannot be written, in the last lines of the log.
  const [, lost] = (name === containers.seed && /(?:^|openshell-runtime: )WorkspaceLost: (.+)$/.exec(text ?? "")) || [];
  if (lost !== undefined) return { reason: "WorkspaceLost", message: lost };
  return { reason: otherwise, message: `container ${name} ended with ${how}${text ? `: ${text}` : ""}` };
}

/** Why a released Pod has no node; undefined when it has one. */
export function schedulingTrouble(role: string, pod: Pod): Trouble | undefined {
  if (pod.spec?.nodeName) return undefined;
  const condition = pod.status?.conditions?.find(({ type }) => type === "PodScheduled");
  if (condition?.status !== "False" || condition.reason === "SchedulingGated") {
    return { reason: "WaitingForScheduler", message: `the scheduler has not placed the ${role} Pod yet` };
  }
  const text = condition.message ?? condition.reason ?? "no reason given";
  // Schedulers before and in 1.34 have different words for a volume's node. A Pod that only its peer keeps from the volume's node waits for the peer.
  const isVolume =
    /unbound immediate PersistentVolumeClaims|volume node affinity conflict|PersistentVolume's node affinity|persistentvolumeclaim/.test(
      text,
    ) && !/anti-affinity rules/.test(text);
  return {
    reason: isVolume ? "WaitingForVolume" : "Unschedulable",
    message: `no node fits the ${role} Pod: ${text}`,
  };
}
