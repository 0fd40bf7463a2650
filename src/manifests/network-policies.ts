import { k8s } from "cdk8s-plus-28";
import type { Construct } from "constructs";
import { networkPolicyLabels, roleSelector } from "./labels.ts";
import { networkPolicyName } from "./names.ts";

export interface FenceProps {
  readonly namespace: string;
  readonly gatewayId: string;
  /** Boundary ports in use: today's setting and those of generations that began under another. */
  readonly boundaryPorts: readonly number[];
}

/** The workloads' fence: in only from supervisors to the boundary port, out to nowhere, of any address family. */
export class WorkloadNetworkPolicy extends k8s.KubeNetworkPolicy {
  constructor(scope: Construct, id: string, { namespace, gatewayId, boundaryPorts }: FenceProps) {
    const ports = [...new Set(boundaryPorts)].sort((a, b) => a - b);
    super(scope, id, {
      metadata: {
        name: networkPolicyName("workload", gatewayId),
        namespace,
        labels: networkPolicyLabels(gatewayId),
      },
      spec: {
        podSelector: { matchLabels: roleSelector("workload", gatewayId) },
        policyTypes: ["Ingress", "Egress"],
        ingress: [
          {
            from: [{ podSelector: { matchLabels: roleSelector("supervisor", gatewayId) } }],
            ports: ports.map((port) => ({ protocol: "TCP", port: k8s.IntOrString.fromNumber(port) })),
          },
        ],
        egress: [],
      },
    });
  }
}

/**
 * The supervisors' policy: nobody may connect to them, and they may connect anywhere, said explicitly, so that a default-deny policy of the
 * namespace does not cut them off from the gateway.
 */
export class SupervisorNetworkPolicy extends k8s.KubeNetworkPolicy {
  constructor(scope: Construct, id: string, { namespace, gatewayId }: FenceProps) {
    super(scope, id, {
      metadata: {
        name: networkPolicyName("supervisor", gatewayId),
        namespace,
        labels: networkPolicyLabels(gatewayId),
      },
      spec: {
        podSelector: { matchLabels: roleSelector("supervisor", gatewayId) },
        policyTypes: ["Ingress", "Egress"],
        ingress: [],
        egress: [{}],
      },
    });
  }
}
