import type { Pod } from "../kube/index.ts";
import { same } from "./_json.ts";
import { admissionRules, type RuleContext } from "./admission-rules.ts";

const fields = ["priority", "priorityClassName", "preemptionPolicy", "overhead", "nodeSelector"] as const;

/** What the PriorityClasses and RuntimeClasses of the day made of a Pod when it came in. */
export type ClassMade = Readonly<Partial<Record<(typeof fields)[number], unknown>>>;

export function classMade({ spec }: Pod): ClassMade {
  return Object.fromEntries(fields.map((field) => [field, spec?.[field]]));
}

/** Whether classes decide what a field of a violation is. */
export function isClassMade(field: string): boolean {
  return fields.some((each) => field === `spec.${each}`);
}

/**
 * For a Pod that was verified whole and waits: an operator may change a class meanwhile, make another the default or delete one, which changes
 * nothing in the Pod.
 *
 * @param verified what was verified; undefined where nothing was
 */
export function classRules(verified: ClassMade | undefined): NonNullable<RuleContext["rules"]> {
  if (verified === undefined) return {};
  const rules = fields.map((field) => {
    const path = `spec.${field}`;
    const rule = {
      why: "it was verified under the classes of that day, and is what it was",
      tolerates: (expected: unknown, admitted: unknown, context: RuleContext) =>
        same(admitted, verified[field]) || admissionRules[path]?.tolerates(expected, admitted, context) === true,
    };
    return [path, rule] as const;
  });
  return Object.fromEntries(rules);
}
