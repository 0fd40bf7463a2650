import { z } from "zod";
import type { ReservedKeys } from "./_grammar.ts";
import { core } from "./_walk.ts";
import { tables } from "./settings.ts";

/** Settings that are maps in which some keys are refused, by their full TOML paths. */
export function settingsWithReservedKeys(): { readonly key: string; readonly reserved: readonly ReservedKeys[] }[] {
  return Object.entries(tables).flatMap(([name, schema]) => within(name, schema));
}

function within(path: string, schema: z.core.$ZodType): ReturnType<typeof settingsWithReservedKeys> {
  const inner = core(schema);
  if (inner instanceof z.ZodObject)
    return Object.entries(inner.shape as Record<string, z.ZodType>).flatMap(([key, part]) =>
      within(`${path}.${key}`, part),
    );
  if (!(inner instanceof z.ZodRecord)) return [];
  const { reserved = [] } = z.globalRegistry.get(inner.keyType) ?? {};
  return reserved.length === 0 ? [] : [{ key: path, reserved }];
}
