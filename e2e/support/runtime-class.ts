import type { ProviderName } from "../cluster/provider.ts";

/**
 * Handlers of two OCI runtimes that the nodes have: those that `$OPENSHELL_RUNTIME_HANDLERS` names, `FIRST,SECOND`; else runc, which all nodes
 * have, and crun where they are known to have it. Elsewhere the second is the first again.
 */
export function handlersOf(
  provider?: ProviderName,
  named = process.env.OPENSHELL_RUNTIME_HANDLERS ?? "",
): readonly [string, string] {
  const [first = "runc", second = provider === "local" ? "crun" : first] = named.split(",").filter(Boolean);
  return [first, second];
}

/** The classes that every suite finds; a handler that a cluster lacks makes its tests fail, not pass. */
export function suiteClasses(provider: ProviderName): object[] {
  const [first, second] = handlersOf(provider);
  return [runtimeClass("conformance-a", first), runtimeClass("conformance-b", second)];
}

/**
 * A RuntimeClass for an OCI runtime that the nodes' container runtime is configured with.
 * @param handler @default the one that all nodes have
 */
export function runtimeClass(name: string, handler = handlersOf()[0]) {
  return { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass", metadata: { name }, handler };
}
