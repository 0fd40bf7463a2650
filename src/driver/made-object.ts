import { OpenShellError } from "../common/errors.ts";
import { isAlreadyExists, isNotFound, type KubeObject, type Live } from "../kube/index.ts";
import { labels, type ManifestObject } from "../manifests/index.ts";
import { ignoring } from "./_ignoring.ts";
import type { LeadingClient } from "./leading-client.ts";
import { generationOf, sandboxIdOf } from "./observed.ts";
import type { WriteOverlay } from "./overlay.ts";
import type { GenerationRecord } from "./record.ts";

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

/**
 * Makes an object of a sandbox, or finds the one that a former try made; either counts as shown then.
 *
 * @returns whether this call made it
 * @throws already-exists with reason NameTaken; failed-precondition with reason AdmissionViolation when nobody would know it as ours
 */
export async function makeObject(
  { client, overlay }: { readonly client: LeadingClient; readonly overlay: WriteOverlay },
  resource: Parameters<LeadingClient["create"]>[0],
  { settings: { namespace }, sandbox }: GenerationRecord,
  manifest: ManifestObject,
): Promise<boolean> {
  const { name } = manifest.metadata;
  let made: Live<KubeObject>;
  let isNew = true;
  try {
    made = await client.create(resource, namespace, manifest as KubeObject);
  } catch (error) {
    if (!isAlreadyExists(error)) throw error;
    // Our own of a former try, which no watch has shown yet, or somebody else's.
    const { items } = await client.list(resource, namespace, { fieldSelector: `metadata.name=${name}` });
    const [found] = items;
    // One of a former Sandbox of this name ends after it.
    if (found === undefined || isOfFormer(found, manifest)) throw error;
    if (!isSameObject(found, manifest)) {
      throw new OpenShellError(
        "already-exists",
        `${resource.kind} "${name}" in namespace ${namespace} belongs to somebody else`,
        { reason: "NameTaken", cause: error },
      );
    }
    made = found;
    isNew = false;
  }
  const changed = changedIdentity(made, manifest);
  if (changed.length > 0) {
    // No watch of ours would show it again, or no plan would know it.
    const { uid } = made.metadata;
    await ignoring(isNotFound, client.delete(resource, namespace, name, { preconditions: { uid } }));
    throw new OpenShellError(
      "failed-precondition",
      `admission changed ${changed.join(", ")} of ${resource.kind} "${name}"`,
      { reason: "AdmissionViolation" },
    );
  }
  overlay.put(sandbox.id, resource.plural, made);
  return isNew;
}
