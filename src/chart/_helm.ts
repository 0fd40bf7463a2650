/** Test support: the Helm programs of this machine. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";

export const repository = join(import.meta.dirname, "..", "..");
export const chartDirectory = join(repository, "charts", "openshell");

/** Helm 4 and Helm 3, those that are there: OPENSHELL_HELM names one, else they are in the project's cache of programs. */
export const helmPrograms: readonly string[] = findHelm();

function findHelm(): string[] {
  const named = process.env.OPENSHELL_HELM;
  if (named !== undefined && named !== "") return [named];
  const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "openshell-dev", "bin");
  if (!existsSync(cache)) return [];
  return readdirSync(cache)
    .filter((name) => /^helm[34](-v[\d.]+)?$/.test(name))
    .sort()
    .reverse()
    .map((name) => join(cache, name));
}

export interface HelmResult {
  readonly ok: boolean;
  readonly stdout: string;
  readonly stderr: string;
}

export function helm(program: string, ...args: readonly string[]): HelmResult {
  return runProgram(program, args);
}

export function runProgram(program: string, args: readonly string[], env = process.env): HelmResult {
  const { status, stdout, stderr, error } = spawnSync(program, args, { encoding: "utf8", maxBuffer: 64 << 20, env });
  if (error) throw error;
  return { ok: status === 0, stdout, stderr };
}

/** A Kubernetes object as it was rendered. */
export interface Rendered {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Record<string, string>;
    readonly annotations?: Record<string, string>;
  };
  // biome-ignore lint/suspicious/noExplicitAny: tests look into objects of every kind
  readonly [field: string]: any;
}

export interface RenderOptions {
  /** Values, over the presets. */
  readonly values?: unknown;
  /** Names of presets in values/. */
  readonly presets?: readonly string[];
  readonly chart?: string;
  readonly skipSchema?: boolean;
  /** @default openshell */
  readonly namespace?: string;
  /** Name of the release. @default openshell */
  readonly release?: string;
  /** What `--api-versions` names, e.g. `apps/v1/Deployment`. With that one the chart takes the rendering for one of a real cluster. */
  readonly apis?: readonly string[];
}

/** What was rendered in this file of tests: a process of Helm is most of what they take. */
const rendered = new Map<string, string>();

/** `helm template`, the same options once; @throws with Helm's own words when it refuses. */
export function template(program: string, options: RenderOptions = {}): string {
  const key = JSON.stringify([program, options]);
  const text = rendered.get(key) ?? templateAnew(program, options);
  rendered.set(key, text);
  return text;
}

/** As `template`, whatever was rendered before. */
export function templateAnew(program: string, options: RenderOptions = {}): string {
  const folder = mkdtempSync(join(tmpdir(), "openshell-helm-"));
  try {
    const file = join(folder, "values.json");
    writeFileSync(file, yamlOf(options.values ?? {}));
    const presets = (options.presets ?? []).flatMap((name) => ["-f", join(repository, "values", `${name}.yaml`)]);
    const flags = options.skipSchema ? ["--skip-schema-validation"] : [];
    const apis = (options.apis ?? []).flatMap((api) => ["--api-versions", api]);
    const result = helm(
      program,
      "template",
      ...apis,
      // A Helm from `go install` thinks that it talks to Kubernetes 1.20.
      "--kube-version=1.34.0",
      options.release ?? "openshell",
      options.chart ?? chartDirectory,
      "-n",
      options.namespace ?? "openshell",
      ...presets,
      "-f",
      file,
      ...flags,
    );
    if (!result.ok) throw new Error(result.stderr);
    return result.stdout;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** JSON is YAML, but for a few characters that YAML wants escaped. */
function yamlOf(values: unknown): string {
  return JSON.stringify(values).replace(
    /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

export function render(program: string, options: RenderOptions = {}): Rendered[] {
  return objectsOf(template(program, options));
}

export function objectsOf(text: string): Rendered[] {
  return parseAllDocuments(text)
    .map((document) => {
      if (document.errors.length > 0) throw document.errors[0];
      return document.toJS() as Rendered | null;
    })
    .filter((object): object is Rendered => object !== null);
}

/** Helm's refusal, or undefined when it renders. */
export function refusal(program: string, options: RenderOptions): string | undefined {
  try {
    template(program, options);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

interface Tree {
  readonly [key: string]: unknown;
}

/**
 * Helm's refusal of each of the values, which break the schema. Those that can stand side by side are given to one process: the schema names
 * everything that is wrong.
 */
export function refusalsBySchema(program: string, cases: readonly Tree[]): (string | undefined)[] {
  const groups: Tree[] = [];
  const groupOf = cases.map((one) => {
    const index = groups.findIndex((group) => merged(group, one) !== undefined);
    if (index < 0) return groups.push(one) - 1;
    groups[index] = merged(groups[index] ?? {}, one) ?? one;
    return index;
  });
  return groupOf.map((index) => refusal(program, { values: groups[index] }));
}

/** Both in one; undefined where they set the same. */
function merged(one: Tree, other: Tree): Tree | undefined {
  const result: Record<string, unknown> = { ...one };
  for (const [key, value] of Object.entries(other)) {
    if (!(key in one)) result[key] = value;
    else if (isTree(one[key]) && isTree(value)) result[key] = merged(one[key], value);
    else return undefined;
    if (result[key] === undefined) return undefined;
  }
  return result;
}

const isTree = (value: unknown): value is Tree => typeof value === "object" && value !== null && !Array.isArray(value);

/** The one sentence with which a guard of the chart refuses; undefined when none does. */
export function sentenceOf(program: string, options: RenderOptions): string | undefined {
  return /execution error at \([^)]*\): (.*)/.exec(refusal(program, options) ?? "")?.[1];
}

/** Of the Pods of `helm test` in a release `openshell`, and of what is made for them. */
export const testNames = {
  rights: "openshell-test-dc5cbc21a452a783ec453e8a8603101dfec5c7d6a19b6c64",
  fence: "openshell-test-fence-dc5cbc21a452a783ec453e8a8603101dfec5c7d6a1",
} as const;

export function find(objects: readonly Rendered[], kind: string, name?: string): Rendered {
  const found = objects.find((object) => object.kind === kind && (name === undefined || object.metadata.name === name));
  if (found === undefined) throw new Error(`no ${kind} ${name ?? ""} was rendered`);
  return found;
}

/** The Pod specs in a rendered object. */
// biome-ignore lint/suspicious/noExplicitAny: a rendered Pod spec
export function podsOf({ kind, spec }: Rendered): any[] {
  if (kind === "StatefulSet" || kind === "Job") return [spec.template.spec];
  if (kind === "CronJob") return [spec.jobTemplate.spec.template.spec];
  return kind === "Pod" ? [spec] : [];
}
