/** Requests above their limits: what the API server, or the gateway at its start, would refuse only when the release is on its way. */
import { minimumWorkloadMemory } from "../config/index.ts";
import { values } from "./_values.ts";
import { effective } from "./gateway-toml.ts";
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
  text,
  variable,
  when,
} from "./layer/index.ts";

type Quantities = Readonly<Record<string, string>>;

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

const isSaid = (table: Expr<Quantities>, key: Input<string>) => call<string>("get", table, key);

function refuseAboveLimit(name: string, requests: Expr<Quantities>, limits: Expr<Quantities>): Block {
  return [
    forEach<string, string>(requests, (request, key) => {
      const limit = isSaid(limits, key);
      return [
        when(and(request, limit), [
          guard(
            isAbove(request, limit),
            text`${name}.requests.${key}: ${request} is above its limit ${limit}; lower the request or raise limits.${key}`,
          ),
        ]),
      ];
    }),
  ];
}

const driver = "openshell.drivers.kubernetes";

export const refuseResources: Block = [
  ...refuseAboveLimit("resources", values.resources.requests, values.resources.limits),
  ...refuseAboveLimit("pkiInitJob.resources", values.pkiInitJob.resources.requests, values.pkiInitJob.resources.limits),
  ...(["supervisor_resources", "workload_resources"] as const).flatMap((pod) => {
    const requests = effective<Quantities>(`${driver}.${pod}.requests`);
    const limits = effective<Quantities>(`${driver}.${pod}.limits`);
    const name = `gatewayConfig: ${driver}.${pod}`;
    const memory = isSaid(limits, "memory");
    return [
      ...refuseAboveLimit(name, requests, limits),
      ...(pod === "supervisor_resources"
        ? []
        : [
            when(memory, [
              guard(
                isAbove(minimumWorkloadMemory, memory),
                text`${name}.limits.memory: ${memory} is too little; it takes at least ${minimumWorkloadMemory}, because the runtime and the agent share it`,
              ),
            ]),
          ]),
    ];
  }),
];

export const resourceHelpers = [quantityHelper];
