/** Looking into zod schemas: what the error texts, the JSON Schema and the reference derive from them. */
import { z } from "zod";

/** The schema without the wrappers that only add a default, a transformation or optionality. */
export function core(schema: z.core.$ZodType): z.core.$ZodType {
  let inner = schema;
  for (;;) {
    if (
      inner instanceof z.ZodOptional ||
      inner instanceof z.ZodDefault ||
      inner instanceof z.ZodPrefault ||
      inner instanceof z.ZodNullable
    ) {
      inner = inner.unwrap();
    } else if (inner instanceof z.ZodPipe) inner = inner.in;
    else return inner;
  }
}

/** The schema of what is at `path`; undefined where there is none. */
export function schemaAt(schema: z.core.$ZodType, path: readonly PropertyKey[]): z.core.$ZodType | undefined {
  let current: z.core.$ZodType | undefined = schema;
  for (const step of path) {
    if (current === undefined) return undefined;
    const inner: z.core.$ZodType = core(current);
    if (inner instanceof z.ZodObject) current = inner.shape[String(step)];
    else if (inner instanceof z.ZodRecord) current = inner.valueType;
    else if (inner instanceof z.ZodArray) current = inner.element;
    else return undefined;
  }
  return current;
}

/** The names a table knows; undefined when it takes any. */
export function keysAt(schema: z.core.$ZodType, path: readonly PropertyKey[]): string[] | undefined {
  const found = schemaAt(schema, path);
  const inner = found === undefined ? undefined : core(found);
  return inner instanceof z.ZodObject ? Object.keys(inner.shape) : undefined;
}
