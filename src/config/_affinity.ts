/** The affinity of a Pod spec, in Kubernetes' own field names, as far down as it goes: below it the API server drops what it does not know. */
import { z } from "zod";

const setOperators = ["In", "NotIn", "Exists", "DoesNotExist"] as const;

/** A demand on the value of a label. */
function requirement<const Operators extends readonly string[]>(operators: Operators) {
  return z.strictObject({
    key: z.string().min(1),
    operator: z.enum(operators),
    values: z.array(z.string()).optional(),
  });
}

const labelSelector = z.strictObject({
  matchLabels: z.record(z.string(), z.string()).optional(),
  matchExpressions: z.array(requirement(setOperators)).optional(),
});

const nodeRequirement = requirement([...setOperators, "Gt", "Lt"]);

const nodeTerm = z.strictObject({
  matchExpressions: z.array(nodeRequirement).optional(),
  matchFields: z.array(nodeRequirement).optional(),
});

/** Without matchLabelKeys and mismatchLabelKeys: the API server rewrites the selector by them, and a Pod is held to what was asked for. */
const podTerm = z.strictObject({
  labelSelector: labelSelector.optional(),
  namespaces: z.array(z.string().min(1)).optional(),
  namespaceSelector: labelSelector.optional(),
  topologyKey: z.string().min(1),
});

const weight = z.int().min(1).max(100);

const podAffinity = z.strictObject({
  requiredDuringSchedulingIgnoredDuringExecution: z.array(podTerm).optional(),
  preferredDuringSchedulingIgnoredDuringExecution: z
    .array(z.strictObject({ weight, podAffinityTerm: podTerm }))
    .optional(),
});

const nodeAffinity = z.strictObject({
  requiredDuringSchedulingIgnoredDuringExecution: z
    .strictObject({ nodeSelectorTerms: z.array(nodeTerm).min(1) })
    .optional(),
  preferredDuringSchedulingIgnoredDuringExecution: z.array(z.strictObject({ weight, preference: nodeTerm })).optional(),
});

export const affinity = () =>
  z
    .strictObject({
      nodeAffinity: nodeAffinity.optional(),
      podAffinity: podAffinity.optional(),
      podAntiAffinity: podAffinity.optional(),
    })
    .meta({ description: "An affinity of the Pod spec, in Kubernetes' own field names." });
