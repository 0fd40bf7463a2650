import { createHash } from "node:crypto";
import { OpenShellError } from "../../common/errors.ts";

export const defaultPageSize = 100;
export const maxPageSize = 1000;
/** Pairs a label selector may have. */
export const maxSelectorPairs = 64;

/** Rows of a page: 0 asks for the default, more than the maximum gives the maximum. */
export function pageSize(requested: number): number {
  if (requested < 0) throw invalid("page_size", "is negative");
  return requested === 0 ? defaultPageSize : Math.min(requested, maxPageSize);
}

/** An opaque token: where the list goes on, bound to the list it belongs to. */
export function pageToken(list: readonly string[], position: readonly string[]): string {
  return Buffer.from(JSON.stringify([digest(list), ...position])).toString("base64url");
}

/**
 * The position in a token; undefined for the first page.
 * @throws invalid-argument when the token is not one of this list
 */
export function positionOf(list: readonly string[], token: string): readonly string[] | undefined {
  if (token === "") return undefined;
  const unusable = () => invalid("page_token", "is not a token of this list; begin without one");
  let parts: unknown;
  try {
    parts = JSON.parse(Buffer.from(token, "base64url").toString());
  } catch {
    throw unusable();
  }
  if (!Array.isArray(parts) || !parts.every((part) => typeof part === "string")) throw unusable();
  const [list_, ...position] = parts;
  if (list_ !== digest(list)) throw unusable();
  return position;
}

export type Selector = (labels: Readonly<Record<string, string>>) => boolean;

/**
 * `k=v` pairs joined by commas, all of which have to hold; "" selects everything.
 * @throws invalid-argument naming the pair that is none
 */
export function parseSelector(text: string): Selector {
  if (text.trim() === "") return () => true;
  const parts = text.split(",");
  if (parts.length > maxSelectorPairs) throw invalid("label_selector", `has more than ${maxSelectorPairs} pairs`);
  const pairs = parts.map((part) => {
    const [, key, value] = /^\s*([^\s=!,]+)\s*==?\s*([^\s=!,]*)\s*$/.exec(part) ?? [];
    if (key === undefined) throw invalid("label_selector", `${JSON.stringify(part)} is no pair of the form key=value`);
    return [key, value ?? ""] as const;
  });
  return (labels) => pairs.every(([key, value]) => Object.hasOwn(labels, key) && labels[key] === value);
}

function digest(list: readonly string[]): string {
  return createHash("sha256").update(JSON.stringify(list)).digest("base64url").slice(0, 16);
}

function invalid(field: string, description: string): OpenShellError {
  return new OpenShellError("invalid-argument", `${field}: ${description}`, { violations: [{ field, description }] });
}
