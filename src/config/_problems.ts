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

/** What was expected, for zod, which asks for it where a check has no sentence of its own: none of its own words reach an operator. */
export function expectation(issue: z.core.$ZodRawIssue): string {
  switch (issue.code) {
    case "invalid_type":
      return isWholeNumber(issue.inst) ? typeName("int") : typeName(issue.expected);
    case "invalid_value":
      return oneOf(issue.values);
    case "too_small":
      return bound("least", issue.origin, Number(issue.minimum));
    case "too_big":
      return bound("most", issue.origin, Number(issue.maximum));
    case "invalid_union":
      return [...new Set(issue.errors.flatMap((branch) => branch.slice(0, 1).map(({ message }) => message)))].join(
        ", or ",
      );
    case "invalid_key":
    case "invalid_element":
      return issue.issues[0]?.message ?? unexplained;
    default:
      return unexplained;
  }
}

/** Of a check that has no sentence and of a kind that has none here; a test finds it. */
export const unexplained = "something else";

/** The problems behind zod's issues, whose messages are {@link expectation}s. `schema` and `input` are the whole document's. */
export function problemsOf(issues: readonly z.core.$ZodIssue[], schema: z.ZodType, input: unknown): Problem[] {
  const wrongType = issues.filter(({ code }) => code === "invalid_type");
  // What is of another type has no length or bounds that anyone could want.
  const isFollowUp = (issue: z.core.$ZodIssue) =>
    issue.code !== "invalid_type" && wrongType.some(({ path }) => isSamePath(path, issue.path));
  const problems = issues.filter((issue) => !isFollowUp(issue)).flatMap((issue) => problemOf(issue, schema, input));
  // Two checks of one value may say the same sentence.
  return problems.filter((problem, index) => problems.findIndex((other) => isSame(other, problem)) === index);
}

function isSamePath(left: readonly PropertyKey[], right: readonly PropertyKey[]): boolean {
  return left.length === right.length && left.every((step, index) => step === right[index]);
}

function isSame(left: Problem, right: Problem): boolean {
  return left.text === right.text && isSamePath(left.path, right.path);
}

function problemOf(issue: z.core.$ZodIssue, schema: z.ZodType, input: unknown): Problem[] {
  const path = issue.path.map((step) => (typeof step === "number" ? step : String(step)));
  if (issue.code === "unrecognized_keys") {
    const known = keysAt(schema, path) ?? [];
    const elsewhere = notHere.get(printPath(path));
    return issue.keys.map((key) => ({ path: [...path, key], text: unknownKey(key, known, elsewhere?.get(key)) }));
  }
  const expected = `expected ${issue.message}`;
  if (issue.code === "invalid_key") return [{ path, text: expected }];
  const found = valueAt(input, path);
  if (found === undefined) return [{ path, text: `is required: ${expected}` }];
  return [{ path, text: `${expected}, found ${printValue(found)}${suggestion(issue, found)}` }];
}

function unknownKey(key: string, known: readonly string[], instead?: string): string {
  if (instead !== undefined) return `is not a setting of this gateway: ${instead}`;
  const guess = nearest(key, known);
  if (guess !== undefined) return `is unknown; did you mean ${guess}?`;
  return known.length > 0 ? `is unknown; known here: ${known.join(", ")}` : "is unknown; nothing is known here";
}

function oneOf(values: readonly unknown[]): string {
  const printed = values.map((value) => JSON.stringify(value)).join(", ");
  return values.length === 1 ? printed : `one of ${printed}`;
}

function bound(which: "least" | "most", origin: string, limit: number): string {
  if (origin === "string")
    return which === "least" && limit === 1 ? "text that is not empty" : `text of at ${which} ${limit} characters`;
  if (origin === "array") return `an array with at ${which} ${limit === 1 ? "one entry" : `${limit} entries`}`;
  return `a number of at ${which} ${limit}`;
}

function isWholeNumber(schema: z.core.$ZodRawIssue["inst"]): boolean {
  return schema?._zod.def !== undefined && "format" in schema._zod.def && schema._zod.def.format === "safeint";
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

/** As an operator wrote it, or near to that: an error goes to logs, so what an address says before its @ is left out. */
export function printValue(value: unknown): string {
  const whole = typeof value === "object" || typeof value === "string" ? JSON.stringify(value) : printScalar(value);
  const text = whole.replace(/\/\/[^\s"]*@/g, "//…@");
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}

/** As TOML writes it; a date comes as a symbol. */
function printScalar(value: unknown): string {
  if (typeof value === "symbol") return value.description ?? "";
  return String(value).replace("Infinity", "inf").replace("NaN", "nan");
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
