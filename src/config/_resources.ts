import { z } from "zod";
import { removableQuantity, resourceName } from "./_grammar.ts";
import { setting } from "./_setting.ts";
import { compareQuantities, isQuantity } from "./quantity.ts";

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

/** The schema of a `*_resources` table. */
export function resources(defaults: Resources, options: { readonly minimumMemoryLimit?: string } = {}) {
  const part = (name: "requests" | "limits") =>
    z
      .record(resourceName(), removableQuantity())
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
      for (const [name, request] of Object.entries(requests)) {
        const limit = limits[name];
        if (limit === undefined || !isQuantity(limit) || !isQuantity(request)) continue;
        if (compareQuantities(request, limit) > 0) {
          context.addIssue({
            code: "custom",
            path: ["requests", name],
            message: `a request that is not above its limit ${limit}; lower the request or raise limits.${name}`,
            input: request,
          });
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
        context.addIssue({
          code: "custom",
          path: ["limits", "memory"],
          message: `a memory limit of at least ${minimum}, because the runtime and the agent share it`,
          input: memory,
        });
      }
    })
    .prefault({});
}
