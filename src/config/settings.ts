import { z } from "zod";
import { type GatewaySettings, gatewaySchema } from "./gateway.ts";
import { type KubernetesSettings, kubernetesSchema } from "./kubernetes.ts";

/** A whole gateway.toml, as it is written. */
export const documentSchema = z.strictObject({
  openshell: z.strictObject({
    version: z.literal(2),
    gateway: gatewaySchema.prefault({}),
    drivers: z.strictObject({ kubernetes: kubernetesSchema.prefault({}) }).prefault({}),
  }),
});

/** What a gateway.toml says, defaults filled in, under the TOML names. */
export interface Settings {
  readonly gateway: GatewaySettings;
  readonly kubernetes: KubernetesSettings;
}

/** The tables of a gateway.toml by their dotted names, in the order of the documentation. */
export const tables = {
  "openshell.gateway": gatewaySchema,
  "openshell.drivers.kubernetes": kubernetesSchema,
} as const satisfies Readonly<Record<string, z.ZodType>>;

/** Every setting at its default: what an empty pair of tables means. */
export function defaultSettings(): Settings {
  return { gateway: gatewaySchema.parse({}), kubernetes: kubernetesSchema.parse({}) };
}
