import { expect } from "vitest";
import { resourceQuotas } from "../../src/kube/index.ts";
import type { Conformance } from "./conformance.ts";

/** A ResourceQuota on the sandboxes' namespace, in force from the moment that this resolves until it is disposed of. */
export async function resourceQuota(suite: Conformance, name: string, hard: Readonly<Record<string, string>>) {
  const namespace = suite.release.sandboxNamespace;
  const quota = { apiVersion: "v1", kind: "ResourceQuota", metadata: { name, namespace }, spec: { hard } };
  await using undo = new AsyncDisposableStack();
  undo.use(await suite.applied(quota));
  const status = async () => (await suite.kube.get(resourceQuotas, namespace, name)).status;
  // A quota counts from the moment that its controller has filled its status in.
  await expect.poll(async () => (await status())?.hard, { timeout: 30_000 }).toEqual(hard);
  const kept = undo.move();
  return {
    /** What the cluster has counted so far. */
    used: async () => (await status())?.used,
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}
