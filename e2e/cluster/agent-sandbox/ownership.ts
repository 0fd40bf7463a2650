import type { AgentSandbox, KubeObject, Live } from "../../../src/kube/index.ts";
import { adoptableLabel, nameHash, nameHashLabel } from "./names.ts";
import { controllerOf } from "./objects.ts";

/** Whose an object is that has the name this sandbox would use. */
export type Ownership =
  | { readonly whose: "ours" }
  | { readonly whose: "adoptable" }
  | { readonly whose: "foreign"; readonly why: string };

/** @param kind as error texts call it: `pod`, `pvc`, `service` */
export function ownershipOf(sandbox: Live<AgentSandbox>, kind: string, object: Live<KubeObject>): Ownership {
  const owner = controllerOf(object);
  const { name, labels = {} } = object.metadata;
  if (owner?.uid === sandbox.metadata.uid) return { whose: "ours" };
  if (owner !== undefined) {
    const whose = `${owner.kind}/${owner.name} (UID: ${owner.uid})`;
    return {
      whose: "foreign",
      why: `${kind} "${name}" is owned by ${whose}, not by sandbox "${sandbox.metadata.name}"`,
    };
  }
  const isTracked = labels[nameHashLabel] === nameHash(sandbox.metadata.name);
  if (labels[adoptableLabel] === "true" || isTracked) return { whose: "adoptable" };
  return {
    whose: "foreign",
    why:
      `cannot adopt unowned ${kind} "${name}": missing required pool authorization label ("${adoptableLabel}") ` +
      `or sandbox tracking label ("${nameHashLabel}")`,
  };
}
