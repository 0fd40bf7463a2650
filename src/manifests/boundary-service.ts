import { k8s } from "cdk8s-plus-28";
import type { Construct } from "constructs";
import type { OwnerReference, PairProps } from "./generation.ts";
import { labelsOf, pairSelector } from "./labels.ts";
import { boundaryPortName, boundaryServiceName } from "./names.ts";

export interface BoundaryServiceProps {
  readonly pair: PairProps;
  readonly owner: OwnerReference;
}

/** Where a supervisor finds its workload: one Service a sandbox, pointed at the generation that runs. */
export class BoundaryService extends k8s.KubeService {
  constructor(scope: Construct, id: string, { pair, owner }: BoundaryServiceProps) {
    super(scope, id, {
      metadata: {
        name: boundaryServiceName(pair.sandbox.id),
        namespace: pair.settings.namespace,
        labels: labelsOf("boundaryService", pair),
        ownerReferences: [owner],
      },
      spec: boundaryServiceSpec(pair),
    });
  }
}

/** What a new generation changes in an existing Service. */
export function boundaryServiceSpec(pair: PairProps): k8s.ServiceSpec {
  const port = pair.settings.sandbox_runtime.boundary_port;
  return {
    type: "ClusterIP",
    ipFamilyPolicy: "PreferDualStack",
    // The supervisor may connect as soon as the runtime listens; readiness would add a kubelet's period to every start.
    publishNotReadyAddresses: true,
    selector: pairSelector("workload", pair.generation.id),
    ports: [{ name: boundaryPortName, protocol: "TCP", port, targetPort: k8s.IntOrString.fromNumber(port) }],
  };
}
