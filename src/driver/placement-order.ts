import type { Live, Pod } from "../kube/index.ts";
import type { BoundaryRole } from "../manifests/index.ts";
import { same } from "./_json.ts";
import { isGated, isScheduled } from "./observed.ts";
import type { GenerationRecord } from "./record.ts";
import { couldPreempt } from "./verify-pods.ts";

/**
 * Which Pod of a required-anti-affinity pair gets its node first. Opened together, a supervisor that may run anywhere can take the only node
 * that its workload fits, and the workload then pends for ever beside a free node (measured). So the workload goes first, unless only the
 * supervisor is tied to nodes: then the workload would do the same to it. Each re-placement turns the order round.
 */
export function firstPlaced(record: GenerationRecord): BoundaryRole {
  const natural = naturalFirst(record);
  const isTurned = (record.placement?.evicted.length ?? 0) % 2 === 1;
  if (!isTurned) return natural;
  return natural === "workload" ? "supervisor" : "workload";
}

function naturalFirst({ settings, sandbox, generation }: GenerationRecord): BoundaryRole {
  const workloadIsTied =
    // The volume of an earlier generation may be bound to a node.
    generation.seeded ||
    Object.keys(settings.workload_node_selector).length > 0 ||
    Object.keys(sandbox.nodeSelector).length > 0 ||
    Object.keys(sandbox.gpus).length > 0 ||
    requiresNodes(settings.workload_affinity) ||
    requiresNodes(generation.foreignAffinity) ||
    sandbox.runtimeClassName !== "" ||
    settings.default_runtime_class_name !== "";
  const supervisorIsTied =
    Object.keys(settings.supervisor_node_selector).length > 0 ||
    requiresNodes(settings.supervisor_affinity) ||
    settings.supervisor_runtime_class_name !== "";
  return supervisorIsTied && !workloadIsTied ? "supervisor" : "workload";
}

function requiresNodes({ nodeAffinity }: GenerationRecord["settings"]["workload_affinity"]): boolean {
  return nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution !== undefined;
}

const firstWaitMs = 2_000;
const longestWaitMs = 5 * 60_000;
/** What fits in the turned order fits at once: the pair rests in its natural one, where what it waits for is most likely to come. */
const turnedWaitMs = 8_000;
const mostRemembered = 20;

/**
 * The Pod that has to give up its node, because its peer fits nowhere else: only while no agent ran, only where other nodes exist that
 * might take it, and only where it may be placed second.
 *
 * @returns the Pod, and how long to wait before it is evicted; undefined when there is nothing to be won
 */
export function podInTheWay(
  record: GenerationRecord,
  pods: Readonly<Record<BoundaryRole, Live<Pod>>>,
  now: Date,
): { readonly pod: Live<Pod>; readonly waitMs: number } | undefined {
  // Where one of the two has no node yet, and the supervisor of a workload that has one follows none that was lost, no agent ever ran.
  const mayHaveRun = record.replacedAt !== undefined && isScheduled(pods.workload);
  if (record.settings.sandbox_runtime.pod_anti_affinity !== "required" || mayHaveRun) return undefined;
  const first = firstPlaced(record);
  const [placed, blocked] = first === "workload" ? [pods.workload, pods.supervisor] : [pods.supervisor, pods.workload];
  if (!isScheduled(placed) || isScheduled(blocked) || isGated(blocked)) return undefined;
  if (couldPreempt(placed, blocked)) return undefined;
  const condition = blocked.status?.conditions?.find(({ type }) => type === "PodScheduled");
  if (
    condition?.reason !== "Unschedulable" ||
    !isBlockedByPeer(condition.message ?? "", toleratesMore(placed, blocked))
  )
    return undefined;
  const since = Date.parse(condition.lastTransitionTime ?? "") || now.getTime();
  return { pod: placed, waitMs: Math.max(0, since + patienceMs(record) - now.getTime()) };
}

function patienceMs({ placement }: GenerationRecord): number {
  const tries = placement?.evicted.length ?? 0;
  return tries % 2 === 1 ? turnedWaitMs : Math.min(longestWaitMs, firstWaitMs * 4 ** tries);
}

/** The record once `pod` gives up its node. The oldest are forgotten two at a time: whether their number is even says whose turn it is. */
export function withoutNode(record: GenerationRecord, pod: Live<Pod>): GenerationRecord {
  const evicted = [...(record.placement?.evicted ?? []), pod.metadata.uid];
  return {
    ...record,
    placement: { evicted: evicted.length > mostRemembered ? evicted.slice(2) : evicted },
    // The next one is the generation's workload just as well, and no agent waits for a supervisor that was lost.
    workloadUid: undefined,
    replacedAt: undefined,
  };
}

/** Taints of a node that nobody is to be moved to, whatever is tolerated. */
const unusable = "node\\.kubernetes\\.io/(?:not-ready|unreachable|unschedulable)";
const unusableKey = new RegExp(`^${unusable}$`);

const byAntiAffinity = /(\d+) node\(s\) didn't (?:match|satisfy) (?:existing pods )?(?:pod )?anti-affinity rules/g;
const closedToAll = new RegExp(`(\\d+) node\\(s\\) (?:were unschedulable|had untolerated taint \\{${unusable}:)`, "g");
// Newer schedulers do not say which taint.
const closedToBoth = /(\d+) node\(s\) (?:were unschedulable|had untolerated taint)/g;

/**
 * The scheduler counts the nodes by what excluded them. Besides the peer's own there has to be one that might take the peer: not one that is
 * cordoned, nor one whose taint the peer tolerates no more than the Pod does, such as one that has just joined and is not ready.
 */
export function isBlockedByPeer(message: string, peerToleratesMore: boolean): boolean {
  const [filtered = ""] = message.split("preemption:");
  const nodes = (by: RegExp) => [...filtered.matchAll(by)].reduce((sum, [, count]) => sum + Number(count), 0);
  const byPeer = nodes(byAntiAffinity);
  const closed = nodes(peerToleratesMore ? closedToAll : closedToBoth);
  return byPeer > 0 && byPeer + closed < nodes(/^0\/(\d+) nodes are available/g);
}

function toleratesMore(placed: Pod, blocked: Pod): boolean {
  const less = blocked.spec?.tolerations ?? [];
  return (placed.spec?.tolerations ?? []).some(
    (one) => !unusableKey.test(one.key ?? "") && !less.some((other) => same(one, other)),
  );
}
