import type { Affinity, GenerationSettings, Toleration } from "./generation.ts";
import { pairSelector } from "./labels.ts";
import { type BoundaryRole, labels } from "./names.ts";

export const hostnameTopology = "kubernetes.io/hostname";
/** The most a preference can weigh. */
export const preferredWeight = 100;
/** Kubernetes' default of 300 s would leave a pair without its supervisor for five minutes after its node went. */
export const nodeLossSeconds = 15;

type Json = Record<string, unknown>;
export type AntiAffinityMode = GenerationSettings["sandbox_runtime"]["pod_anti_affinity"];

/** The Pod API's lists below an affinity, and how many levels of it name them. */
const kinds = ["nodeAffinity", "podAffinity", "podAntiAffinity"] as const;
const required = "requiredDuringSchedulingIgnoredDuringExecution";
const preferred = "preferredDuringSchedulingIgnoredDuringExecution";

/** Keeps a Pod off the node of its own peer: the other role of the same generation, in the same namespace. */
export function peerTerm(role: BoundaryRole, generationId: string): Json {
  const peer = role === "workload" ? "supervisor" : "workload";
  return { labelSelector: { matchLabels: pairSelector(peer, generationId) }, topologyKey: hostnameTopology };
}

/**
 * The affinity of one Pod: what operators set, what others put into the CR, and the pair's own rule last.
 *
 * @returns undefined when there is none, so that mode `off` leaves the Pod as it would be without the setting
 */
export function affinityOf(
  role: BoundaryRole,
  mode: AntiAffinityMode,
  generationId: string,
  ...others: readonly Affinity[]
): Affinity | undefined {
  const own: Affinity =
    mode === "required"
      ? { podAntiAffinity: { [required]: [peerTerm(role, generationId)] } }
      : mode === "preferred"
        ? {
            podAntiAffinity: {
              [preferred]: [{ weight: preferredWeight, podAffinityTerm: peerTerm(role, generationId) }],
            },
          }
        : {};
  const merged = [...others, own].reduce((left, right) => mergeAffinity(left, right), {});
  return Object.keys(merged).length === 0 ? undefined : merged;
}

/** Both affinities at once: lists are joined in order; required node terms, which are alternatives, are combined pairwise. */
export function mergeAffinity(left: Affinity, right: Affinity): Affinity {
  const merged: Record<string, Json> = {};
  for (const kind of kinds) {
    const [a, b] = [left[kind] as Json | undefined, right[kind] as Json | undefined];
    if (a === undefined || b === undefined) {
      const only = a ?? b;
      if (only !== undefined) merged[kind] = only;
      continue;
    }
    const joined: Json = { ...a, ...b };
    if (preferred in a && preferred in b) joined[preferred] = [...listOf(a[preferred]), ...listOf(b[preferred])];
    if (required in a && required in b) {
      joined[required] =
        kind === "nodeAffinity"
          ? { nodeSelectorTerms: combineNodeTerms(a[required] as Json, b[required] as Json) }
          : [...listOf(a[required]), ...listOf(b[required])];
    }
    merged[kind] = joined;
  }
  return merged as Affinity;
}

/**
 * What somebody else added to the affinity that operators set: terms that are not theirs, without those that select on a pair id, which are
 * an earlier generation's. Of a required node term, which is operators' and others' combined, it is the others' part.
 */
export function foreignAffinity(actual: Affinity | undefined, operators: Affinity | undefined): Affinity {
  const foreign: Record<string, Json> = {};
  for (const kind of kinds) {
    const there = (actual?.[kind] ?? {}) as Json;
    const ours = (operators?.[kind] ?? {}) as Json;
    const kept: Json = {};
    for (const list of [required, preferred]) {
      const own = termsOf(kind, list, ours[list]);
      const isCombined = kind === "nodeAffinity" && list === required;
      const others = isCombined ? othersParts : othersTerms;
      const terms = others(termsOf(kind, list, there[list]), own);
      if (terms.length === 0) continue;
      kept[list] = isCombined ? { nodeSelectorTerms: terms } : terms;
    }
    if (Object.keys(kept).length > 0) foreign[kind] = kept;
  }
  return foreign as Affinity;
}

function othersTerms(terms: readonly Json[], own: readonly Json[]): Json[] {
  const ours = own.map(canonical);
  return terms.filter((term) => {
    const text = canonical(term);
    return !ours.includes(text) && !text.includes(JSON.stringify(labels.pairId));
  });
}

/** What each required node term demands beside the operators' term that is in it; none where it is theirs alone. */
function othersParts(terms: readonly Json[], own: readonly Json[]): Json[] {
  const ours = own.map(demandsOf);
  const parts = terms.flatMap((term) => {
    const theirs = demandsOf(term);
    const inIt = ours.find((demands) => demands.every((each) => theirs.includes(each)));
    if (inIt === undefined) return [term];
    const rest = nodeTermOf((list) => listOf(term[list]).filter((each) => !inIt.includes(demandOf(list, each))));
    return Object.keys(rest).length === 0 ? [] : [rest];
  });
  return distinct(parts);
}

function demandsOf(term: Json): string[] {
  return nodeTermLists.flatMap((list) => listOf(term[list]).map((each) => demandOf(list, each)));
}

function demandOf(list: string, demand: Json): string {
  return `${list} ${canonical(demand)}`;
}

/** Operators' tolerations first, then the pair's own, without a second one for a taint that is tolerated already. */
export function supervisorTolerations(operator: readonly Toleration[]): Toleration[] {
  const own = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map((key) => ({
    key,
    operator: "Exists" as const,
    effect: "NoExecute" as const,
    tolerationSeconds: nodeLossSeconds,
  }));
  return [
    ...operator,
    ...own.filter(({ key }) => !operator.some((given) => given.key === key && given.effect !== "NoSchedule")),
  ];
}

function combineNodeTerms(left: Json, right: Json): Json[] {
  const combine = (a: Json, b: Json) => nodeTermOf((key) => distinct([...listOf(a[key]), ...listOf(b[key])]));
  return listOf(left.nodeSelectorTerms).flatMap((a) => listOf(right.nodeSelectorTerms).map((b) => combine(a, b)));
}

const nodeTermLists = ["matchExpressions", "matchFields"] as const;

/** A node term of these demands, without the lists that are empty. */
function nodeTermOf(demands: (list: (typeof nodeTermLists)[number]) => Json[]): Json {
  return Object.fromEntries(
    nodeTermLists.map((key) => [key, demands(key)] as const).filter(([, list]) => list.length > 0),
  );
}

function distinct(terms: readonly Json[]): Json[] {
  return [...new Map(terms.map((term) => [canonical(term), term])).values()];
}

function termsOf(kind: string, list: string, value: unknown): Json[] {
  if (kind === "nodeAffinity" && list === required) return listOf((value as Json | undefined)?.nodeSelectorTerms);
  return listOf(value);
}

function listOf(value: unknown): Json[] {
  return Array.isArray(value) ? (value as Json[]) : [];
}

/** JSON with sorted keys, so that the order in which somebody wrote them does not count. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) =>
    typeof part === "object" && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}
