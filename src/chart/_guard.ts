import { once, values } from "./_values.ts";
import {
  and,
  call,
  type Expr,
  forEach,
  guard,
  type Input,
  not,
  or,
  type Refusal,
  type Statement,
  serves,
  text,
  when,
} from "./layer/index.ts";

/** A combination of values that is refused, with one sentence that names the keys and the remedy. */
export type ChartGuard = Refusal;

export const isEmpty = (value: Expr<unknown>) => call<boolean>("empty", value);

/** Every cluster serves Deployments, and nothing that knows no cluster does: `helm template` and `helm lint` say no. */
export const checksApis = once("checksApis", and(values.preflight.enabled, serves("apps/v1", "Deployment")));

/** An API that the values ask for and the cluster does not have. `anyOf` are its versions. */
export function needsApi(when: Input<unknown>, kind: string, anyOf: readonly string[], remedy: string): ChartGuard {
  return {
    refusedWhen: and(checksApis, when, not(or(...anyOf.map((apiVersion) => serves(apiVersion, kind))))),
    sentence: `this cluster does not serve ${kind} of ${anyOf.join(" or ")}${remedy}; or set preflight.enabled to false when the same sync installs it`,
  };
}

const comparisons = { "<": "lt", ">=": "ge" } as const;

/** Compares two durations as Go writes them, such as 1h30m. */
export function lasts(one: Input<string>, comparison: keyof typeof comparisons, other: Input<string>): Expr<boolean> {
  return call(comparisons[comparison], ...[one, other].map(endOf));
}

/** The second in which a duration from one fixed moment ends: what Helm can compare. */
function endOf(duration: Input<string>): Expr<number> {
  return call("int64", call("unixEpoch", call("dateModify", duration, call("toDate", "2006", "2000"))));
}

/** Refuses keys of a map that the chart writes itself: the same key twice is no YAML. */
export function refuseKeys(
  name: string,
  map: Expr<Readonly<Record<string, unknown>>>,
  pattern: string,
  remedy: string,
): Statement {
  return forEach<string, unknown>(map, (_, key) => [
    guard(call("regexMatch", pattern, key), text`${name}: ${key} ${remedy}`),
  ]);
}

/** Refuses entries of a list by their name. */
export function refuseNames(
  name: string,
  list: Expr<readonly Readonly<Record<string, unknown>>[]>,
  pattern: string,
  remedy: string,
): Statement {
  return forEach<number, Record<string, unknown>>(list, (item) => [
    when(call("hasKey", item, "name"), [
      guard(
        call("regexMatch", pattern, call("toString", call("get", item, "name"))),
        text`${name}: ${call<string>("get", item, "name")} ${remedy}`,
      ),
    ]),
  ]);
}
