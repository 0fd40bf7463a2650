import { persistentVolumeClaims, pods, type Resource, secrets, services } from "../../src/kube/index.ts";
import type { Conformance } from "./conformance.ts";

/** Whatever sandboxes are made of in their namespace, as `kind/name`, read from the API server. */
export async function objectNames(suite: Conformance): Promise<string[]> {
  const kinds: readonly Resource[] = [suite.resources.resource, pods, services, secrets, persistentVolumeClaims];
  const lists = await Promise.all(kinds.map((kind) => suite.kube.list(kind, suite.release.sandboxNamespace)));
  return lists.flatMap(({ items }, index) => items.map(({ metadata }) => `${kinds[index]?.kind}/${metadata.name}`));
}
