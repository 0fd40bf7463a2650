/** The affinity of a Pod spec, in Kubernetes' own field names, as far down as it goes: below it the API server drops what it does not know. */
import { z } from "zod";
import { anyLabels, dnsLabelName, implication, labelValue, objectName, qualifiedName, withField } from "./_grammar.ts";

const setOperators = ["In", "NotIn", "Exists", "DoesNotExist"] as const;
const wholeNumber = /^\d+$/;

/** What an operator asks of the values; the API server does too, but only when a Pod is made. Each as zod and as Helm reads it. */
const valuesOf = [
  {
    operators: ["In", "NotIn"],
    fits: (values: readonly string[]) => values.length > 0,
    keyword: withField("values", { type: "array", minItems: 1 }),
    expected: (operator: string) => `at least one value, since operator "${operator}" compares with them`,
  },
  {
    operators: ["Exists", "DoesNotExist"],
    fits: (values: readonly string[]) => values.length === 0,
    keyword: { properties: { values: { maxItems: 0 } } },
    expected: (operator: string) => `no values, since operator "${operator}" looks at the key alone`,
  },
  {
    operators: ["Gt", "Lt"],
    fits: ([value = "", ...more]: readonly string[]) => wholeNumber.test(value) && more.length === 0,
    keyword: withField("values", {
      type: "array",
      minItems: 1,
      maxItems: 1,
      items: { type: "string", pattern: wholeNumber.source },
    }),
    expected: (operator: string) => `one whole number in quotes, since operator "${operator}" compares with it`,
  },
];

/** A demand on the value of a label. */
function requirement<const Operators extends readonly string[]>(operators: Operators) {
  return z
    .strictObject({
      key: qualifiedName,
      operator: z.enum(operators),
      values: z.array(labelValue).optional(),
    })
    .superRefine(({ operator, values = [] }, context) => {
      const rule = valuesOf.find((one) => one.operators.includes(operator));
      if (rule === undefined || rule.fits(values)) return;
      context.addIssue({ code: "custom", path: ["values"], message: rule.expected(operator) });
    })
    .meta({
      allOf: valuesOf
        .filter((rule) => rule.operators.some((operator) => operators.includes(operator)))
        .map((rule) => implication(withField("operator", { enum: rule.operators }), rule.keyword)),
    });
}

const labelSelector = z.strictObject({
  matchLabels: anyLabels().optional(),
  matchExpressions: z.array(requirement(setOperators)).optional(),
});

/** The only field of a node that Kubernetes selects by. */
const nodeName = z.strictObject({
  key: z.literal("metadata.name"),
  operator: z.enum(["In", "NotIn"]),
  values: z.array(objectName()).min(1).max(1),
});

const nodeTerm = z.strictObject({
  matchExpressions: z.array(requirement([...setOperators, "Gt", "Lt"])).optional(),
  matchFields: z.array(nodeName).optional(),
});

/** Without matchLabelKeys and mismatchLabelKeys: the API server rewrites the selector by them, and a Pod is held to what was asked for. */
const podTerm = z.strictObject({
  labelSelector: labelSelector.optional(),
  namespaces: z.array(dnsLabelName()).optional(),
  namespaceSelector: labelSelector.optional(),
  topologyKey: qualifiedName,
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
