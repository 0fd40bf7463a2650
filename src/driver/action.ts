import type { Live, ObjectMeta, Pod } from "../kube/index.ts";
import type { BoundaryRole } from "../manifests/index.ts";
import type { ClassMade } from "./class-made.ts";
import type { StartTrouble } from "./platform-events.ts";
import type { Failure, GenerationRecord } from "./record.ts";

/** One write. The executor knows how; the plan says what, and for the log `why`. */
export type Action =
  | { readonly do: "create-service"; readonly record: GenerationRecord }
  | { readonly do: "point-service"; readonly record: GenerationRecord }
  | { readonly do: "create-supervisor"; readonly record: GenerationRecord }
  /** The CR begins to run; a new generation's template goes with it in the same patch. */
  | { readonly do: "run"; readonly record: GenerationRecord; readonly newTemplate: boolean }
  | {
      readonly do: "write-secret";
      readonly role: BoundaryRole;
      readonly pod: Live<Pod>;
      readonly record: GenerationRecord;
      /** The Pod is released: a Secret that is there stays, and counts as written. */
      readonly ifMissing?: true;
    }
  | {
      readonly do: "release";
      readonly role: BoundaryRole;
      readonly pod: Live<Pod>;
      readonly peerUid: string;
      readonly record: GenerationRecord;
    }
  | { readonly do: "record"; readonly record: GenerationRecord; readonly why?: string }
  /** The CR is touched: the Agent Sandbox controller tries again at once, which may wait up to a quarter of an hour by itself. */
  | { readonly do: "nudge" }
  /** The CR is suspended and says why in its record; a record that cannot be read is left as it is. */
  | { readonly do: "suspend"; readonly record: GenerationRecord | undefined; readonly why?: string }
  | {
      readonly do: "restore-labels";
      readonly kind: "Pod" | "Sandbox";
      readonly metadata: Pick<ObjectMeta, "namespace"> & { readonly name: string; readonly uid: string };
      readonly labels: Readonly<Record<string, string>>;
    }
  | { readonly do: "delete-pod"; readonly pod: Live<Pod> };

export interface Plan {
  /** May be done at the same time. Afterwards the plan is made anew. */
  readonly actions: readonly Action[];
  /** Nothing in the cluster will wake us at this time. */
  readonly againAfterMs?: number;
}

/** What a caller asked for and the CR does not say yet. */
export type Request = { readonly kind: "start"; readonly record: GenerationRecord } | { readonly kind: "stop" };

/** What of a Pod its node acts on, by the fields' names. */
export type ActedOn = Readonly<Record<string, string>>;

/**
 * The generation whose workload template, and the one whose supervisor, this process rendered itself or has begun to make anew, since it
 * holds the lease: what is there is its own to answer for.
 */
export type Rendered = Readonly<Partial<Record<BoundaryRole, string>>>;

export interface PlanMemory {
  readonly gatewayId: string;
  readonly request: Request | undefined;
  readonly rendered: Rendered;
  /** Secrets that this process wrote, by `secretKey`. No Secret is ever read. */
  readonly writtenSecrets: ReadonlySet<string>;
  /** UIDs of Pods whose node found their Secret missing, and that have not got another one since. */
  readonly missingSecrets: ReadonlySet<string>;
  /** UIDs of Pods that their node can never start, each with what the node cannot do. */
  readonly nodeRefusals?: ReadonlyMap<string, string>;
  /** What was last said of Pods whose node could not start their containers yet, by UID. */
  readonly startTroubles?: ReadonlyMap<string, Pick<StartTrouble, "message">>;
  readonly refusedReplacement?: RefusedReplacement | undefined;
  /** `actedOn` in the Pods as this process saw them first, by UID. */
  readonly seen?: ReadonlyMap<string, ActedOn>;
  /** When labels of ours were put back lately, by the UID of the object; milliseconds since the epoch, oldest first. */
  readonly restored?: ReadonlyMap<string, readonly number[]>;
  /** Pods that said why they end, as they were last seen, for when nothing is left of them. */
  readonly troubled?: readonly Live<Pod>[];
  readonly lastSupervisor?: LastSupervisor | undefined;
  /** What classes had made of the Pods that this process verified whole, by UID. */
  readonly verified?: ReadonlyMap<string, ClassMade>;
}

/** A supervisor that the record names, as this process saw it last: nothing may be left of it by now. */
export interface LastSupervisor {
  readonly uid: string;
  /** UID of the workload Pod that it was released with; undefined while its gate was closed. */
  readonly peerUid: string | undefined;
}

/** The cluster refused the supervisor of a session while the workload of its generation runs. */
export interface RefusedReplacement {
  /** Generation and session. */
  readonly of: string;
  /** Times in milliseconds since the epoch: the first refusal, and the last. */
  readonly since: number;
  readonly at: number;
  readonly failure: Failure;
}

/** A session of a generation, as {@link RefusedReplacement} names it. */
export function sessionKey({ generation }: GenerationRecord): string {
  return `${generation.id}/${generation.session}`;
}

/** A Secret belongs to one Pod in one session. */
export function secretKey(pod: Live<Pod>, record: GenerationRecord): string {
  return `${pod.metadata.uid}/${record.generation.session}`;
}
