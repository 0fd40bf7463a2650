import type { DescMessage, JsonValue } from "@bufbuild/protobuf";

/** Messages whose JSON form is not an object of their fields. */
const wellKnown = /^google\.protobuf\./;

/**
 * Path of the first field in `json` that the message does not have, as `spec.template.imagee`; undefined when there is none. Both spellings
 * of protobuf JSON count: snake_case and camelCase.
 */
export function unknownField(schema: DescMessage, json: JsonValue, path = ""): string | undefined {
  if (typeof json !== "object" || json === null || Array.isArray(json) || wellKnown.test(schema.typeName))
    return undefined;
  for (const [key, value] of Object.entries(json)) {
    const at = path === "" ? key : `${path}.${key}`;
    const field = schema.fields.find((one) => one.name === key || one.jsonName === key);
    if (field === undefined) return at;
    if (field.message === undefined) continue;
    const message = field.message;
    const found = elements(field.fieldKind, value, at).map(([inner, where]) => unknownField(message, inner, where));
    const first = found.find((one) => one !== undefined);
    if (first !== undefined) return first;
  }
  return undefined;
}

function elements(kind: string, value: JsonValue, at: string): readonly (readonly [JsonValue, string])[] {
  if (kind === "list") {
    return Array.isArray(value) ? value.map((one, index) => [one, `${at}[${index}]`] as const) : [];
  }
  if (kind === "map") {
    const entries = typeof value === "object" && value !== null && !Array.isArray(value) ? Object.entries(value) : [];
    return entries.map(([key, one]) => [one, `${at}[${key}]`] as const);
  }
  return [[value, at]];
}
