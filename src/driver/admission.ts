import { cut } from "../common/cut.ts";
import { isPlainObject, sameField } from "./_json.ts";
import { admissionRules, type Rule, type RuleContext } from "./admission-rules.ts";

type Json = Record<string, unknown>;

/** A field of an admitted Pod that is not what was asked for. */
export interface Violation {
  /** As in `spec.containers[agent].env`. */
  readonly field: string;
  readonly expected: unknown;
  readonly admitted: unknown;
}

/** What was asked for, in the parts of a Pod that are compared. */
export interface ExpectedPod {
  readonly metadata: { readonly labels: Record<string, string>; readonly annotations: Record<string, string> };
  readonly spec: Json;
}

/**
 * Compares what admission made of a Pod with what was asked for. Every field is compared; `admissionRules` says what may differ, and why.
 *
 * @returns all differences that are not tolerated; empty when the Pod is what was asked for
 */
export function verifyAdmission(expected: ExpectedPod, admitted: Json, context: RuleContext): Violation[] {
  const violations: Violation[] = [];
  const metadata = (admitted.metadata ?? {}) as Json;
  // One is the Sandbox, by which a Pod is known as ours. Another would keep it when that is deleted: the garbage collector waits for both.
  const [, ...moreOwners] = (metadata.ownerReferences ?? []) as unknown[];
  const seen = {
    metadata: {
      labels: metadata.labels ?? {},
      annotations: metadata.annotations ?? {},
      ownerReferences: moreOwners,
    },
    spec: admitted.spec ?? {},
  };
  // What is absent is compared as a whole, and it is what is below the affinity that has a rule.
  const asked = { ...expected, spec: { ...expected.spec, affinity: expected.spec.affinity ?? {} } };
  compare(asked, seen, "", "", context, violations);
  return violations;
}

/** One sentence that names the field, for a condition. */
export function violationText(pod: string, violations: readonly Violation[], by = "admission"): string {
  const parts = violations.map(
    ({ field, expected, admitted }) => `${field} is ${show(admitted)} instead of ${show(expected)}`,
  );
  const shown = parts.slice(0, 3).join("; ");
  const more = parts.length > 3 ? `; and ${parts.length - 3} more` : "";
  return `${by} changed the ${pod} Pod: ${shown}${more}`;
}

function compare(
  expected: unknown,
  admitted: unknown,
  path: string,
  shown: string,
  context: RuleContext,
  violations: Violation[],
): void {
  const rule: Rule | undefined = context.rules?.[path] ?? admissionRules[path];
  if (rule !== undefined) {
    if (!rule.tolerates(expected, admitted, context))
      violations.push(...blamed(rule, expected, admitted, shown, context));
    return;
  }
  if (isPlainObject(expected) && isPlainObject(admitted)) {
    for (const key of new Set([...Object.keys(expected), ...Object.keys(admitted)])) {
      const below = path === "" ? key : `${path}.${key}`;
      compare(expected[key], admitted[key], below, shown === "" ? key : `${shown}.${key}`, context, violations);
    }
    return;
  }
  if (Array.isArray(expected) && Array.isArray(admitted) && [...expected, ...admitted].every(isPlainObject)) {
    compareLists(expected, admitted, path, shown, context, violations);
    return;
  }
  const name = path.slice(path.lastIndexOf(".") + 1);
  if (!sameField(name, expected, admitted)) violations.push({ field: shown, expected, admitted });
}

/** Of labels and annotations only those that are to blame: a condition has no room for all of them. */
function blamed(rule: Rule, expected: unknown, admitted: unknown, shown: string, context: RuleContext): Violation[] {
  const whole = [{ field: shown, expected, admitted }];
  if (!shown.startsWith("metadata.") || !isPlainObject(expected) || !isPlainObject(admitted)) return whole;
  const only = (map: Json, key: string) => (key in map ? { [key]: map[key] } : {});
  const found = [...new Set([...Object.keys(expected), ...Object.keys(admitted)])]
    .filter((key) => !rule.tolerates(only(expected, key), only(admitted, key), context))
    .map((key) => ({ field: `${shown}.${key}`, expected: expected[key], admitted: admitted[key] }));
  return found.length > 0 ? found : whole;
}

/** Items that have a name are matched by it, others by their place. */
function compareLists(
  expected: readonly unknown[],
  admitted: readonly unknown[],
  path: string,
  shown: string,
  context: RuleContext,
  violations: Violation[],
): void {
  const key = (item: unknown, index: number) =>
    isPlainObject(item) && typeof item.name === "string" ? item.name : String(index);
  const named = (items: readonly unknown[]) =>
    new Map(items.map((item, index) => [keyUnlessMount(path, item, index, key), item]));
  const [left, right] = [named(expected), named(admitted)];
  for (const name of new Set([...left.keys(), ...right.keys()])) {
    compare(left.get(name), right.get(name), `${path}[]`, `${shown}[${name}]`, context, violations);
  }
  const order = (items: Map<string, unknown>) =>
    [...items.keys()].filter((name) => left.has(name) && right.has(name)).join();
  // The order of init containers and of variables is part of their meaning.
  if (order(left) !== order(right))
    violations.push({ field: `${shown} (order)`, expected: [...left.keys()], admitted: [...right.keys()] });
}

/** Several mounts share one volume's name: they are told apart by their path. */
function keyUnlessMount(
  path: string,
  item: unknown,
  index: number,
  key: (item: unknown, index: number) => string,
): string {
  if (path.endsWith("volumeMounts") && isPlainObject(item)) return String(item.mountPath);
  return key(item, index);
}

function show(value: unknown): string {
  if (value === undefined) return "absent";
  return cut(JSON.stringify(value), 160);
}
