/**
 * The closed, append-only vocabulary of what the driver says about a sandbox: three condition types and their reasons, each with what it
 * means for the phase (decision: docs/adr on waiting and failing). The gateway's phase table reads `reasonClass`, never the message.
 */

export const conditionTypes = ["PodsAdmitted", "Scheduled", "WorkloadReady"] as const;
export type ConditionType = (typeof conditionTypes)[number];

/**
 * `ok` the condition is True; `waiting` it may come true by itself, for as long as it takes; `failed` it will not, and the generation has
 * been ended; `stopped` nobody asks for it.
 */
export type ReasonClass = "ok" | "waiting" | "failed" | "stopped";

interface ReasonEntry {
  readonly of: readonly ConditionType[];
  readonly class: ReasonClass;
  /** What the Pods are, or what they can reach, must not go on: the driver does not leave the workload to the Agent Sandbox controller. */
  readonly isBreach: boolean;
  /** One sentence for the reference; the condition's message says the particulars. */
  readonly meaning: string;
}

const all = conditionTypes;
const admitted = ["PodsAdmitted"] as const;
const scheduled = ["Scheduled"] as const;
const ready = ["WorkloadReady"] as const;

/** A `breach` is a failure that must not run on. */
function entry(of: readonly ConditionType[], kind: ReasonClass | "breach", meaning: string): ReasonEntry {
  const isBreach = kind === "breach";
  return { of, class: isBreach ? "failed" : kind, isBreach, meaning };
}

export const reasons = {
  // All conditions.
  Stopped: entry(all, "stopped", "the sandbox is stopped; its workspace is kept"),
  Stopping: entry(all, "stopped", "the Pods are being ended"),
  Deleting: entry(all, "stopped", "the sandbox is being deleted"),
  GenerationFailed: entry(all, "failed", "another condition says why this generation cannot go on"),
  ProvisioningTimeout: entry(all, "failed", "provisioning_timeout passed before the sandbox was ready"),
  // PodsAdmitted.
  Admitted: entry(admitted, "ok", "both Pods exist and are what was asked for"),
  CreatingPods: entry(admitted, "waiting", "the Pods are being made"),
  AgentSandboxUnavailable: entry(
    admitted,
    "waiting",
    "given by no condition any more: a call is refused with it while the cluster does not serve the Agent Sandbox API",
  ),
  ControllerSilent: entry(admitted, "waiting", "the Agent Sandbox controller has not made the Pod yet"),
  WaitingForOldPod: entry(admitted, "waiting", "a Pod of the former generation is still ending"),
  ControllerError: entry(
    admitted,
    "waiting",
    "the Agent Sandbox controller reports an error that may pass; it is asked to try again every 30 seconds",
  ),
  QuotaExceeded: entry(admitted, "failed", "a ResourceQuota refused a Pod"),
  LimitRangeRefused: entry(admitted, "failed", "a LimitRange refused a Pod"),
  PodSecurityRefused: entry(admitted, "failed", "Pod Security refused a Pod"),
  RuntimeClassNotFound: entry(admitted, "failed", "a RuntimeClass does not exist"),
  PriorityClassNotFound: entry(admitted, "failed", "a PriorityClass does not exist"),
  ServiceAccountNotFound: entry(admitted, "failed", "the sandboxes' ServiceAccount does not exist"),
  AdmissionRefused: entry(admitted, "failed", "an admission policy or webhook refused an object"),
  PermissionDenied: entry(admitted, "failed", "the gateway's ServiceAccount lacks a permission"),
  InvalidPod: entry(admitted, "failed", "the API server finds a Pod invalid"),
  NamespaceTerminating: entry(admitted, "failed", "the namespace is being deleted"),
  NameTaken: entry(admitted, "failed", "an object of that name belongs to somebody else"),
  AdmissionViolation: entry(
    admitted,
    "breach",
    "a field of a Pod was changed that may not be: by admission, or later an image, an annotation or, repeatedly, a label",
  ),
  AgentSandboxSchemaTooOld: entry(admitted, "failed", "the installed Sandbox CRD dropped a field"),
  ImageVolumeUnsupported: entry(admitted, "failed", "the cluster dropped the image volume of the runtime"),
  PriorityWouldPreemptPeer: entry(admitted, "failed", "the Pod placed second could preempt the first"),
  ForeignNetworkPolicy: entry(
    admitted,
    "breach",
    "a NetworkPolicy of somebody else opens the fence, before or while the sandbox runs",
  ),
  SecretNameTaken: entry(admitted, "failed", "a Secret of the generation's name exists already"),
  RecordUnreadable: entry(admitted, "failed", "the generation record on the Sandbox was damaged"),
  MasterSecretChanged: entry(
    admitted,
    "failed",
    "the gateway's master secret is not the one this generation began with",
  ),
  // Scheduled.
  Scheduled: entry(scheduled, "ok", "both Pods have a node"),
  WaitingForAdmission: entry(scheduled, "waiting", "the Pods are not released to the scheduler yet"),
  WaitingForScheduler: entry(scheduled, "waiting", "the scheduler has not answered yet"),
  WaitingForGate: entry(scheduled, "waiting", "another controller's scheduling gate holds a Pod"),
  Unschedulable: entry(scheduled, "waiting", "no node fits a Pod"),
  WaitingForVolume: entry(
    scheduled,
    "waiting",
    "the workspace volume is not bound, or no node that has it takes the Pod",
  ),
  PlacementViolated: entry(scheduled, "breach", "the Pods share a node although they must not"),
  // WorkloadReady.
  WorkloadRunning: entry(ready, "ok", "the workload container runs"),
  WaitingForScheduling: entry(ready, "waiting", "the Pod has no node yet"),
  StartingContainers: entry(ready, "waiting", "the node is starting the containers, or says why it cannot yet"),
  PullingImage: entry(ready, "waiting", "an image cannot be pulled; the kubelet tries again"),
  NodeNotReady: entry(ready, "waiting", "the workload's node does not answer"),
  InvalidImageName: entry(ready, "failed", "an image name is invalid"),
  ContainerConfigError: entry(ready, "failed", "a container cannot be made from its specification"),
  ContainerStartError: entry(ready, "failed", "a container could not be started"),
  InitFailed: entry(ready, "failed", "staging the runtime or seeding the workspace failed"),
  OutOfMemory: entry(ready, "failed", "the workload exceeded its memory limit"),
  Evicted: entry(ready, "failed", "the workload was evicted, by its node or through the eviction API"),
  WorkloadExited: entry(ready, "failed", "the workload container ended"),
  WorkloadDeleted: entry(ready, "failed", "somebody deleted the workload Pod, or it cannot be known that nobody did"),
  SupervisorLost: entry(ready, "failed", "the supervisor was lost and is not replaced (supervisor_replacement)"),
  // Added later; the list is only ever appended to.
  ForeignContainer: entry(admitted, "breach", "somebody added an ephemeral container to a Pod"),
  Preempted: entry(ready, "failed", "the workload had to make room for a Pod of higher priority"),
  NodeLost: entry(ready, "failed", "the workload's node is gone, shut down or does not answer"),
  NodeRefused: entry(ready, "failed", "the node that the scheduler chose did not take the workload"),
  SupervisorRefused: entry(
    admitted,
    "waiting",
    "the cluster refuses the next supervisor of a generation that goes on; it is asked again",
  ),
  WorkspaceLost: entry(ready, "failed", "the workspace volume was deleted or replaced; no other one is used instead"),
  ContainersEnded: entry(
    ready,
    "waiting",
    "the containers ended; their node has not said yet whether the node itself ended them",
  ),
} as const satisfies Record<string, ReasonEntry>;

export type Reason = keyof typeof reasons;

/** The class of a reason; undefined for a word that is not the driver's. */
export function reasonClass(reason: string): ReasonClass | undefined {
  return Object.hasOwn(reasons, reason) ? reasons[reason as Reason].class : undefined;
}
