import type { Live, Pod } from "../../src/kube/index.ts";
import type { Conformance } from "./conformance.ts";

/** Evicts a Pod through the eviction API, as a drain does. */
export async function evict(suite: Conformance, { metadata: { name, namespace } }: Live<Pod>): Promise<void> {
  const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace } };
  const path = `/api/v1/namespaces/${namespace}/pods/${name}/eviction`;
  await suite.kubectl(["create", "--raw", path, "-f", "-"], { input: JSON.stringify(eviction) });
}
