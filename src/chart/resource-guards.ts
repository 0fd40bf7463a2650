/** Requests above their limits: what the API server, or the gateway at its start, would refuse only when the release is on its way. */
import { defaultSettings, minimumWorkloadMemory } from "../config/index.ts";
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
  orElse,
  output,
  run,
  text,
  type Variable,
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

/** A quantity as a number: `mulf` counts in decimals, so that 100m and 0.1 are the same. */
export const quantityHelper = new Helper("openshell.quantity", () => {
  const quantity = argument<string>();
  const suffix = call<string>("regexFind", "([numkMGTPE]|[KMGTPE]i)$", quantity);
  return [output(call("mulf", call("trimSuffix", suffix, quantity), orElse(call("get", factors, suffix), "1")))];
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

/** A setting's quantities over its defaults, key by key. Sprig's own merges would take "", which removes a default, for nothing said. */
function merged(name: string, setting: string, defaults: Quantities): { table: Variable<Quantities>; block: Block } {
  const table = variable<Quantities>(name, { ...defaults });
  return {
    table,
    block: [
      table.declaration,
      forEach<string, string>(effective<Quantities>(setting), (quantity, key) => [
        run(call("set", table, key, quantity)),
      ]),
    ],
  };
}

const driver = "openshell.drivers.kubernetes";
const { kubernetes } = defaultSettings();

export const refuseResources: Block = [
  ...refuseAboveLimit("resources", values.resources.requests, values.resources.limits),
  ...refuseAboveLimit("pkiInitJob.resources", values.pkiInitJob.resources.requests, values.pkiInitJob.resources.limits),
  ...(["supervisor_resources", "workload_resources"] as const).flatMap((pod) => {
    const [requests, limits] = (["requests", "limits"] as const).map((part) =>
      merged(part, `${driver}.${pod}.${part}`, kubernetes[pod][part]),
    );
    if (requests === undefined || limits === undefined) return [];
    const name = `gatewayConfig: ${driver}.${pod}`;
    const memory = isSaid(limits.table, "memory");
    return [
      ...requests.block,
      ...limits.block,
      ...refuseAboveLimit(name, requests.table, limits.table),
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
