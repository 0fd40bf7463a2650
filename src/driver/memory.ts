import type { Deferred } from "../common/async.ts";
import type { Live, Pod } from "../kube/index.ts";
import type { ActedOn, LastSupervisor, RefusedReplacement, Rendered, Request } from "./action.ts";
import { actedOn } from "./changed-since.ts";
import type { ClassMade } from "./class-made.ts";
import { isGated, type Observed, releasedWith } from "./observed.ts";
import type { StartTrouble } from "./platform-events.ts";
import type { GenerationRecord } from "./record.ts";

/** What is known of a sandbox only while this process lives. Losing it loses nothing: it is asked for or done again. */
export interface Memory {
  request:
    | (Extract<Request, { kind: "start" }> & { readonly done: Deferred<GenerationRecord> })
    | (Extract<Request, { kind: "stop" }> & { readonly done: Deferred<void> })
    | undefined;
  /** The caller of CreateSandbox waits for the supervisor to be accepted. */
  creating: (Deferred<GenerationRecord> & { isMade?: true }) | undefined;
  readonly writtenSecrets: Set<string>;
  readonly missingSecrets: Set<string>;
  /** As in the plan. */
  readonly nodeRefusals: Map<string, string>;
  /** As in the plan. */
  readonly startTroubles: Map<string, StartTrouble>;
  readonly seen: Map<string, ActedOn>;
  /** As in the plan. */
  rendered: Rendered;
  refusedReplacement: RefusedReplacement | undefined;
  /** As in the plan. */
  readonly restored: Map<string, readonly number[]>;
  /** The last few Pods of which nothing is left, and that said why they ended. */
  troubled: readonly Live<Pod>[];
  /** As in the plan. */
  lastSupervisor: LastSupervisor | undefined;
  /** As in the plan. */
  readonly verified: Map<string, ClassMade>;
  readonly changedAt: Map<string, { readonly text: string; readonly at: Date }>;
}

export function newMemory(): Memory {
  return {
    request: undefined,
    creating: undefined,
    writtenSecrets: new Set(),
    missingSecrets: new Set(),
    nodeRefusals: new Map(),
    startTroubles: new Map(),
    seen: new Map(),
    rendered: {},
    refusedReplacement: undefined,
    restored: new Map(),
    troubled: [],
    lastSupervisor: undefined,
    verified: new Map(),
    changedAt: new Map(),
  };
}

/** Notes new Pods and forgets those that are gone: a sandbox may be started any number of times in one process. */
export function keepToLivingPods(memory: Memory, observed: Observed): void {
  const { writtenSecrets: written, missingSecrets, nodeRefusals, startTroubles, seen, verified, restored } = memory;
  const { resource, workloads, supervisors } = observed;
  const living = new Map([...workloads, ...supervisors].map((pod) => [pod.metadata.uid, pod]));
  for (const key of written) if (!living.has(key.slice(0, key.indexOf("/")))) written.delete(key);
  for (const known of [missingSecrets, nodeRefusals, startTroubles, seen, verified]) {
    for (const uid of known.keys()) if (!living.has(uid)) known.delete(uid);
  }
  for (const uid of restored.keys()) if (!living.has(uid) && uid !== resource?.metadata.uid) restored.delete(uid);
  for (const [uid, pod] of living) if (!seen.has(uid)) seen.set(uid, actedOn(pod));
  memory.lastSupervisor = supervisorNow(observed) ?? memory.lastSupervisor;
}

function supervisorNow({ record: read, supervisors, cluster }: Observed): LastSupervisor | undefined {
  if (read?.ok !== true) return undefined;
  const { record } = read;
  const pod = supervisors.find(({ metadata }) => metadata.uid === record.supervisorUid);
  if (pod === undefined) return undefined;
  const peerUid = releasedWith(pod, record, cluster);
  return isGated(pod) || peerUid !== undefined ? { uid: pod.metadata.uid, peerUid } : undefined;
}
