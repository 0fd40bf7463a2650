import { z } from "zod";
import { tables } from "./settings.ts";

/** A JSON Schema, draft 7: what Helm and editors read. */
export interface JsonSchema {
  type?: string | string[];
  description?: string;
  default?: unknown;
  examples?: unknown[];
  enum?: unknown[];
  const?: unknown;
  properties?: Record<string, JsonSchema>;
  additionalProperties?: boolean | JsonSchema;
  propertyNames?: JsonSchema;
  patternProperties?: Record<string, JsonSchema>;
  items?: JsonSchema;
  anyOf?: JsonSchema[];
  required?: string[];
  [keyword: string]: unknown;
}

/** Helm turns larger whole numbers into floats before any template or schema sees them. */
const largestInteger = Number.MAX_SAFE_INTEGER;

/** The JSON Schema of what may be written for a zod schema: nothing is required that has a default. */
export function jsonSchemaOf(schema: z.ZodType): JsonSchema {
  const { $schema: _, ...made } = z.toJSONSchema(schema, {
    target: "draft-7",
    io: "input",
    unrepresentable: "any",
    override: ({ zodSchema, jsonSchema }) => {
      // A map is filled up with its defaults; those of a table stand at its keys.
      if (zodSchema instanceof z.ZodPrefault && jsonSchema.properties === undefined) {
        jsonSchema.default = zodSchema.parse(undefined) as typeof jsonSchema.default;
      }
      const { unit, example } = jsonSchema as { unit?: string; example?: unknown };
      for (const key of ["unit", "example", "applies", "pending", "reserved"]) delete jsonSchema[key];
      // Every name in JSON is a string.
      if (JSON.stringify(jsonSchema.propertyNames) === '{"type":"string"}') delete jsonSchema.propertyNames;
      keepPlaceOfKeys(jsonSchema as JsonSchema);
      sayOnce(jsonSchema as JsonSchema);
      if (example !== undefined) jsonSchema.examples = [example];
      if (unit !== undefined) jsonSchema.description = `${jsonSchema.description ?? ""} In ${unit}.`;
      if (jsonSchema.type === "integer") {
        jsonSchema.minimum ??= -largestInteger;
        jsonSchema.maximum ??= largestInteger;
      }
    },
  });
  return made as JsonSchema;
}

/** A key of another form as a property too many: of that Helm says where it is, of a name that does not fit it does not. */
function keepPlaceOfKeys(schema: JsonSchema): void {
  const { propertyNames, additionalProperties } = schema;
  if (typeof propertyNames?.pattern !== "string" || typeof additionalProperties !== "object") return;
  schema.patternProperties = { [propertyNames.pattern]: additionalProperties };
  schema.additionalProperties = false;
  delete schema.propertyNames;
}

/** Of an address Helm says in words what is wrong where a format asks for it; it knows none for a network. */
function sayOnce(schema: JsonSchema): void {
  const { format } = schema;
  if (format === "ipv4" || format === "ipv6") delete schema.pattern;
  else delete schema.format;
}

/** The same schema with null allowed for everything in it: in gatewayConfig, null leaves a setting out. */
export function nullable(schema: JsonSchema): JsonSchema {
  const inner: JsonSchema = { ...schema };
  delete inner.required;
  if (inner.properties) inner.properties = mapValues(inner.properties, nullable);
  if (inner.patternProperties) inner.patternProperties = mapValues(inner.patternProperties, nullable);
  if (typeof inner.additionalProperties === "object") inner.additionalProperties = nullable(inner.additionalProperties);
  if (inner.items) inner.items = withoutNull(inner.items);
  if (inner.anyOf) return { ...inner, anyOf: [...inner.anyOf.map(withoutNull), { type: "null" }] };
  if (inner.const !== undefined) {
    inner.enum = [inner.const];
    delete inner.const;
  }
  if (inner.enum) inner.enum = [...inner.enum, null];
  if (inner.type !== undefined) inner.type = [inner.type, "null"].flat();
  return inner;
}

/** Null inside a list means nothing, so it is refused there, but the fields of the list's entries may be null again. */
function withoutNull(schema: JsonSchema): JsonSchema {
  const inner = { ...schema };
  if (inner.properties) inner.properties = mapValues(inner.properties, nullable);
  delete inner.required;
  return inner;
}

/**
 * The schema of gatewayConfig: the keys are the dotted names of TOML tables. A table below another one may be given by its own name or
 * nested in its parent. `openshell` is admitted only so that the chart can explain how `--set` wants dots escaped.
 */
export function gatewayConfigSchema(): JsonSchema {
  const properties: Record<string, JsonSchema> = {
    openshell: {
      description:
        "A mistake: the dots of a table name were not escaped in --set. The chart refuses it with the right spelling.",
    },
  };
  for (const [name, schema] of Object.entries(tables)) collectTables(name, jsonSchemaOf(schema), properties);
  return {
    type: ["object", "null"],
    description:
      "Settings of the gateway. Keys are the names of TOML tables, for example openshell.drivers.kubernetes; null leaves a setting out.",
    additionalProperties: false,
    properties,
  };
}

function collectTables(name: string, schema: JsonSchema, into: Record<string, JsonSchema>): void {
  into[name] = nullable(schema);
  for (const [key, inner] of Object.entries(schema.properties ?? {})) {
    if (inner.type === "object") collectTables(`${name}.${key}`, inner, into);
  }
}

function mapValues<From, To>(record: Readonly<Record<string, From>>, change: (value: From) => To): Record<string, To> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, change(value)]));
}
