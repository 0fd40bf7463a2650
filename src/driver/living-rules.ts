import { isPlainObject, type JsonObject, same } from "./_json.ts";
import { actsOnNode, comesWithNode, contains, namesKnown, type Rule } from "./admission-rules.ts";

/** Variables that each container of today's Pods has and none had before seals; `init` those that its init containers have besides. */
const youngerVariables = {
  all: ["OPENSSL_MODULES", "NODE_COMPILE_CACHE", "NODE_V8_COVERAGE", "NODE_DEBUG", "NODE_DEBUG_NATIVE"],
  init: ["OPENSHELL_FENCE_TARGETS"],
};

const ofClasses: Rule = {
  why: "the classes of today are not those that the Pod was made under: one may be gone, or another the default",
  tolerates: () => true,
};

/**
 * In place of `admissionRules` for a Pod that runs and that a gateway before seals released: what the API server lets somebody change in a
 * living Pod, and what of its making nobody knows any more. What decides where it may reach and who it is stays compared.
 */
export const livingRules: Readonly<Record<string, Rule>> = {
  "metadata.annotations": {
    why: "nobody acts on the others once the Pod is made",
    tolerates: (expected, admitted) => {
      const [asked, there] = [expected, admitted].map((side) => (isPlainObject(side) ? side : {})) as JsonObject[];
      const keys = Object.keys({ ...asked, ...there }).filter((key) => actsOnNode(key) && !comesWithNode(key));
      return keys.every((key) => same(asked?.[key], there?.[key]));
    },
  },
  "metadata.ownerReferences": {
    why: "more owners let nothing out: the driver ends the Pod by its name, whoever else owns it",
    tolerates: () => true,
  },
  "spec.activeDeadlineSeconds": { why: "its node ends the Pod sooner", tolerates: () => true },
  "spec.priority": ofClasses,
  "spec.priorityClassName": {
    why: "the default class of another day, where the Pod named none",
    tolerates: (expected, admitted) => same(expected, undefined) || same(expected, admitted),
  },
  "spec.preemptionPolicy": ofClasses,
  "spec.overhead": ofClasses,
  "spec.nodeSelector": {
    why: "a RuntimeClass that has changed since added labels of nodes; what was asked for has to stay",
    tolerates: (expected, admitted) => contains(admitted, expected),
  },
  ...containerRules("spec.containers[]"),
  ...containerRules("spec.initContainers[]"),
};

function containerRules(path: string): Record<string, Rule> {
  const { all, init } = youngerVariables;
  const younger = path === "spec.initContainers[]" ? [...all, ...init] : all;
  return {
    [`${path}.env[]`]: {
      why: "a variable that Pods have since may be absent; none may have another value",
      tolerates: (expected, admitted) =>
        same(expected, admitted) ||
        (admitted === undefined && isPlainObject(expected) && younger.includes(String(expected.name))),
    },
    [`${path}.resources`]: {
      why: "the amounts of an in-place resize; a device of the node is nobody's to add",
      tolerates: (expected, admitted) => namesKnown(expected, admitted),
    },
    [`${path}.resizePolicy`]: {
      why: "a newer API server fills it in; it says how a container takes a resize",
      tolerates: () => true,
    },
  };
}
