/** Test support: many renderings of the chart by one process of Helm, which takes a fraction of as many processes. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chartDirectory, template } from "./_helm.ts";
import { templateNames } from "./chart.ts";

const mark = "renderings: ";
/** The chart's own templates, again and again, with other values at their root. As JSON in one document: Helm sorts documents by kind. */
const loop = `{{- $renderings := list }}
{{- range $case := .Values.cases }}
{{- $root := dict "Values" (dict "AsMap" $case) "Release" $.Release "Chart" $.Chart "Capabilities" $.Capabilities }}
{{- $text := "" }}
{{- range $file := $.Values.files }}
{{- $text = print $text (include (printf "%s/%s" $.Template.BasePath $file) $root) "\\n" }}
{{- end }}
{{- $renderings = append $renderings $text }}
{{- end }}
${mark}{{ toJson $renderings }}
`;

/** The texts of the objects in a rendering, by apiVersion, kind, namespace and name. */
export type Documents = ReadonlyMap<string, string>;

/** Renders the chart with each of the values; what Helm or a guard refuses is an error in its place. They are not held to the schema. */
export function renderMany(program: string, cases: readonly object[], namespace = "openshell"): (Documents | Error)[] {
  const files = [...templateNames, "guards"].map((name) => `${name}.yaml`);
  return textsOfMany(program, cases, files, namespace).map((text) =>
    text instanceof Error ? text : documentsOf(text),
  );
}

/** As `renderMany`: the text of some files of templates/, one after the other. */
export function textsOfMany(
  program: string,
  cases: readonly object[],
  files: readonly string[],
  namespace = "openshell",
): (string | Error)[] {
  return inCopy((chart) => textsIn(chart, program, cases, files, namespace));
}

/** The sentences of all guards that refuse each of the values, in their order: an operator sees the first. Nothing is held to the schema. */
export function refusalsOfMany(program: string, cases: readonly object[]): string[][] {
  const said = "refused: ";
  const texts = inCopy((chart) => {
    const path = join(chart, "templates", "_helpers.tpl");
    const helpers = readFileSync(path, "utf8");
    writeFileSync(path, helpers.replaceAll("{{- fail ", `{{- printf "\\n${said}%s\\n" `));
    return textsIn(chart, program, cases, ["guards.yaml"]);
  });
  return texts.map((text) => {
    if (text instanceof Error) throw text;
    const lines = text.split("\n").filter((line) => line.startsWith(said));
    return lines.map((line) => line.slice(said.length));
  });
}

/** In a copy of the chart that renders many. */
function inCopy<T>(work: (chart: string) => T): T {
  const chart = mkdtempSync(join(tmpdir(), "openshell-many-"));
  try {
    cpSync(chartDirectory, chart, { recursive: true });
    rmSync(join(chart, "values.schema.json"));
    writeFileSync(join(chart, "templates", "zz-many.yaml"), loop);
    return work(chart);
  } finally {
    rmSync(chart, { recursive: true, force: true });
  }
}

function textsIn(
  chart: string,
  program: string,
  cases: readonly object[],
  files: readonly string[],
  namespace = "openshell",
): (string | Error)[] {
  // The same values are rendered once.
  const single = new Map(cases.map((each) => [JSON.stringify(each), each]));
  const texts = within([...single.values()], (some) => {
    const text = template(program, { chart, namespace, values: { cases: some, files } });
    const line = text.split("\n").find((one) => one.startsWith(mark)) ?? "";
    return JSON.parse(line.slice(mark.length)) as string[];
  });
  const byValues = new Map([...single.keys()].map((key, index) => [key, texts[index] ?? ""]));
  return cases.map((each) => byValues.get(JSON.stringify(each)) ?? "");
}

/** All at once; when that is refused, by halves down to those that are. */
function within(cases: readonly object[], renderAll: (some: readonly object[]) => string[]): (string | Error)[] {
  try {
    return renderAll(cases);
  } catch (error) {
    if (cases.length === 1) return [new Error(`${JSON.stringify(cases[0])} is refused`, { cause: error })];
    const half = cases.length >> 1;
    return [...within(cases.slice(0, half), renderAll), ...within(cases.slice(half), renderAll)];
  }
}

function documentsOf(rendering: string): Documents {
  const documents = rendering.split(/^---\n/m).slice(1);
  return new Map(
    documents.map((text) => {
      const line = (pattern: RegExp) => pattern.exec(text)?.[1] ?? "";
      const namespace = line(/^ {2}namespace: "?([^"\n]+)/m);
      const name = line(/^ {2}name: "?([^"\n]+)/m);
      return [[line(/^apiVersion: (.+)/m), line(/^kind: (.+)/m), namespace, name].join(" "), text.trimEnd()];
    }),
  );
}
