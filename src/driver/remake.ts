import type { Live, Pod } from "../kube/index.ts";
import type { BoundaryRole } from "../manifests/index.ts";
import { type Action, type PlanMemory, secretKey } from "./action.ts";
import { violationText } from "./admission.ts";
import { isGated, isReleased, type Observed } from "./observed.ts";
import type { GenerationRecord } from "./record.ts";
import { waitingViolations } from "./verify-pods.ts";

/**
 * A Pod is compared with what this build of the gateway renders. One that an earlier process made, and that waits behind our gate, may differ
 * from that because a former release rendered it: nobody is accused of that, and nothing of it is released; the Pod is made anew in the same
 * generation, and judged then. What this process rendered or has verified whole differs by somebody's doing, so no Pod is made anew twice.
 *
 * @returns the first step, after which the next plan goes on by what the record says; undefined where somebody is to be accused
 */
export function remake(
  observed: Observed,
  record: GenerationRecord,
  memory: PlanMemory,
  pods: Readonly<Record<BoundaryRole, Live<Pod>>>,
): Action | undefined {
  const { cluster } = observed;
  const wrong = (["workload", "supervisor"] as const)
    .filter((role) => !isReleased(pods[role], record, cluster))
    .map((role) => ({ role, violations: waitingViolations(role, pods[role], record, memory, cluster) }))
    .filter(({ violations }) => violations.length > 0);
  const [first] = wrong;
  if (first === undefined || !wrong.every(({ role }) => mayBeFormer(role, pods[role], record, memory)))
    return undefined;
  const why = violationText(first.role, first.violations, "an earlier process or somebody else");
  // A supervisor alone: the workload may be released, and its agent may run.
  if (first.role === "supervisor") return { do: "record", record: withOutdated(record, pods.supervisor), why };
  return { do: "suspend", record: pairAnew(record), why };
}

function mayBeFormer(
  role: BoundaryRole,
  pod: Live<Pod>,
  record: GenerationRecord,
  { rendered, writtenSecrets }: PlanMemory,
): boolean {
  const isOurs = rendered[role] === record.generation.id || writtenSecrets.has(secretKey(pod, record));
  return isGated(pod) && !isOurs;
}

/** Said before the Pod is deleted: whatever process goes on knows then that it is no lost one. */
function withOutdated(record: GenerationRecord, { metadata }: Live<Pod>): GenerationRecord {
  return { ...record, outdated: metadata.uid };
}

/**
 * The whole pair, with the next session: its supervisor may be released, for the former workload. No agent ever ran, so none waits for a
 * supervisor that was lost.
 */
function pairAnew(record: GenerationRecord): GenerationRecord {
  return {
    ...record,
    generation: { ...record.generation, session: record.generation.session + 1 },
    supervisorUid: undefined,
    workloadUid: undefined,
    replacedAt: undefined,
    outdated: undefined,
  };
}
