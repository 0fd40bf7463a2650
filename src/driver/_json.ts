export type JsonObject = Record<string, unknown>;

export function isPlainObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Equality as the API server sees it: absent, empty text, empty list and empty object are the same. */
export function same(left: unknown, right: unknown): boolean {
  if (isNothing(left) && isNothing(right)) return true;
  if (Array.isArray(left) && Array.isArray(right)) {
    return left.length === right.length && left.every((item, index) => same(item, right[index]));
  }
  if (isPlainObject(left) && isPlainObject(right)) {
    return [...new Set([...Object.keys(left), ...Object.keys(right)])].every((key) =>
      sameField(key, left[key], right[key]),
    );
  }
  return left === right;
}

/** An empty one selects everything; without one a term of an affinity selects nothing, or in its own namespace only, as a policy's peer does. */
const selectors: readonly string[] = ["labelSelector", "namespaceSelector", "podSelector"];

/** Equality of two values of one field. */
export function sameField(name: string, left: unknown, right: unknown): boolean {
  return (!selectors.includes(name) || isPlainObject(left) === isPlainObject(right)) && same(left, right);
}

function isNothing(value: unknown): boolean {
  return (
    value === undefined ||
    value === null ||
    value === "" ||
    (Array.isArray(value) && value.length === 0) ||
    (isPlainObject(value) && Object.keys(value).length === 0)
  );
}
