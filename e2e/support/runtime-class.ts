/** A RuntimeClass for an OCI runtime that the nodes' container runtime is configured with. */
export function runtimeClass(name: string, handler: string) {
  return { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass", metadata: { name }, handler };
}
