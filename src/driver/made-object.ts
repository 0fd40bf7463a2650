import type { KubeObject } from "../kube/index.ts";
import { labels, type ManifestObject } from "../manifests/index.ts";
import { generationOf, sandboxIdOf } from "./observed.ts";

const identityLabels = [labels.gatewayId, labels.sandboxId, labels.pairId];

/** What our watches and plans know an object by and that is not as it was asked for, as the fields' names. */
export function changedIdentity(made: KubeObject, asked: ManifestObject): string[] {
  const changedLabels = identityLabels.filter((key) => made.metadata?.labels?.[key] !== asked.metadata.labels?.[key]);
  const ownersOf = ({ metadata }: KubeObject) => metadata?.ownerReferences?.map(({ uid }) => uid) ?? [];
  const isOrphan = ownersOf(asked).some((uid) => !ownersOf(made).includes(uid));
  const isElsewhere = changedLabels.length === 0 && sandboxIdOf(made) !== sandboxIdOf(asked);
  return [
    ...changedLabels.map((key) => `metadata.labels.${key}`),
    ...(isOrphan ? ["metadata.ownerReferences"] : []),
    ...(generationOf(made) === generationOf(asked) ? [] : ["the variable OPENSHELL_GENERATION_ID"]),
    ...(isElsewhere ? ["the variable OPENSHELL_SANDBOX_ID"] : []),
  ];
}

/** Owned by another Sandbox than the one that it is asked for. */
export function isOfFormer(found: KubeObject, { metadata }: ManifestObject): boolean {
  const owner = metadata.ownerReferences?.[0]?.uid;
  return found.metadata?.ownerReferences?.some(({ kind, uid }) => kind === "Sandbox" && uid !== owner) ?? false;
}

/** Made by us, for the same sandbox and generation. */
export function isSameObject(found: KubeObject, manifest: ManifestObject): boolean {
  return identityLabels.every((key) => found.metadata?.labels?.[key] === manifest.metadata.labels?.[key]);
}
