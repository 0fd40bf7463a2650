import type { Conformance } from "./conformance.ts";

/** Allows `pods` Pods in the sandboxes' namespace, those that are there included, from the moment that this resolves until disposed of. */
export async function podQuota(suite: Conformance, pods: number): Promise<AsyncDisposable> {
  const namespace = suite.release.sandboxNamespace;
  const name = "conformance-pods";
  const spec = { hard: { pods: String(pods) } };
  const quota = { apiVersion: "v1", kind: "ResourceQuota", metadata: { name, namespace }, spec };
  await using undo = new AsyncDisposableStack();
  undo.use(await suite.applied(quota));
  // A quota counts from the moment that its controller has filled its status in.
  const inForce = [`--for=jsonpath={.status.hard.pods}=${pods}`, "--timeout=30s"];
  await suite.kubectl(["-n", namespace, "wait", `resourcequota/${name}`, ...inForce]);
  return undo.move();
}
