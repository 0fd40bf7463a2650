/** From zod's issues to sentences that an operator can act on. */
import type { z } from "zod";
import { keysAt } from "./_walk.ts";
import { nearest } from "./nearest.ts";
import { notHere } from "./not-here.ts";
import type { TomlPath } from "./toml-lines.ts";

/** One thing that is wrong with a settings file. */
export interface Problem {
  readonly path: TomlPath;
  /** What was expected and what was found. */
  readonly text: string;
}

/** A path as TOML writes it: `openshell.drivers.kubernetes.workload_tolerations[0].key`. */
export function printPath(path: TomlPath): string {
  return path
    .map((step, index) => {
      if (typeof step === "number") return `[${step}]`;
      const name = /^[A-Za-z0-9_-]+$/.test(step) ? step : JSON.stringify(step);
      return index === 0 ? name : `.${name}`;
    })
    .join("");
}

/** The problems behind zod's issues. `schema` and `input` are the whole document's. */
export function problemsOf(issues: readonly z.core.$ZodIssue[], schema: z.ZodType, input: unknown): Problem[] {
  const problems = issues.flatMap((issue) => problemOf(issue, schema, input));
  // Two checks of one value may say the same sentence.
  return problems.filter((problem, index) => problems.findIndex((other) => isSame(other, problem)) === index);
}

function isSame(left: Problem, right: Problem): boolean {
  return left.text === right.text && printPath(left.path) === printPath(right.path);
}

function problemOf(issue: z.core.$ZodIssue, schema: z.ZodType, input: unknown): Problem[] {
  const path = issue.path.map((step) => (typeof step === "number" ? step : String(step)));
  const found = valueAt(input, path);
  if (issue.code === "unrecognized_keys") {
    const known = keysAt(schema, path) ?? [];
    const elsewhere = notHere.get(printPath(path));
    return issue.keys.map((key) => ({ path: [...path, key], text: unknownKey(key, known, elsewhere?.get(key)) }));
  }
  if (issue.code === "invalid_key") {
    const expected = issue.issues[0]?.message ?? "a valid key";
    return [{ path, text: `expected ${expected}` }];
  }
  if (found === undefined && issue.code === "invalid_type") {
    return [{ path, text: `is required: expected ${typeName(issue.expected)}` }];
  }
  return [{ path, text: `expected ${expectation(issue)}, found ${printValue(found)}${suggestion(issue, found)}` }];
}

function unknownKey(key: string, known: readonly string[], instead?: string): string {
  if (instead !== undefined) return `is not a setting of this gateway: ${instead}`;
  const guess = nearest(key, known);
  if (guess !== undefined) return `is unknown; did you mean ${guess}?`;
  return known.length > 0 ? `is unknown; known here: ${known.join(", ")}` : "is unknown; nothing is known here";
}

function expectation(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case "invalid_type":
      return typeName(issue.expected);
    case "invalid_value":
      return `one of ${issue.values.map((value) => JSON.stringify(value)).join(", ")}`;
    case "too_small":
      return issue.origin === "string" ? "text that is not empty" : `a number of at least ${issue.minimum}`;
    case "too_big":
      return issue.origin === "string" ? issue.message : `a number of at most ${issue.maximum}`;
    case "invalid_union":
      return issue.errors.flatMap((branch) => branch.slice(0, 1).map(expectation)).join(", or ");
    default:
      return issue.message;
  }
}

function suggestion(issue: z.core.$ZodIssue, found: unknown): string {
  if (issue.code !== "invalid_value" || typeof found !== "string") return "";
  const guess = nearest(
    found,
    issue.values.filter((value): value is string => typeof value === "string" && value !== ""),
  );
  return guess === undefined ? "" : `; did you mean ${JSON.stringify(guess)}?`;
}

const typeNames: Readonly<Record<string, string>> = {
  string: "text in quotes",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "an array",
  object: "a table",
  record: "a table",
};

const typeName = (type: string) => typeNames[type] ?? type;

function printValue(value: unknown): string {
  if (value === undefined) return "nothing";
  const text = value instanceof Date ? value.toISOString() : (JSON.stringify(value) ?? String(value));
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}

/** What is at a path of plain data. */
export function valueAt(input: unknown, path: TomlPath): unknown {
  let current = input;
  for (const step of path) {
    if (typeof current !== "object" || current === null) return undefined;
    current = (current as Record<string | number, unknown>)[step];
  }
  return current;
}
