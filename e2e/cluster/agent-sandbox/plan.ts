import type { AgentSandbox, Live, PersistentVolumeClaim, Pod, Service } from "../../../src/kube/index.ts";
import { nameHash, nameHashLabel, podNameAnnotation } from "./names.ts";
import {
  claimFor,
  claimName,
  controllerOf,
  metadataPatch,
  ownerReference,
  podFor,
  serviceFor,
  wantsPod,
} from "./objects.ts";
import { ownershipOf } from "./ownership.ts";

/** What the cluster holds that concerns one sandbox. */
export interface Observed {
  readonly sandbox: Live<AgentSandbox>;
  /** Pods that the sandbox controls, and those that have its name or the name in its annotation. */
  readonly pods: readonly Live<Pod>[];
  /** Claims that have the names of its templates. */
  readonly claims: readonly Live<PersistentVolumeClaim>[];
  /** The Service that has its name. */
  readonly service: Live<Service> | undefined;
  readonly now: Date;
}

/** One write to the cluster. */
export type Action =
  | { readonly do: "create pod"; readonly pod: Pod }
  | { readonly do: "create claim"; readonly claim: PersistentVolumeClaim }
  | { readonly do: "create service"; readonly service: Service }
  | {
      readonly do: "patch";
      readonly what: "pod" | "claim" | "service";
      readonly name: string;
      readonly metadata: object;
    }
  | { readonly do: "delete"; readonly what: "pod" | "service" | "sandbox"; readonly name: string; readonly uid: string }
  /** null takes the annotation away. */
  | { readonly do: "set pod name"; readonly value: string | null }
  | { readonly do: "warn"; readonly reason: string; readonly message: string };

export interface Plan {
  readonly actions: readonly Action[];
  /** What stands in the way and no write can help with; ends up in the Ready condition. */
  readonly errors: readonly string[];
}

/** The Pod that stands for the sandbox, and what else has its place. */
export type PodView =
  | { readonly state: "none" }
  | { readonly state: "ours"; readonly pod: Live<Pod> }
  | { readonly state: "adoptable"; readonly pod: Live<Pod> }
  | { readonly state: "foreign"; readonly why: string }
  | { readonly state: "several"; readonly names: readonly string[] };

/** The next writes. Empty when the sandbox is as it should be, or when only waiting helps. */
export function plan(observed: Observed): Plan {
  const { sandbox } = observed;
  if (sandbox.metadata.deletionTimestamp) return { actions: [], errors: [] };
  if (isExpired(observed)) return { actions: expiry(observed), errors: [] };
  const parts = [claimsPlan(observed), podPlan(observed), servicePlan(observed)];
  return { actions: parts.flatMap((part) => part.actions), errors: parts.flatMap((part) => part.errors) };
}

export function isExpired({ sandbox, now }: Observed): boolean {
  const { shutdownTime } = sandbox.spec;
  return shutdownTime !== undefined && Date.parse(shutdownTime) <= now.getTime();
}

export function viewOfPods({ sandbox, pods }: Observed): PodView {
  const owned = pods.filter((pod) => controllerOf(pod)?.uid === sandbox.metadata.uid);
  const [pod] = owned;
  if (owned.length > 1) return { state: "several", names: owned.map((each) => each.metadata.name).sort() };
  if (pod) return { state: "ours", pod };
  const named = pods.find((each) => each.metadata.name === podName(sandbox)) ?? pods[0];
  if (!named) return { state: "none" };
  const ownership = ownershipOf(sandbox, "pod", named);
  if (ownership.whose === "foreign") return { state: "foreign", why: ownership.why };
  return { state: "adoptable", pod: named };
}

function podName({ metadata }: Live<AgentSandbox>): string {
  return metadata.annotations?.[podNameAnnotation] ?? metadata.name;
}

function podPlan(observed: Observed): Plan {
  const { sandbox } = observed;
  const view = viewOfPods(observed);
  if (view.state === "several") {
    // One warning for each time that it comes about.
    const isKnown = sandbox.status?.conditions?.some((condition) => condition.reason === "MultiplePods");
    if (isKnown) return { actions: [], errors: [] };
    const message = `sandbox "${sandbox.metadata.name}" owns several Pods: ${view.names.join(", ")}`;
    return { actions: [{ do: "warn", reason: "MultiplePods", message }], errors: [] };
  }
  return wantsPod(sandbox) ? runningPlan(sandbox, view) : suspendedPlan(sandbox, view);
}

function runningPlan(sandbox: Live<AgentSandbox>, view: Exclude<PodView, { state: "several" }>): Plan {
  switch (view.state) {
    case "none":
      // The annotation of a Pod that is gone does not name the next one.
      return { actions: [...podNamed(sandbox, null), { do: "create pod", pod: podFor(sandbox) }], errors: [] };
    case "foreign":
      return { actions: podNamed(sandbox, null), errors: [view.why] };
    case "adoptable": {
      const { name } = view.pod.metadata;
      return { actions: [{ do: "patch", what: "pod", name, metadata: adoption(sandbox) }], errors: [] };
    }
    case "ours": {
      const { name } = view.pod.metadata;
      const metadata = metadataPatch(sandbox, view.pod);
      const patch: Action[] = metadata ? [{ do: "patch", what: "pod", name, metadata }] : [];
      return { actions: [...patch, ...podNamed(sandbox, name)], errors: [] };
    }
  }
}

function suspendedPlan(sandbox: Live<AgentSandbox>, view: Exclude<PodView, { state: "several" }>): Plan {
  const actions: Action[] = podNamed(sandbox, null);
  if (view.state === "ours" && !view.pod.metadata.deletionTimestamp) actions.unshift(deletion("pod", view.pod));
  return { actions, errors: [] };
}

function claimsPlan({ sandbox, claims }: Observed): Plan {
  const actions: Action[] = [];
  const errors: string[] = [];
  for (const template of sandbox.spec.volumeClaimTemplates ?? []) {
    const name = claimName(template, sandbox);
    const claim = claims.find((each) => each.metadata.name === name);
    if (!claim) {
      actions.push({ do: "create claim", claim: claimFor(template, sandbox) });
      continue;
    }
    const ownership = ownershipOf(sandbox, "pvc", claim);
    if (ownership.whose === "adoptable")
      actions.push({ do: "patch", what: "claim", name, metadata: adoption(sandbox) });
    if (ownership.whose === "foreign") errors.push(ownership.why);
  }
  return { actions, errors };
}

function servicePlan({ sandbox, service }: Observed): Plan {
  const wanted = sandbox.spec.service;
  if (!service) {
    return { actions: wanted ? [{ do: "create service", service: serviceFor(sandbox) }] : [], errors: [] };
  }
  const ownership = ownershipOf(sandbox, "service", service);
  const { name } = service.metadata;
  if (wanted === false && ownership.whose === "ours") return { actions: [deletion("service", service)], errors: [] };
  if (!wanted) return { actions: [], errors: [] };
  if (ownership.whose === "foreign") return { actions: [], errors: [ownership.why] };
  if (ownership.whose === "ours") return { actions: [], errors: [] };
  return { actions: [{ do: "patch", what: "service", name, metadata: adoption(sandbox) }], errors: [] };
}

function expiry(observed: Observed): Action[] {
  const { sandbox, service } = observed;
  if (sandbox.spec.shutdownPolicy === "Delete") return [deletion("sandbox", sandbox)];
  const pods = observed.pods.filter((pod) => ownershipOf(sandbox, "pod", pod).whose === "ours");
  const actions: Action[] = pods.filter((pod) => !pod.metadata.deletionTimestamp).map((pod) => deletion("pod", pod));
  if (service && ownershipOf(sandbox, "service", service).whose === "ours") actions.push(deletion("service", service));
  return [...actions, ...podNamed(sandbox, null)];
}

/** Keeps the annotation on the sandbox that names its Pod. */
function podNamed({ metadata }: Live<AgentSandbox>, value: string | null): Action[] {
  return (metadata.annotations?.[podNameAnnotation] ?? null) === value ? [] : [{ do: "set pod name", value }];
}

function adoption(sandbox: Live<AgentSandbox>): object {
  return {
    labels: { [nameHashLabel]: nameHash(sandbox.metadata.name) },
    ownerReferences: [ownerReference(sandbox)],
  };
}

function deletion(what: "pod" | "service" | "sandbox", object: Live<Pod | Service | AgentSandbox>): Action {
  return { do: "delete", what, name: object.metadata.name, uid: object.metadata.uid };
}
