import type { Live, NetworkPolicy } from "../kube/index.ts";

type Selector = NonNullable<NetworkPolicy["spec"]>["podSelector"];

/**
 * The first policy of somebody else that selects the workload and opens its fence: policies only add (measured: one that allows all egress
 * undoes the fence), so one is enough.
 *
 * @param tolerated names that the operator excuses
 * @returns a sentence that names it
 */
export function foreignOpening(
  policies: readonly Live<NetworkPolicy>[],
  labels: Readonly<Record<string, string>>,
  boundaryPort: number,
  tolerated: readonly string[],
): string | undefined {
  for (const { metadata, spec } of policies) {
    if (tolerated.includes(metadata.name) || !selects(spec?.podSelector, labels)) continue;
    const name = `NetworkPolicy "${metadata.name}"`;
    // The cluster reads no other list of it.
    const isOf = (type: "Ingress" | "Egress") => spec?.policyTypes?.includes(type) ?? true;
    if (isOf("Egress") && (spec?.egress?.length ?? 0) > 0) return `${name} allows the workload to connect out`;
    const opens = (isOf("Ingress") ? spec?.ingress : undefined)?.some(
      ({ ports = [] }) => ports.length === 0 || ports.some((port) => !isBoundary(port, boundaryPort)),
    );
    if (opens) return `${name} allows connections to the workload beyond the boundary port ${boundaryPort}`;
  }
  return undefined;
}

function isBoundary(
  { protocol = "TCP", port, endPort }: { protocol?: string; port?: unknown; endPort?: number },
  boundaryPort: number,
): boolean {
  return (
    protocol === "TCP" && (port === boundaryPort || port === "boundary") && (endPort ?? boundaryPort) === boundaryPort
  );
}

/** Kubernetes' label selector; an absent or empty one selects everything. */
export function selects(selector: Selector | undefined, labels: Readonly<Record<string, string>>): boolean {
  const byLabels = Object.entries(selector?.matchLabels ?? {}).every(([key, value]) => labels[key] === value);
  const byExpressions = (selector?.matchExpressions ?? []).every(({ key, operator, values = [] }) => {
    const value = labels[key];
    switch (operator) {
      case "In":
        return value !== undefined && values.includes(value);
      case "NotIn":
        return value === undefined || !values.includes(value);
      case "Exists":
        return value !== undefined;
      case "DoesNotExist":
        return value === undefined;
      default:
        // An operator that we do not know might select it.
        return true;
    }
  });
  return byLabels && byExpressions;
}
