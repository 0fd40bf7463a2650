import { parse as parseToml, TomlError } from "smol-toml";
import type { z } from "zod";
import { OpenShellError } from "../common/errors.ts";
import { droppedKeys, otherKey } from "./_grammar.ts";
import { expectation, type Problem, printPath, printValue, problemsOf, valueAt } from "./_problems.ts";
import { holds, keysOf, settingRules } from "./rules.ts";
import { documentSchema, type Settings } from "./settings.ts";
import { locateTomlKeys, type TomlLines, type TomlPath } from "./toml-lines.ts";

/** What the settings are for: a gateway that serves needs certificates and keys, one that only renders manifests does not. */
export type SettingsPurpose = "serve" | "render";

/** What is said outside the file, by a flag or a variable, and holds over it. */
export interface SettingOverride {
  /** Full TOML path, e.g. `openshell.gateway.disable_tls`. */
  readonly key: string;
  /** How errors name it, e.g. `--disable-tls`. */
  readonly from: string;
  /** The setting's value, undefined for none. @param read what the file says, and overrides before this one */
  readonly value: (read: (key: string) => unknown) => unknown;
}

/** Why a gateway.toml was refused before its settings were looked at. */
export type SettingsErrorReason =
  | "malformed"
  | "missing_version"
  | "legacy_schema_v1"
  | "future_version"
  | "unsupported_version"
  | "invalid_settings";

/**
 * Reads the text of a gateway.toml.
 *
 * @param source how errors name the text, usually its path.
 * @param overrides applied in order before anything is checked, so that they complete a file and are held to the same rules.
 * @throws one OpenShellError `invalid-argument` whose message and violations name every problem, with TOML path and line.
 */
export function parseSettings(
  text: string,
  source: string,
  purpose: SettingsPurpose = "serve",
  overrides: readonly SettingOverride[] = [],
): Settings {
  const written = parseDocument(text, source);
  const lines = locateTomlKeys(text);
  checkVersion(written, source, lines);
  const document = overridden(written, overrides);
  const { output, problems } = readDocument(document);
  const refused = problems.map(({ path }) => path);
  if (output !== undefined) problems.push(...brokenRules(output, refused, purpose));
  if (problems.length > 0 || output === undefined) throw settingsError(problems, source, whereOf(lines, overrides));
  return { gateway: output.openshell.gateway, kubernetes: output.openshell.drivers.kubernetes };
}

function parseDocument(text: string, source: string): Record<string, unknown> {
  try {
    return withoutDates(parseToml(text)) as Record<string, unknown>;
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const sentence = (error.message.split("\n")[0] ?? "").replace(/^Invalid TOML document: /, "");
    throw refusal(
      "malformed",
      `${source}: line ${error.line}, column ${error.column}: not valid TOML: ${sentence}`,
      error,
    );
  }
}

/** Dates as symbols: no setting is one, and zod would take an object for a table. */
function withoutDates(value: unknown): unknown {
  if (value instanceof Date) return Symbol(value.toISOString());
  if (Array.isArray(value)) return value.map(withoutDates);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, withoutDates(inner)]));
}

function checkVersion(document: Record<string, unknown>, source: string, lines: TomlLines): void {
  const version = valueAt(document, ["openshell", "version"]);
  if (version === 2) return;
  const where = `${source}: openshell.version${lineSuffix(lines, ["openshell", "version"])}`;
  if (version === undefined) {
    throw refusal("missing_version", `${where} is required: begin the file with [openshell] and version = 2`);
  }
  if (version === 1) {
    throw refusal(
      "legacy_schema_v1",
      `${where} is 1, which is no longer read: set version = 2 and repeat in each driver's table what it inherited from [openshell.gateway]`,
    );
  }
  if (typeof version === "number" && version > 2) {
    throw refusal(
      "future_version",
      `${where} is ${version}, but this gateway reads version 2: use a newer gateway or set version = 2`,
    );
  }
  throw refusal("unsupported_version", `${where} is ${printValue(version)}: set version = 2`);
}

/** All problems of a document, and what it says apart from them: a wrong setting must not hide what is wrong with the others. */
function readDocument(document: Record<string, unknown>): {
  output: z.output<typeof documentSchema> | undefined;
  problems: Problem[];
} {
  const problems: Problem[] = droppedKeys(document).map((path) => ({ path, text: `expected ${otherKey}` }));
  let remaining = problems.reduce<unknown>((rest, { path }) => without(rest, path), document);
  for (let round = 0; round < 8; round++) {
    const result = documentSchema.safeParse(remaining, { error: expectation });
    if (result.success) return { output: result.data, problems };
    const found = problemsOf(result.error.issues, documentSchema, remaining);
    // What lost a refused part in an earlier round may lack it now: that is not another problem.
    const refused = problems.map(({ path }) => path);
    problems.push(...found.filter(({ path }) => !refused.some((one) => overlaps(path, one))));
    remaining = found.reduce(
      (rest, { path, text }) => without(rest, text.startsWith("is required") ? path.slice(0, -1) : path),
      remaining,
    );
  }
  return { output: undefined, problems };
}

function brokenRules(
  output: z.output<typeof documentSchema>,
  refused: readonly TomlPath[],
  purpose: SettingsPurpose,
): Problem[] {
  const lookup = (key: string) => valueAt(output, key.split("."));
  const isRefused = (key: string) => refused.some((path) => overlaps(path, key.split(".")));
  return settingRules
    .filter((rule) => rule.at === "load" || purpose === "serve")
    .filter((rule) => !keysOf(rule.refusedWhen).some(isRefused) && holds(rule.refusedWhen, lookup))
    .map((rule) => ({ path: (rule.keys[0] ?? "").split("."), text: rule.sentence }));
}

/** Where a setting was said: a line of the file, or a flag. */
interface Where {
  readonly line: number | undefined;
  readonly suffix: string;
}

function whereOf(lines: TomlLines, overrides: readonly SettingOverride[]): (path: TomlPath) => Where {
  return (path) => {
    const override = overrides.findLast(({ key }) => samePath(key.split("."), path));
    if (override !== undefined) return { line: undefined, suffix: ` (${override.from})` };
    return { line: lines.lineOf(path), suffix: lineSuffix(lines, path) };
  };
}

function overridden(document: Record<string, unknown>, overrides: readonly SettingOverride[]): Record<string, unknown> {
  return overrides.reduce((before, { key, value }) => {
    const next = value((other) => valueAt(before, other.split(".")));
    return withValue(before, key.split("."), next);
  }, document);
}

/** A copy with `value` at `path`; tables on the way are made where they are missing, and other values there are left to be refused. */
function withValue(table: Record<string, unknown>, path: readonly string[], value: unknown): Record<string, unknown> {
  const [key, ...rest] = path;
  if (key === undefined) return table;
  if (rest.length === 0) {
    const { [key]: _before, ...others } = table;
    return value === undefined ? others : { ...others, [key]: value };
  }
  const inner = table[key] ?? {};
  if (typeof inner !== "object" || Array.isArray(inner) || (table[key] === undefined && value === undefined))
    return table;
  return { ...table, [key]: withValue(inner as Record<string, unknown>, rest, value) };
}

function settingsError(
  problems: readonly Problem[],
  source: string,
  whereIs: (path: TomlPath) => Where,
): OpenShellError {
  const violations = problems
    .map(({ path, text }) => ({ path, text, ...whereIs(path) }))
    .sort((left, right) => (left.line ?? 0) - (right.line ?? 0))
    .map(({ path, text, suffix }) => ({
      field: printPath(path),
      description: `${printPath(path)}${suffix}: ${text}`,
    }));
  const list = violations.map(({ description }) => `\n  ${description}`).join("");
  const count = violations.length === 1 ? "one problem" : `${violations.length} problems`;
  return new OpenShellError("invalid-argument", `${source} has ${count}:${list}`, {
    reason: "invalid_settings",
    violations,
  });
}

function refusal(reason: SettingsErrorReason, message: string, cause?: unknown): OpenShellError {
  return new OpenShellError("invalid-argument", message, {
    reason,
    violations: [{ field: "openshell.version", description: message }],
    ...(cause === undefined ? {} : { cause }),
  });
}

function lineSuffix(lines: TomlLines, path: TomlPath): string {
  const line = lines.lineOf(path);
  return line === undefined ? "" : ` (line ${line})`;
}

function without(value: unknown, path: TomlPath): unknown {
  const [step, ...rest] = path;
  if (step === undefined || typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) {
    return rest.length === 0
      ? value.filter((_, index) => index !== step)
      : value.map((entry, index) => (index === step ? without(entry, rest) : entry));
  }
  const copy = { ...(value as Record<string, unknown>) };
  if (rest.length === 0) delete copy[step];
  else if (step in copy) copy[step] = without(copy[step], rest);
  return copy;
}

function samePath(left: TomlPath, right: TomlPath): boolean {
  return left.length === right.length && overlaps(left, right);
}

function overlaps(left: TomlPath, right: TomlPath): boolean {
  return left.every((step, index) => index >= right.length || right[index] === step);
}
