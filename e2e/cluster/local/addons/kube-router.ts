/** What kube-router's firewall may read. It runs as a process of the node, with a client certificate of its own. */
export function kubeRouterObjects(): readonly object[] {
  const name = "openshell:kube-router";
  const read = ["get", "list", "watch"];
  return [
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name },
      rules: [
        { apiGroups: [""], resources: ["namespaces", "pods", "services", "nodes", "endpoints"], verbs: read },
        { apiGroups: ["networking.k8s.io"], resources: ["networkpolicies"], verbs: read },
        { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: read },
      ],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name },
      subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: "system:kube-router" }],
    },
  ];
}
