/** Name of the cluster; k3d puts `k3d-` before the names of its containers and context. */
export const clusterName = "openshell";

/** The k3s release that the suite is written against; 1.34 as on the local cluster. */
export const k3sImage = "rancher/k3s:v1.34.4-k3s1";

/**
 * k3d's `Simple` config (https://k3d.io/stable/usage/configfile/, schema of `k3d.io/v1alpha5`). One server that takes no ordinary Pods, so
 * that the number of agents is the number of nodes the suite sees. Node filters are in the syntax of k3d 5 (`group:subset`).
 */
export function k3dConfig(agents: number): object {
  const server = ["server:*"];
  const every = ["server:*", "agent:*"];
  const arg = (value: string, nodeFilters: readonly string[]) => ({ arg: value, nodeFilters });
  return {
    apiVersion: "k3d.io/v1alpha5",
    kind: "Simple",
    metadata: { name: clusterName },
    servers: 1,
    agents,
    image: k3sImage,
    kubeAPI: { hostIP: "127.0.0.1" },
    options: {
      k3d: { wait: true, timeout: "300s", disableLoadbalancer: true },
      k3s: {
        extraArgs: [
          arg("--disable=traefik,servicelb,metrics-server", server),
          arg("--node-taint=node-role.kubernetes.io/control-plane=true:NoSchedule", server),
          // Off by default in 1.34; the suite tests what admission may do to a Pod with it.
          arg("--kube-apiserver-arg=feature-gates=MutatingAdmissionPolicy=true", server),
          arg("--kube-apiserver-arg=runtime-config=admissionregistration.k8s.io/v1beta1=true", server),
          // Imported images cannot be pulled again.
          arg("--kubelet-arg=image-gc-high-threshold=100", every),
        ],
      },
      // The user's own kubeconfig is not the suite's to change.
      kubeconfig: { updateDefaultKubeconfig: false, switchCurrentContext: false },
    },
  };
}
