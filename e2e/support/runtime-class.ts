const [first = "runc", second = "crun"] = (process.env.OPENSHELL_RUNTIME_HANDLERS ?? "").split(",").filter(Boolean);

/** The two OCI runtimes that every provider's nodes have; a handler that a cluster lacks makes its tests fail, not pass. */
export const handlers = [first, second] as const;

/** A RuntimeClass for an OCI runtime that the nodes' container runtime is configured with. */
export function runtimeClass(name: string, handler: string) {
  return { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass", metadata: { name }, handler };
}
