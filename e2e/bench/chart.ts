/**
 * How long the chart takes: `npm run synth` inside its process, beside the cdk8s CLI with an app of as many objects; and `helm template` of
 * the preset with the most output, beside two charts that say the same without logic. One is nothing but the output as plain text: what no chart
 * with options can be. The other has as much to read as ours: as many bytes of templates, the same values and the same schema. Runs alternate
 * A B B A, so that whatever else the machine does meets both alike.
 *
 *   npm run bench -- chart [--rounds 10] [--out DIRECTORY]
 */
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { chartDirectory, helmPrograms, objectsOf, repository, template } from "../../src/chart/_helm.ts";
import { machine, machineLine, median, publish } from "./_report.ts";

const { values } = parseArgs({ options: { rounds: { type: "string", default: "10" }, out: { type: "string" } } });
const rounds = Number(values.rounds);

/** Milliseconds of one run. */
interface Cost {
  readonly wall: number;
  /** User and system time of the process and its children. */
  readonly cpu: number;
}

/** A command, run to its end; its output is thrown away, and what it says on standard error is told. */
function run(command: readonly string[], heard: (said: string) => void = () => {}): Cost {
  const before = performance.now();
  // The shell's `times` is the one portable way to a child's CPU time.
  const { status, stdout, stderr } = spawnSync("sh", ["-c", '"$@" >/dev/null && times', "sh", ...command], {
    encoding: "utf8",
    cwd: repository,
  });
  const wall = performance.now() - before;
  if (status !== 0) throw new Error(`${command.join(" ")}: ${stderr}`);
  heard(stderr);
  const children = stdout.trim().split("\n").at(-1) ?? "";
  const cpu = [...children.matchAll(/(\d+)m([\d.]+)s/g)].map(([, m, s]) => Number(m) * 60_000 + Number(s) * 1000);
  return { wall, cpu: cpu.reduce((sum, part) => sum + part, 0) };
}

const inMs = (costs: readonly Cost[]) => ({
  wall: Math.round(median(costs.map(({ wall }) => wall))),
  best: Math.round(Math.min(...costs.map(({ wall }) => wall))),
  cpu: Math.round(median(costs.map(({ cpu }) => cpu))),
});

/** Both sides in turn; the first run of each fills caches and is not counted. */
function compare(name: string, ours: () => Cost, theirs: () => Cost) {
  const [a, b]: [Cost[], Cost[]] = [[], []];
  ours();
  theirs();
  for (let round = 0; round < rounds; round += 1) {
    a.push(ours());
    b.push(theirs(), theirs());
    a.push(ours());
  }
  const [left, right] = [inMs(a), inMs(b)];
  const ratio = (key: keyof typeof left) => Math.round((left[key] / right[key]) * 100) / 100;
  return {
    name,
    ours: left,
    theirs: right,
    ratio: { wall: ratio("wall"), best: ratio("best"), cpu: ratio("cpu") },
    runs: a.length,
  };
}

/** A chart that renders to the same objects out of the same files, by nothing but text. */
function plainChart(folder: string, rendered: string): string {
  const chart = join(folder, "plain");
  mkdirSync(join(chart, "templates"), { recursive: true });
  for (const file of ["Chart.yaml", "values.yaml"]) cpSync(join(chartDirectory, file), join(chart, file));
  const files = new Map<string, string>();
  for (const document of rendered.split(/^---\n/m)) {
    const [, file, text = ""] = /^# Source: [^/]+\/templates\/(\S+)\n(.*)$/s.exec(document) ?? [];
    if (file !== undefined) files.set(file, `${files.get(file) ?? ""}---\n${text}`);
  }
  for (const [file, text] of files) writeFileSync(join(chart, "templates", file), text.replaceAll("{{", '{{ "{{" }}'));
  return chart;
}

const templateBytes = (chart: string) => {
  const templates = join(chart, "templates");
  return readdirSync(templates).reduce((sum, file) => sum + statSync(join(templates, file)).size, 0);
};

/** The same, with our schema and with as many bytes of templates as ours: the rest is text that is read and never used. */
function sameSizeChart(folder: string, plain: string): string {
  const chart = join(folder, "same-size");
  cpSync(plain, chart, { recursive: true });
  cpSync(join(chartDirectory, "values.schema.json"), join(chart, "values.schema.json"));
  const [start, end] = ['{{- define "unused" }}\n', "{{- end }}\n"];
  const missing = templateBytes(chartDirectory) - templateBytes(chart) - start.length - end.length;
  const line = "# plain text, as a chart without logic would have it\n";
  const text = line.repeat(Math.ceil(missing / line.length)).slice(0, Math.max(0, missing));
  writeFileSync(join(chart, "templates", "_unused.tpl"), `${start}${text}${end}`);
  return chart;
}

/** What the cdk8s CLI is given: so many objects, nothing else. */
function plainApp(folder: string, objects: number): string {
  const file = join(folder, "app.mjs");
  writeFileSync(
    file,
    `import { ApiObject, App, Chart } from ${JSON.stringify(pathToFileURL(join(repository, "node_modules", "cdk8s", "lib", "index.js")))};
const app = new App();
const chart = new Chart(app, "plain");
for (let index = 0; index < ${objects}; index += 1)
  new ApiObject(chart, "object" + index, { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "object" + index }, data: { a: "b" } });
app.synth();
`,
  );
  return file;
}

const at = machine();
const folder = mkdtempSync(join(tmpdir(), "openshell-bench-"));
try {
  const [program = ""] = helmPrograms;
  if (program === "") throw new Error("no Helm: set OPENSHELL_HELM, or let `npm test -- --only unit` bring one");
  const sizes = readdirSync(join(repository, "values")).map((file) => {
    const preset = basename(file, ".yaml");
    return { preset, text: template(program, { presets: [preset] }) };
  });
  const { preset, text } = sizes.reduce((most, one) => (one.text.length > most.text.length ? one : most));
  const plain = plainChart(folder, text);
  const sameSize = sameSizeChart(folder, plain);
  const objects = objectsOf(text).length;

  // What the process itself says when it ends, counted from its own start.
  const clock = `data:text/javascript,process.on("exit",()=>process.stderr.write(String(performance.now())))`;
  const saidMs: number[] = [];
  const { scripts } = JSON.parse(readFileSync(join(repository, "package.json"), "utf8")) as {
    readonly scripts: { readonly synth: string };
  };
  const [, ...command] = scripts.synth.split(" ");
  const synth = compare(
    "npm run synth, its process | cdk8s synth of as many objects",
    () => run([process.execPath, "--import", clock, ...command, "--check"], (said) => saidMs.push(Number(said))),
    () =>
      run([
        "cdk8s",
        "synth",
        "--app",
        `${process.execPath} ${plainApp(folder, objects)}`,
        "--output",
        join(folder, "dist"),
      ]),
  );
  // The first run filled caches, and is not counted here either.
  const [, ...insideMs] = saidMs;
  const helm = helmPrograms.flatMap((each) => {
    const template = (chart: string) => () =>
      run([
        ...[each, "template", "openshell", chart, "-n", "openshell", "--kube-version=1.34.0"],
        ...["-f", join(repository, "values", `${preset}.yaml`)],
      ]);
    const name = `helm template (${basename(each)})`;
    return [
      compare(`${name} | its output as plain text`, template(chartDirectory), template(plain)),
      compare(`${name} | a chart of its size without logic`, template(chartDirectory), template(sameSize)),
    ];
  });
  const report = {
    machine: at,
    preset,
    objects,
    bytes: text.length,
    synth: {
      insideMs: Math.round(median(insideMs)),
      bestInsideMs: Math.round(Math.min(...insideMs)),
      targetMs: 350,
      ...synth,
    },
    helm: helm.map((one) => ({ ...one, target: 1.2 })),
  };
  const rows = [synth, ...helm].map(
    ({ name, ours, theirs, ratio }) =>
      `| ${name.replace(" | ", " beside ")} | ${ours.wall} / ${ours.best} | ${theirs.wall} / ${theirs.best} | ${ratio.wall} | ${ratio.best} | ${ratio.cpu} |`,
  );
  const markdown = [
    `${machineLine(at)}. Preset ${preset}: ${objects} objects, ${text.length} bytes. ${rounds} rounds A B B A.`,
    "",
    `npm run synth inside its process: median ${report.synth.insideMs} ms, best ${report.synth.bestInsideMs} ms (target 350 ms).`,
    "",
    "| what | ours, ms (median / best) | theirs, ms | ratio of medians | of the best | of CPU time |",
    "|---|--:|--:|--:|--:|--:|",
    ...rows,
    "",
  ].join("\n");
  publish("chart", report, markdown, values.out);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
