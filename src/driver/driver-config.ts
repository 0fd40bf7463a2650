import { z } from "zod";
import { type FieldViolation, OpenShellError } from "../common/errors.ts";
import {
  droppedKeys,
  expectation,
  nearest,
  otherKey,
  positiveQuantityPattern,
  resourceName,
  tolerationFields,
  tolerationRules,
} from "../config/index.ts";
import type { Toleration } from "../manifests/index.ts";

/** What a caller may say in `driver_config`, where the operator allows it. Keys are snake_case; anything else is refused by its path. */
export interface DriverConfig {
  readonly nodeSelector: Readonly<Record<string, string>>;
  readonly tolerations: readonly Toleration[];
  readonly runtimeClassName: string;
  readonly priorityClassName: string;
  readonly requests: Readonly<Record<string, string>>;
  readonly limits: Readonly<Record<string, string>>;
}

const quantity = z
  .union([z.string(), z.number()])
  .transform(String)
  .refine((text) => positiveQuantityPattern.test(text), {
    error: 'a quantity above zero such as "500m", "2" or "4Gi"; leave it out for the operator\'s default',
  });
const quantities = z.record(resourceName(), quantity);
const objectName = z
  .string()
  .regex(/^$|^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/, { error: "the name of a Kubernetes object, or empty" });
const toleration = z
  .strictObject({ ...tolerationFields, toleration_seconds: z.int().optional() })
  .superRefine(tolerationRules("toleration_seconds", (expected) => `expected ${expected}`));

const schema = z.strictObject({
  pod: z
    .strictObject({
      node_selector: z.record(z.string().min(1), z.string()).optional(),
      tolerations: z.array(toleration).optional(),
      runtime_class_name: objectName.optional(),
      priority_class_name: objectName.optional(),
    })
    .optional(),
  containers: z
    .strictObject({
      agent: z
        .strictObject({
          resources: z.strictObject({ requests: quantities.optional(), limits: quantities.optional() }).optional(),
        })
        .optional(),
    })
    .optional(),
});

/** The keys of each table, for the nearest valid name. */
const known: Readonly<Record<string, readonly string[]>> = {
  "": ["pod", "containers"],
  pod: ["node_selector", "tolerations", "runtime_class_name", "priority_class_name"],
  containers: ["agent"],
  "containers.agent": ["resources"],
  "containers.agent.resources": ["requests", "limits"],
};

/**
 * Reads the driver's own object of the `driver_config` envelope.
 *
 * @throws invalid-argument with every violation and its path
 */
export function parseDriverConfig(value: Readonly<Record<string, unknown>>): DriverConfig {
  // The envelope is keyed by driver names. The gateway hands on our object alone; a caller who hands on the whole is understood too.
  const keys = Object.keys(value);
  const own = keys.length === 1 && keys[0] === "kubernetes" ? value.kubernetes : value;
  const dropped = droppedKeys(own);
  if (dropped.length > 0) throw refusal(dropped.map((path) => ({ field: fieldOf(path), description: otherKey })));
  const parsed = schema.safeParse(own, { error: expectedOfCaller });
  if (!parsed.success) throw refusal(parsed.error.issues.flatMap(violationsOf));
  const { pod = {}, containers = {} } = parsed.data;
  return {
    nodeSelector: pod.node_selector ?? {},
    tolerations: (pod.tolerations ?? []).map(({ toleration_seconds, ...rest }) => ({
      ...rest,
      ...(toleration_seconds === undefined ? {} : { tolerationSeconds: toleration_seconds }),
    })),
    runtimeClassName: pod.runtime_class_name ?? "",
    priorityClassName: pod.priority_class_name ?? "",
    requests: containers.agent?.resources?.requests ?? {},
    limits: containers.agent?.resources?.limits ?? {},
  };
}

/** As an operator reads it, but the tables of a caller are JSON's. */
function expectedOfCaller(issue: z.core.$ZodRawIssue): string {
  const isObject = issue.code === "invalid_type" && (issue.expected === "object" || issue.expected === "record");
  return isObject ? "an object" : expectation(issue);
}

const fieldOf = (path: readonly PropertyKey[]) => ["template.driver_config.kubernetes", ...path.map(String)].join(".");

function violationsOf(issue: z.core.$ZodIssue): FieldViolation[] {
  const { path } = issue;
  if (issue.code !== "unrecognized_keys") return [{ field: fieldOf(path), description: issue.message }];
  return issue.keys.map((key) => {
    const suggestion = nearest(key, known[path.join(".")] ?? []);
    const hint = suggestion === undefined ? "" : `; did you mean ${suggestion}?`;
    return { field: fieldOf([...path, key]), description: `unknown field${hint}` };
  });
}

function refusal(violations: readonly FieldViolation[]): OpenShellError {
  const text = violations.map(({ field, description }) => `${field}: ${description}`).join("; ");
  return new OpenShellError("invalid-argument", text, { reason: "InvalidDriverConfig", violations });
}
