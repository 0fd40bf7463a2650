/** Test support: what the API server never lets an upgrade change. */
import type { Rendered } from "./_helm.ts";

/** Kinds of which everything may change, by their place in the name of a document: not worth a look. */
export const mutableKinds = / (ConfigMap|NetworkPolicy|ServiceAccount|Namespace|(Cluster)?Role|CronJob) /;

/** The part of an object that can only be as it was made; undefined for a kind that has none. */
export function immutablePart({ kind, spec, roleRef, metadata }: Rendered): unknown {
  // Helm makes a hook anew each time.
  if (metadata.annotations?.["helm.sh/hook"] !== undefined) return undefined;
  switch (kind) {
    case "StatefulSet": {
      const { template, replicas, updateStrategy, minReadySeconds, revisionHistoryLimit, ...fixed } = spec;
      return fixed;
    }
    case "PersistentVolumeClaim": {
      const { resources, ...fixed } = spec;
      return fixed;
    }
    case "Service":
      return [spec.clusterIP, spec.type === "LoadBalancer" ? spec.loadBalancerClass : undefined];
    case "RoleBinding":
    case "ClusterRoleBinding":
      return roleRef;
    case "Job":
      return [spec.selector, spec.template, spec.completionMode];
    case "Pod":
      return spec;
    default:
      return undefined;
  }
}
