/** Amounts of Kubernetes, and which of two is more: what the API server would refuse only when the release is on its way. */
import {
  and,
  argument,
  type Block,
  call,
  type Expr,
  forEach,
  guard,
  Helper,
  type Input,
  output,
  type Ref,
  text,
  variable,
  when,
} from "./layer/index.ts";
import type { ChartValues } from "./values-schema.ts";

export type Quantities = Readonly<Record<string, string>>;

const powers = (base: number, suffixes: readonly string[]) =>
  Object.fromEntries(suffixes.map((suffix, index) => [suffix, String(base ** (index + 1))]));
const factors = {
  n: "0.000000001",
  u: "0.000001",
  m: "0.001",
  ...powers(1000, ["k", "M", "G", "T", "P", "E"]),
  ...powers(1024, ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]),
};

/**
 * A quantity as a number: `mulf` counts in decimals, so that 100m and 0.1 are the same. What is left of it without digits is its suffix, or
 * the e of an exponent, after which there are digits.
 */
export const quantityHelper = new Helper("openshell.quantity", () => {
  const quantity = argument<string>();
  const suffix = variable<string>("suffix", call("trimAll", "0123456789.+-", quantity));
  const factor = variable<string>("factor", call("get", factors, suffix));
  return [
    suffix.declaration,
    factor.declaration,
    when(
      and(factor, call("hasSuffix", suffix, quantity)),
      [output(call("mulf", call("trimSuffix", suffix, quantity), factor))],
      [output(call("mulf", quantity, "1"))],
    ),
  ];
});

/** Whether one quantity is above another. */
export function isAbove(left: Input<string>, right: Input<string>): Expr<boolean> {
  const numbers = [left, right].map((quantity) => call("float64", quantityHelper.include(quantity)));
  return call("gt", ...numbers);
}

/** The parts of a LimitRange, of which none may be above a later one. */
const ascending = ["min", "defaultRequest", "default", "max"] as const;
const pairs = ascending.flatMap((lower, index) => ascending.slice(index + 1).map((upper) => [lower, upper]));

/** Refuses a LimitRange that the API server would not take. */
export function refuseWrongOrder(limitRange: Ref<ChartValues["limitRange"]>): Block {
  return [
    forEach<number, readonly string[]>(pairs, (pair) => {
      const [lower, upper] = [0, 1].map((index) => call<string>("index", pair, index)) as [Expr<string>, Expr<string>];
      return [
        forEach<string, string>(call("get", limitRange, lower), (amount, key) => {
          const bound = call<string>("get", call("get", limitRange, upper), key);
          return [
            when(bound, [
              guard(
                isAbove(amount, bound),
                text`limitRange.${lower}.${key}: ${amount} is above limitRange.${upper}.${key} ${bound}; lower the first, or raise the second`,
              ),
            ]),
          ];
        }),
      ];
    }),
  ];
}
