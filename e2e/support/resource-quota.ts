import { resourceQuotas } from "../../src/kube/index.ts";
import type { Conformance } from "./conformance.ts";

/** A ResourceQuota on the sandboxes' namespace, in force from the moment that this resolves until it is disposed of. */
export async function resourceQuota(suite: Conformance, name: string, hard: Readonly<Record<string, string>>) {
  const namespace = suite.release.sandboxNamespace;
  const quota = { apiVersion: "v1", kind: "ResourceQuota", metadata: { name, namespace }, spec: { hard } };
  await using undo = new AsyncDisposableStack();
  undo.use(await suite.applied(quota));
  // A quota counts from the moment that its controller has filled its status in.
  for (const [resource, amount] of Object.entries(hard)) {
    const inForce = `--for=jsonpath={.status.hard.${resource.replaceAll(".", "\\.")}}=${amount}`;
    await suite.kubectl(["-n", namespace, "wait", `resourcequota/${name}`, inForce, "--timeout=30s"]);
  }
  const kept = undo.move();
  return {
    /** What the cluster has counted so far. */
    used: async () => (await suite.kube.get(resourceQuotas, namespace, name)).status?.used,
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

/** Allows `pods` Pods in the sandboxes' namespace, those that are there included. */
export function podQuota(suite: Conformance, pods: number): Promise<AsyncDisposable> {
  return resourceQuota(suite, "conformance-pods", { pods: String(pods) });
}
