/** Requests that do not go with their limits: what the API server, or the gateway at its start, would refuse only when the release is on its way. */
import { minimumWorkloadMemory, oneAmount, overcommittable } from "../config/index.ts";
import { values } from "./_values.ts";
import { effective } from "./gateway-toml.ts";
import {
  and,
  type Block,
  call,
  type Expr,
  equal,
  forEach,
  guard,
  type Input,
  not,
  or,
  text,
  when,
} from "./layer/index.ts";
import { isAbove, type Quantities, quantityHelper, refuseWrongOrder } from "./quantities.ts";

const isSaid = (table: Expr<Quantities>, key: Input<string>) => call<string>("get", table, key);

function refuseApartFromLimit(name: string, requests: Expr<Quantities>, limits: Expr<Quantities>): Block {
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
        when(and(request, not(call("has", key, overcommittable))), [
          guard(
            or(not(limit), isAbove(limit, request)),
            text`${name}.requests.${key}: ${request} is not the limit too, ${oneAmount}`,
          ),
        ]),
      ];
    }),
  ];
}

const driver = "openshell.drivers.kubernetes";

export const refuseResources: Block = [
  ...refuseApartFromLimit("resources", values.resources.requests, values.resources.limits),
  ...refuseApartFromLimit(
    "pkiInitJob.resources",
    values.pkiInitJob.resources.requests,
    values.pkiInitJob.resources.limits,
  ),
  ...(["supervisor_resources", "workload_resources"] as const).flatMap((pod) => {
    const requests = effective<Quantities>(`${driver}.${pod}.requests`);
    const limits = effective<Quantities>(`${driver}.${pod}.limits`);
    const name = `gatewayConfig: ${driver}.${pod}`;
    const memory = isSaid(limits, "memory");
    return [
      ...refuseApartFromLimit(name, requests, limits),
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
  when(values.limitRange.enabled, [
    ...refuseWrongOrder(values.limitRange),
    when(equal(effective<string>(`${driver}.workspace_mode`), "shared"), [
      ...refuseSupervisors("max", "limits", "raise"),
      ...refuseSupervisors("min", "requests", "lower"),
    ]),
  ]),
];

/** A bound that every supervisor breaks: callers may ask for other workloads, and for no other supervisor. */
function refuseSupervisors(bound: "min" | "max", part: "requests" | "limits", remedy: "raise" | "lower"): Block {
  return [
    forEach<string, string>(values.limitRange[bound], (amount, key) => {
      const said = isSaid(effective<Quantities>(`${driver}.supervisor_resources.${part}`), key);
      const isBroken = bound === "max" ? isAbove(said, amount) : isAbove(amount, said);
      return [
        when(said, [
          guard(
            isBroken,
            text`limitRange.${bound}.${key}: ${amount} forbids every supervisor, whose ${part}.${key} are ${said}; ${remedy} it, or change supervisor_resources in gatewayConfig`,
          ),
        ]),
      ];
    }),
  ];
}

export const resourceHelpers = [quantityHelper];
