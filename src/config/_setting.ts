import { z } from "zod";
import type { ReservedKeys } from "./_grammar.ts";

/** When a changed setting takes effect. */
export type AppliesAt = "gateway-start" | "sandbox-start" | "new-workspaces";

/** What the reference, the comments of values.yaml and the JSON Schema say about one setting. */
export interface SettingHelp {
  /** Unit of a number, e.g. `seconds`. */
  readonly unit?: string;
  /** A value that an operator may copy. */
  readonly example?: unknown;
  /** Default: `sandbox-start` in the driver's tables, `gateway-start` elsewhere. */
  readonly applies?: AppliesAt;
  /** What a sandbox looks like while the cluster cannot give what the setting asks for. */
  readonly pending?: string;
}

declare module "zod" {
  interface GlobalMeta {
    unit?: string;
    example?: unknown;
    applies?: AppliesAt;
    pending?: string;
    /** Of the keys of a map. */
    reserved?: readonly ReservedKeys[];
  }
}

/**
 * One setting: its schema (bounds and default included) with the sentence that explains it. Called last, because zod keeps what is
 * said about a schema with exactly that schema object; so each setting has a schema of its own.
 */
export function setting<Schema extends z.ZodType>(schema: Schema, description: string, help: SettingHelp = {}): Schema {
  if (z.globalRegistry.has(schema)) throw new Error(`a schema is described twice, the second time as: ${description}`);
  // As `meta` does, without a copy of the schema.
  z.globalRegistry.add(schema, { description, ...help });
  return schema;
}
