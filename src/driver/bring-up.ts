import { type Affinity, foreignAffinity, pairSelector } from "../manifests/index.ts";
import { same } from "./_json.ts";
import type { Action, Plan, PlanMemory } from "./action.ts";
import { provisioningTimeout } from "./ends.ts";
import { isEnding, isSuspended, type Observed, supervisorOf } from "./observed.ts";
import type { Failure, GenerationRecord } from "./record.ts";
import { afterRefusal } from "./replacement.ts";

/**
 * A CR that is to run and does not: it is new, or its pair is made anew (`remake.ts`). Of the former pair nothing may be left then, as at a
 * start: the controller would write the new template's labels onto the old Pod (measured).
 */
export function planToRun(
  observed: Observed,
  record: GenerationRecord,
  memory: PlanMemory,
): Plan | { readonly failure: Failure } {
  const { resource, workloads, cluster, now } = observed;
  if (resource === undefined) return { actions: [] };
  const supervisor = supervisorOf(observed, record);
  // Somebody suspended it: the end of its Pods is what the generation ends of.
  const hasRun = record.supervisorUid !== undefined;
  if (!hasRun && record.resourceUid !== undefined) {
    const former = observed.supervisors.filter((pod) => pod !== supervisor && !isEnding(pod, cluster));
    const leaving = former.map((pod) => ({ do: "delete-pod", pod }) as const);
    const { failure, leftMs } = provisioningTimeout(observed, record, undefined);
    if (failure !== undefined) return { failure };
    if (leaving.length > 0 || workloads.length > 0 || !isSuspended(resource)) {
      return { actions: leaving, ...(leftMs !== undefined && { againAfterMs: leftMs }) };
    }
    const refused = supervisor === undefined && afterRefusal(memory.refusedReplacement, record, now);
    if (refused) return refused;
  }
  const preparation = prepare(observed, record);
  if (preparation.length > 0) return { actions: preparation };
  // One that somebody deleted is waited out, and made again.
  if (supervisor !== undefined && isEnding(supervisor, cluster)) return { actions: [] };
  // The template that another process wrote may be another build's.
  const isOurs = hasRun || memory.rendered.workload === record.generation.id;
  return { actions: [isOurs ? run(observed, record, false) : runAnew(observed, record)] };
}

/** The Service and the supervisor Pod, whichever is missing. */
export function prepare(observed: Observed, record: GenerationRecord): Action[] {
  const supervisor = supervisorOf(observed, record);
  return [
    ...pointService(observed, record),
    ...(supervisor === undefined ? [{ do: "create-supervisor", record } as const] : []),
  ];
}

export function pointService({ service }: Observed, record: GenerationRecord): Action[] {
  if (service === undefined) return [{ do: "create-service", record }];
  const { selector, ports, publishNotReadyAddresses } = service.spec ?? {};
  const { boundary_port: port } = record.settings.sandbox_runtime;
  const isRight =
    same(selector, pairSelector("workload", record.generation.id)) &&
    ports?.some((one) => one.port === port && one.targetPort === port && (one.protocol ?? "TCP") === "TCP") === true &&
    publishNotReadyAddresses === true;
  return isRight ? [] : [{ do: "point-service", record }];
}

/**
 * The CR runs with a template of today's, in which stays what others have put into the affinity of the Sandbox by now, which may be after
 * the start was asked for. The write is bound to the state that was read.
 */
export function runAnew(observed: Observed, record: GenerationRecord): Action {
  const { resource, record: former } = observed;
  if (former?.ok !== true) return run(observed, record, true);
  const actual = resource?.spec.podTemplate.spec.affinity as unknown as Affinity | undefined;
  const foreign = foreignAffinity(actual, former.record.settings.workload_affinity);
  return run(observed, { ...record, generation: { ...record.generation, foreignAffinity: foreign } }, true);
}

function run(observed: Observed, record: GenerationRecord, newTemplate: boolean): Action {
  const supervisorUid = supervisorOf(observed, record)?.metadata.uid;
  return { do: "run", record: { ...record, intent: "running", failure: undefined, supervisorUid }, newTemplate };
}
