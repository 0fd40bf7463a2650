import { z } from "zod";
import { orEmpty, removableQuantity, resourceName } from "./_grammar.ts";
import { setting } from "./_setting.ts";
import { compareQuantities, isQuantity, wholeQuantityPattern } from "./quantity.ts";

/** Compute resources of one container, by resource name. */
export interface Resources {
  readonly requests: Readonly<Record<string, string>>;
  readonly limits: Readonly<Record<string, string>>;
}

/** What the supervisor gets when nothing is configured; measured (`npm run bench -- pair`, docs/adr/0022). This is the only place that has it. */
export const supervisorDefaults: Resources = {
  requests: { cpu: "50m", memory: "96Mi" },
  limits: { memory: "256Mi" },
};

/**
 * What a workload gets whose caller asks for nothing: what the runtime alone takes at work (docs/adr/0022), so that no Pod of a pair is
 * in QoS class BestEffort, the first that a kubelet evicts.
 */
export const workloadDefaults: Resources = {
  requests: { cpu: "50m", memory: "96Mi" },
  limits: {},
};

/** Runtime and agent share the workload's memory limit; below this the runtime alone does not fit. */
export const minimumWorkloadMemory = "128Mi";

/** `over` merged key by key over `defaults`; a key set to "" is gone. */
export function mergeQuantities(
  defaults: Readonly<Record<string, string>>,
  over: Readonly<Record<string, string>>,
): Record<string, string> {
  return Object.fromEntries(Object.entries({ ...defaults, ...over }).filter(([, value]) => value !== ""));
}

/** Of every other resource Kubernetes wants the request and the limit to be one. */
export const overcommittable: readonly string[] = ["cpu", "memory", "ephemeral-storage"];
/** Why, and what to do. */
export const oneAmount =
  "as Kubernetes wants it of all but cpu, memory and ephemeral-storage; remove the request, or set its limit to the same";

/** Of what a device plugin hands out nobody gets a part. */
export const wholeNumberForm = 'a whole number such as "1" of an extended resource';

/** The schema of a `*_resources` table. */
export function resources(defaults: Resources, options: { readonly minimumMemoryLimit?: string } = {}) {
  const part = (name: "requests" | "limits") =>
    z
      .record(resourceName(), removableQuantity())
      .meta({ allOf: [{ patternProperties: { "/": { pattern: orEmpty(wholeQuantityPattern).source } } }] })
      .transform((given) => mergeQuantities(defaults[name], given))
      .prefault({});
  return z
    .strictObject({
      requests: setting(
        part("requests"),
        'Requests by resource name, merged key by key over the default; "" removes a default.',
        { example: { cpu: "100m", memory: "128Mi" } },
      ),
      limits: setting(
        part("limits"),
        'Limits by resource name, merged key by key over the default; "" removes a default.',
        {
          example: { memory: "512Mi" },
        },
      ),
    })
    .superRefine(({ requests, limits }, context) => {
      const refuse = (part: "requests" | "limits", name: string, expected: string) =>
        context.addIssue({ code: "custom", path: [part, name], message: expected });
      for (const [name, request] of Object.entries(requests)) {
        const limit = limits[name];
        if (!isQuantity(request) || !isQuantity(limit ?? request)) continue;
        const excess = limit === undefined ? undefined : compareQuantities(request, limit);
        if (excess !== undefined && excess > 0) {
          // The file has no request where it is the default.
          if (request === defaults.requests[name])
            refuse(
              "limits",
              name,
              `a limit of at least ${request}, the default request; raise it or lower requests.${name}`,
            );
          else
            refuse(
              "requests",
              name,
              `a request that is not above its limit ${limit}; lower the request or raise limits.${name}`,
            );
        } else if (excess !== 0 && !overcommittable.includes(name)) {
          refuse("requests", name, `a request that is also the limit, ${oneAmount}`);
        }
      }
      for (const part of ["requests", "limits"] as const) {
        for (const [name, amount] of Object.entries({ requests, limits }[part])) {
          if (name.includes("/") && isQuantity(amount) && !wholeQuantityPattern.test(amount))
            refuse(part, name, wholeNumberForm);
        }
      }
      const memory = limits.memory;
      const minimum = options.minimumMemoryLimit;
      if (
        minimum !== undefined &&
        memory !== undefined &&
        isQuantity(memory) &&
        compareQuantities(memory, minimum) < 0
      ) {
        refuse("limits", "memory", `a memory limit of at least ${minimum}, because the runtime and the agent share it`);
      }
    })
    .prefault({});
}
