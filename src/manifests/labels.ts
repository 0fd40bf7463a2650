import type { PairProps } from "./generation.ts";
import { type BoundaryRole, labels, managedByValue } from "./names.ts";

/** Objects that carry labels of ours. */
export type LabelledObject =
  | "sandbox"
  | "workloadPod"
  | "supervisorPod"
  | "boundaryService"
  | "workloadSecret"
  | "supervisorSecret"
  | "workspaceClaim"
  | "networkPolicy"
  | "workspaceNamespace";

interface LabelRule {
  readonly key: string;
  readonly on: readonly LabelledObject[];
  /** Grammar of the value, as a person reads it. */
  readonly grammar: string;
  /** True where something selects objects by it: then it never changes on a living object. */
  readonly selects: boolean;
}

const pods = ["workloadPod", "supervisorPod"] as const;
const ofGeneration = [...pods, "workloadSecret", "supervisorSecret"] as const;
const ofSandbox = ["sandbox", "boundaryService", "workspaceClaim", ...ofGeneration] as const;
const everywhere = [...ofSandbox, "networkPolicy", "workspaceNamespace"] as const;

/** Which label is on which object. */
export const labelRules: readonly LabelRule[] = [
  { key: labels.managedBy, on: everywhere, grammar: `"${managedByValue}"`, selects: false },
  { key: labels.gatewayId, on: everywhere, grammar: "DNS label, at most 33", selects: true },
  { key: labels.sandboxId, on: ofSandbox, grammar: "[a-z0-9-], at most 36", selects: false },
  { key: labels.workspace, on: [...ofSandbox, "workspaceNamespace"], grammar: "DNS label, at most 19", selects: false },
  { key: labels.pairId, on: ofGeneration, grammar: "32 hex digits; new at every start", selects: true },
  { key: labels.boundaryRole, on: pods, grammar: "workload | supervisor", selects: true },
  { key: labels.appName, on: everywhere, grammar: `"${managedByValue}"`, selects: false },
  {
    key: labels.appComponent,
    on: everywhere,
    grammar: "sandbox | workload | supervisor | boundary | fence | workspace",
    selects: false,
  },
  { key: labels.appManagedBy, on: everywhere, grammar: `"${managedByValue}"`, selects: false },
];

const components: Readonly<Record<LabelledObject, string>> = {
  sandbox: "sandbox",
  workspaceClaim: "sandbox",
  workloadPod: "workload",
  workloadSecret: "workload",
  supervisorPod: "supervisor",
  supervisorSecret: "supervisor",
  boundaryService: "boundary",
  networkPolicy: "fence",
  workspaceNamespace: "workspace",
};

/** The labels of one object of a pair, in the table's order. */
export function labelsOf(
  object: Exclude<LabelledObject, "networkPolicy" | "workspaceNamespace">,
  pair: PairProps,
): Record<string, string> {
  const values: Record<string, string> = {
    ...common(object, pair.gateway.id),
    [labels.sandboxId]: pair.sandbox.id,
    [labels.workspace]: pair.sandbox.workspace,
    [labels.pairId]: pair.generation.id,
    [labels.boundaryRole]: object === "workloadPod" ? "workload" : "supervisor",
  };
  return pick(object, values);
}

/** On what managed mode makes for one workspace: its namespace, and what makes it one of the gateway's. */
export function workspaceNamespaceLabels(gatewayId: string, workspace: string): Record<string, string> {
  return pick("workspaceNamespace", {
    ...common("workspaceNamespace", gatewayId),
    [labels.workspace]: workspace,
  });
}

export function networkPolicyLabels(gatewayId: string): Record<string, string> {
  return pick("networkPolicy", common("networkPolicy", gatewayId));
}

/** Selects the Pods of one role, of all pairs of a gateway. */
export function roleSelector(role: BoundaryRole, gatewayId: string): Record<string, string> {
  return { [labels.gatewayId]: gatewayId, [labels.boundaryRole]: role };
}

/** Selects one Pod: this role in this generation. */
export function pairSelector(role: BoundaryRole, generationId: string): Record<string, string> {
  return { [labels.pairId]: generationId, [labels.boundaryRole]: role };
}

function common(object: LabelledObject, gatewayId: string): Record<string, string> {
  return {
    [labels.managedBy]: managedByValue,
    [labels.gatewayId]: gatewayId,
    [labels.appName]: managedByValue,
    [labels.appComponent]: components[object],
    [labels.appManagedBy]: managedByValue,
  };
}

function pick(object: LabelledObject, values: Record<string, string>): Record<string, string> {
  const carried = labelRules.filter((rule) => rule.on.includes(object));
  return Object.fromEntries(carried.map(({ key }) => [key, values[key] ?? ""]));
}
