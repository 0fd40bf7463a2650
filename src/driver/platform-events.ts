import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { KubeEvent } from "../kube/index.ts";
import { compute } from "../wire/index.ts";

export interface DriverWarning {
  readonly at: Date;
  readonly reason: string;
  readonly message: string;
  readonly kind: string;
  readonly name: string;
}

/** What the driver itself has to warn of. */
export function warningOf({ at, reason, message, kind, name }: DriverWarning): compute.DriverPlatformEvent {
  return create(compute.DriverPlatformEventSchema, {
    eventTime: timestampFromDate(at),
    source: "openshell-driver",
    type: "Warning",
    reason,
    message,
    metadata: { kind, name, count: "1" },
  });
}

/**
 * UID of the Pod whose node cannot start it, since a Secret is not there; undefined for every other event. Nothing but the kubelet's sentence
 * says so (1.34: volume/secret/secret.go, SetUpAt).
 */
export function podWithoutSecret({
  reason,
  message = "",
  involvedObject: { kind, uid },
}: KubeEvent): string | undefined {
  return kind === "Pod" && reason === "FailedMount" && /secret "[^"]+" not found/.test(message) ? uid : undefined;
}

/** What a node says of a Pod. */
export interface NodeRefusal {
  readonly podUid: string;
  /** What the node cannot do, after its name. */
  readonly what: string;
}

/**
 * The Pod's node can never start it as it is; undefined for every other event. A kubelet that knows of no user namespaces of its container
 * runtime leaves the Pod pending and tries on, and nothing but its event says why (1.34: userns/userns_manager.go). What else keeps it from
 * making a Pod's sandbox, as the network, may pass.
 */
export function nodeRefusalOf({
  reason,
  message = "",
  involvedObject: { kind, uid },
}: KubeEvent): NodeRefusal | undefined {
  if (kind !== "Pod" || uid === undefined || reason !== "FailedCreatePodSandBox") return undefined;
  const [, words] =
    /^Failed to create pod sandbox: (.*(?:does not support user namespaces|can't set spec\.HostUsers).*)$/.exec(
      message,
    ) ?? [];
  if (words === undefined) return undefined;
  return { podUid: uid, what: `cannot run the workload in a user namespace of its own: ${words}` };
}

/** What a node, or who attaches volumes to it, says of a Pod whose containers it cannot start yet. */
export interface StartTrouble {
  readonly podUid: string;
  /** When it was said last; milliseconds since the epoch. */
  readonly atMs: number;
  readonly message: string;
}

/** All of them come before a Pod's first container, and nothing else tells of them; each is tried again. */
const startTroubles: readonly string[] = [
  "FailedCreatePodSandBox",
  "FailedCreatePodContainer",
  "FailedMount",
  "FailedAttachVolume",
];

/** Why a Pod's node cannot start its containers yet; undefined for every other event. */
export function startTroubleOf(event: KubeEvent): StartTrouble | undefined {
  const { reason = "", message = "", involvedObject } = event;
  const { kind, uid } = involvedObject;
  if (kind !== "Pod" || uid === undefined || message === "" || !startTroubles.includes(reason)) return undefined;
  return { podUid: uid, atMs: lastTimeOf(event)?.getTime() ?? 0, message };
}

/** Events of the newer API have no last time, but a series or the time of the only one. */
function lastTimeOf({ series, lastTimestamp, eventTime, metadata }: KubeEvent): Date | undefined {
  const at = series?.lastObservedTime ?? lastTimestamp ?? eventTime ?? metadata?.creationTimestamp;
  return at === undefined || at === null ? undefined : new Date(at);
}

/** A Kubernetes Event as the gateway shows it. Events of the newer API have a count of 0, or none. */
export function platformEventOf(event: KubeEvent): compute.DriverPlatformEvent {
  const { involvedObject } = event;
  const at = lastTimeOf(event);
  const source = event.source?.component || event.reportingComponent || "kubernetes";
  return create(compute.DriverPlatformEventSchema, {
    ...(at === undefined ? {} : { eventTime: timestampFromDate(at) }),
    source,
    type: event.type ?? "Normal",
    reason: event.reason ?? "",
    message: event.message ?? "",
    metadata: {
      kind: involvedObject.kind ?? "",
      name: involvedObject.name ?? "",
      count: String(event.series?.count || event.count || 1),
    },
  });
}
