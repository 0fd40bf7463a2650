import { stringify } from "smol-toml";
import { describe, expect, it, vi } from "vitest";
import { z } from "zod";
import type { OpenShellError } from "../common/errors.ts";
import { unexplained } from "./_problems.ts";
import { core } from "./_walk.ts";
import { parseSettings, type SettingOverride } from "./index.ts";
import { documentSchema } from "./settings.ts";
import type { TomlPath } from "./toml-lines.ts";

// Some thousands of files are read; a busy machine takes its time.
vi.setConfig({ testTimeout: 60_000 });

/** Our own forms of a refusal, after `path (where): `. */
const form =
  /^(expected [^\n]+, found [^\n]+|expected [^\n]+|is required: expected [^\n]+|is unknown; (did you mean|known here:) [^\n]+)$/;
/** How the validator would say it. */
const foreign =
  /Invalid|Too (small|big)|Unrecognized|received|must (match|be)|expected (string|number|int|boolean|array|object|record|null|undefined|nan)\b|found (undefined|nothing)|\/\^/;

interface Node {
  readonly path: TomlPath;
  readonly schema: z.core.$ZodType;
}

/** Every table, map, list and value that a file may have, down to the fields of an affinity; what stands at two places, at one of them. */
function nodesOf(schema: z.core.$ZodType, path: TomlPath, seen = new Set<z.core.$ZodType>()): Node[] {
  const inner = core(schema);
  if (seen.has(inner)) return [];
  seen.add(inner);
  const below = (step: string | number, part: z.core.$ZodType) => nodesOf(part, [...path, step], seen);
  const here = { path, schema: inner };
  if (inner instanceof z.ZodObject)
    return [here, ...Object.entries(inner.shape).flatMap(([key, one]) => below(key, one))];
  if (inner instanceof z.ZodArray) return [here, ...below(0, inner.element)];
  if (inner instanceof z.ZodRecord) return [here, ...below("example.com/key", inner.valueType)];
  return [here];
}

const nodes = nodesOf(documentSchema, []).filter(({ path }) => path.length > 1 && path[1] !== "version");
const nested = (path: TomlPath, value: unknown): unknown =>
  path.reduceRight((inner, step) => (typeof step === "number" ? [inner] : { [step]: inner }), value);

function refusals(path: TomlPath, value: unknown): { readonly lines: readonly string[]; readonly said: Violations } {
  const toml = stringify(nested(path, value) as object).replace("[openshell]\n", "");
  const text = `[openshell]\nversion = 2\n${toml}`;
  return { lines: text.split("\n"), said: violationsOf(() => parseSettings(text, "gateway.toml", "render")) };
}

type Violations = NonNullable<OpenShellError["details"]["violations"]>;
function violationsOf(parse: () => unknown): Violations {
  try {
    parse();
  } catch (error) {
    return (error as OpenShellError).details.violations ?? [];
  }
  return [];
}

const printed = (path: TomlPath) =>
  path
    .map((step, index) => (typeof step === "number" ? `[${step}]` : `${index > 0 ? "." : ""}${quoted(step)}`))
    .join("");
const quoted = (step: string) => (/^[\w-]+$/.test(step) ? step : JSON.stringify(step));

function check(path: TomlPath, said: Violations, where: RegExp): void {
  const name = printed(path);
  expect(said.map(({ field }) => field)).toContain(name);
  for (const { field, description } of said) {
    const [, place = "", sentence = ""] = /^( \([^)]*\)): (.*)$/.exec(description.slice(field.length)) ?? [];
    expect(description.startsWith(field), description).toBe(true);
    expect(sentence, description).toMatch(form);
    expect(sentence, description).not.toMatch(foreign);
    expect(sentence, description).not.toContain(unexplained);
    if (field === name) expect(place, description).toMatch(where);
  }
}

function checkValue(path: TomlPath, value: unknown): void {
  const { lines, said } = refusals(path, value);
  check(path, said, /^ \(line \d+\)$/);
  const line = Number(/\(line (\d+)\)/.exec(said.find(({ field }) => field === printed(path))?.description ?? "")?.[1]);
  const key = path.findLast((step) => typeof step === "string");
  expect(lines[line - 1]).toContain(key);
}

const values = {
  text: "No such value!",
  number: 7,
  truth: true,
  list: [],
  table: {},
  date: new Date(0),
  infinite: Infinity,
};
type Kind = keyof typeof values;

/** What a schema takes at all. */
function kindsOf(schema: z.core.$ZodType): readonly Kind[] {
  if (schema instanceof z.ZodBoolean) return ["truth"];
  if (schema instanceof z.ZodNumber) return ["number"];
  if (schema instanceof z.ZodArray) return ["list"];
  if (schema instanceof z.ZodObject || schema instanceof z.ZodRecord) return ["table"];
  return ["text"];
}

const only = <Schema>(of: new (...args: never[]) => Schema) =>
  nodes.filter((node): node is Node & { readonly schema: Schema & z.core.$ZodType } => node.schema instanceof of);

/** Whose form only the chart's schema holds anybody to. */
const ofChart = /\.server_sans\[0\]$/;
/** Text that nobody here can know to be wrong. */
const free = /(annotations\."example.com\/key"|_role|scopes_claim)$/;
const freeKeys = /rewrites$/;
/** Text of which all that is asked is that there is some. */
const notEmpty = /(audience|roles_claim|gateway\.name|jwt\.gateway_id|rewrites\."example\.com\/key")$/;

describe("the sentence about", () => {
  it("another type is ours, for every setting, table and list", () => {
    expect(nodes.length).toBeGreaterThan(150);
    for (const { path, schema } of nodes) {
      const takes = kindsOf(schema);
      for (const [kind, value] of Object.entries(values)) if (!takes.includes(kind as Kind)) checkValue(path, value);
    }
  });

  it("null is ours, where a flag says it", () => {
    const tables = nodes.filter(({ path }) => path.every((step) => typeof step === "string" && !step.includes(".")));
    for (const { path } of tables) {
      const said: SettingOverride = { key: printed(path), from: "--flag", value: () => null };
      const parse = () => parseSettings("[openshell]\nversion = 2\n", "gateway.toml", "render", [said]);
      check(path, violationsOf(parse), /^ \(--flag\)$/);
    }
  });

  it("a number that is out of range, or is no whole one, is ours", () => {
    for (const { path, schema } of only(z.ZodNumber)) {
      const { minValue, maxValue } = schema;
      for (const value of [1.5, Number.NaN, Number.NEGATIVE_INFINITY]) checkValue(path, value);
      if (minValue !== null && minValue > Number.MIN_SAFE_INTEGER) checkValue(path, minValue - 1);
      if (maxValue !== null && maxValue < Number.MAX_SAFE_INTEGER) checkValue(path, maxValue + 1);
    }
  });

  it("a word that is none of those known is ours, and names the nearest", () => {
    for (const { path, schema } of only(z.ZodEnum)) {
      checkValue(path, "No such value!");
      const [word = ""] = schema.options.map(String).filter((option) => option.length > 2);
      const { said } = refusals(path, `${word}x`);
      expect(said.find(({ field }) => field === printed(path))?.description).toContain(`; did you mean "${word}"?`);
    }
  });

  it("text of another form is ours", () => {
    const texts = [...only(z.ZodString), ...only(z.ZodUnion)].filter(
      ({ path }) => !free.test(printed(path)) && !ofChart.test(printed(path)),
    );
    for (const { path } of texts) checkValue(path, notEmpty.test(printed(path)) ? "" : "No such value!");
  });

  it("a key is ours, in every table and map", () => {
    for (const { path } of only(z.ZodObject)) checkValue([...path, "nothing_such"], 1);
    const maps = only(z.ZodRecord).filter(({ path }) => !freeKeys.test(printed(path)));
    for (const { path } of maps) for (const key of ["No such key!", "a/b/c"]) checkValue([...path, key], "x");
  });

  it("a list without entries, an empty key, what is no number and a date is ours", () => {
    const driver = ["openshell", "drivers", "kubernetes"];
    const required = "requiredDuringSchedulingIgnoredDuringExecution";
    const firstOf = (path: TomlPath, value: unknown) => refusals(path, value).said[0]?.description;
    expect(firstOf([...driver, "workload_affinity", "nodeAffinity", required, "nodeSelectorTerms"], [])).toMatch(
      /: expected an array with at least one entry, found \[\]$/,
    );
    expect(firstOf([...driver, "admission", "allowed_image_rewrites", ""], "x")).toMatch(
      /: expected text that is not empty$/,
    );
    expect(firstOf([...driver, "sandbox_uid"], values.infinite)).toMatch(/: expected a whole number, found inf$/);
    expect(violationsOf(() => parseSettings("[openshell]\nversion = 1970-01-01\n", "x"))[0]?.description).toBe(
      "x: openshell.version (line 2) is 1970-01-01: set version = 2",
    );
  });
});
