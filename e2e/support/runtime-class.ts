import type { ProviderName } from "../cluster/provider.ts";

/**
 * Handlers of the OCI runtimes of two classes: those that `$OPENSHELL_RUNTIME_HANDLERS` names, `FIRST,SECOND`; else runc, which all nodes have,
 * and crun where they are known to have it. Elsewhere the two classes are told apart by their names alone.
 */
export function handlersOf(
  provider: ProviderName,
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

export const handlers: readonly [string, string] = handlersOf("local");

/** A RuntimeClass for an OCI runtime that the nodes' container runtime is configured with. */
export function runtimeClass(name: string, handler: string) {
  return { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass", metadata: { name }, handler };
}
