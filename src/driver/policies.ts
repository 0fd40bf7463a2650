import type { KubernetesSettings } from "../config/index.ts";
import {
  isAlreadyExists,
  isNotFound,
  type KubeClient,
  type Live,
  type NetworkPolicy,
  networkPolicies,
} from "../kube/index.ts";
import { type ManifestObject, manifestOf, SupervisorNetworkPolicy, WorkloadNetworkPolicy } from "../manifests/index.ts";

/** A namespace's two policies. They are the driver's in every workspace mode. */
export function expectedPolicies(
  settings: KubernetesSettings,
  namespace: string,
  gatewayId: string,
  portsInUse: readonly number[],
): ManifestObject[] {
  const props = {
    namespace,
    gatewayId,
    boundaryPorts: [settings.sandbox_runtime.boundary_port, ...portsInUse],
  };
  return [
    manifestOf((scope) => new WorkloadNetworkPolicy(scope, "workload", props)),
    manifestOf((scope) => new SupervisorNetworkPolicy(scope, "supervisor", props)),
  ];
}

/** Makes one policy, or puts its rules back. */
export async function putPolicy(
  client: KubeClient,
  namespace: string,
  wanted: ManifestObject,
  found: Live<NetworkPolicy> | undefined,
): Promise<void> {
  try {
    if (found === undefined) {
      await client.create(networkPolicies, namespace, wanted as NetworkPolicy);
      return;
    }
    await client.patch(networkPolicies, namespace, wanted.metadata.name, {
      type: "json",
      body: [{ op: "replace", path: "/spec", value: wanted.spec }],
    });
  } catch (error) {
    // The watch was late; what it shows next decides again.
    if (!isAlreadyExists(error) && !isNotFound(error)) throw error;
  }
}
