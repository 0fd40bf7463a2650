/**
 * `npm test`: everything this repository can prove about itself, in order. Ends with "N passed, N failed, N skipped" and a non-zero code
 * when anything failed.
 */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { z } from "zod";
import { OpenShellError } from "../src/common/errors.ts";
import { unpackClients } from "./cluster/clients.ts";
import { buildProgram } from "./cluster/local/programs.ts";
import { installPackages } from "./cluster/local/requirements.ts";
import { progressTo } from "./cluster/progress.ts";
import { checkedBy } from "./testing/commands.ts";
import { HeldOutput } from "./testing/output.ts";
import { type Case, casesOf, junitXml, markdownReport, type Section, summaryLine } from "./testing/results.ts";
import { commandOptions, isCi, minute, type Run } from "./testing/run.ts";
import { TestCluster } from "./testing/test-cluster.ts";
import { vitest } from "./testing/vitest-run.ts";

const usage = `usage: npm test -- [options]

  --only PART      one of: static, generated, unit, conformance; may be repeated (default: all)
  --provider NAME  cluster for the conformance suite: local, k3d or kubeconfig (default: $OPENSHELL_PROVIDER, else what this machine has)
  --project NAME   part of the conformance suite: pairs, nodes or faults; may be repeated (default: pairs and nodes)
  --filter TEXT    only conformance files whose path contains TEXT
  --keep           leave the cluster up
  --report DIR     where junit.xml and report.md go (default: dist/test-report)
`;

const parts = ["static", "generated", "unit", "conformance"] as const;
/** Of e2e/vitest.config.ts. */
const projects = ["nodes", "pairs", "faults"] as const;

/** A section of the report. */
interface Step {
  readonly part: (typeof parts)[number];
  /** Of the conformance tests. */
  readonly project?: (typeof projects)[number];
  readonly heading: string;
  run(run: Run): Promise<Case[]>;
}

/** Steps that run one after the other. */
type Track = readonly Step[];

/**
 * Everything, in order; the tracks of one line run side by side. The tests of nodes, and the cluster before them, are mostly waited for, and
 * what needs no cluster has the cores meanwhile.
 */
function everything(cluster: TestCluster): readonly (readonly Track[])[] {
  const conformance = (project: (typeof projects)[number]): Step => ({
    part: "conformance",
    project,
    heading: `Conformance on a real cluster: ${project}`,
    run: (run) => cluster.tests(run, project),
  });
  const withoutCluster: Track = [
    { part: "static", heading: "Formatting, lint, import directions, types", run: staticChecks },
    { part: "generated", heading: "Generated files are what their sources say", run: generatedFiles },
    { part: "unit", heading: "Unit and chart tests", run: unitTests },
  ];
  return [[withoutCluster, [conformance("nodes")]], [[conformance("pairs")]], [[conformance("faults")]]];
}

async function staticChecks(run: Run): Promise<Case[]> {
  const check = (name: string, command: string, ...args: string[]) =>
    checkedBy(name, command, args, commandOptions(run, 10 * minute));
  return [
    await check("the code is formatted and free of what the linter refuses", "npm", "run", "--silent", "lint:style"),
    await check("every import follows the arrows between the rooms", "npm", "run", "--silent", "lint:arrows"),
    await check("the types fit", "npm", "run", "--silent", "typecheck"),
  ];
}

/** Every script `verify:NAME` is one test. */
async function generatedFiles(run: Run): Promise<Case[]> {
  const manifest = z
    .object({ scripts: z.record(z.string(), z.string()) })
    .parse(JSON.parse(await readFile(join(run.root, "package.json"), "utf8")));
  const cases: Case[] = [];
  for (const script of Object.keys(manifest.scripts).filter((name) => name.startsWith("verify:"))) {
    const name = `${script.slice("verify:".length)} is up to date`;
    cases.push(await checkedBy(name, "npm", ["run", "--silent", script], commandOptions(run, 5 * minute)));
  }
  return cases;
}

/** Tests that want any cluster, beside the code they test: the conformance part runs them. */
const clusterTests = "**/{cluster,*.cluster}.test.ts";

async function unitTests(run: Run): Promise<Case[]> {
  const progress = progressTo(run.output);
  const unproven: Case[] = [];
  const bring = async (name: string, what: () => Promise<unknown>) => {
    try {
      await what();
    } catch (error) {
      const detail = OpenShellError.from(error).message;
      progress.note(`${name} is not shown here: ${detail}`);
      unproven.push({ suite: "e2e/test.ts", name, outcome: isCi ? "failed" : "skipped", seconds: 0, detail });
    }
  };
  // What the tests of the chart and of the runtime look for on this machine; without it they skip themselves.
  await bring("the chart works with Helm 4", () => unpackClients(progress));
  await bring("the chart works with Helm 3", () => buildProgram("helm3", progress, run.signal));
  if (process.platform === "linux" && process.getuid?.() === 0) {
    await bring("the runtime works in other images", () => installPackages(progress, run.signal));
  }
  return [...(await vitest(run, "unit", ["--exclude", clusterTests], 20 * minute)), ...unproven];
}

async function main(argv: readonly string[], signal: AbortSignal): Promise<number> {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      only: { type: "string", multiple: true },
      provider: { type: "string" },
      project: { type: "string", multiple: true, default: ["pairs", "nodes"] },
      filter: { type: "string" },
      keep: { type: "boolean", default: false },
      report: { type: "string" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  refuseUnknown("part", values.only ?? [], parts);
  refuseUnknown("project", values.project, projects);
  const root = fileURLToPath(new URL("..", import.meta.url));
  const run: Run = {
    root,
    reports: values.report ?? process.env.OPENSHELL_TEST_REPORT ?? join(root, "dist", "test-report"),
    output: process.stdout,
    signal,
    facts: { "Node.js": process.version, Machine: `${process.platform} ${process.arch}` },
  };
  await mkdir(run.reports, { recursive: true });
  const isChosen = ({ part, project }: Step) =>
    (values.only?.includes(part) ?? true) && (project === undefined || values.project.includes(project));

  const sections: Section[] = [];
  {
    await using cluster = new TestCluster({
      provider: values.provider ?? process.env.OPENSHELL_PROVIDER,
      filter: values.filter,
      keep: values.keep,
    });
    for (const tracks of everything(cluster)) {
      const chosen = tracks.map((track) => track.filter(isChosen));
      if (!signal.aborted) sections.push(...(await sideBySide(chosen, run)));
    }
    if (values.filter !== undefined && cluster.count === 0 && !signal.aborted)
      throw new OpenShellError("invalid-argument", `no conformance file has "${values.filter}" in its path`);
  }

  await writeFile(join(run.reports, "junit.xml"), junitXml(sections));
  await writeFile(join(run.reports, "report.md"), markdownReport(sections, run.facts));
  const failures = casesOf(sections, "failed");
  if (failures.length > 0) process.stdout.write("\n== Failures ==\n");
  for (const { suite, name, detail = "" } of failures) {
    const shown = detail.split("\n");
    const more = shown.length > 40 ? `\n… ${shown.length - 40} more lines in the report` : "";
    process.stdout.write(`\n✗ ${suite}: ${name}\n${shown.slice(0, 40).join("\n")}${more}\n`);
  }
  process.stdout.write(`\nreports: ${run.reports}\n${summaryLine(sections)}\n`);
  return failures.length > 0 || signal.aborted ? 1 : 0;
}

function refuseUnknown(what: string, given: readonly string[], known: readonly string[]): void {
  const unknown = given.find((one) => !known.includes(one));
  if (unknown !== undefined)
    throw new OpenShellError("invalid-argument", `there is no ${what} "${unknown}"\n\n${usage}`);
}

/** Each step with its output under its heading: what runs beside the first track is heard when that has ended. */
async function sideBySide(tracks: readonly Track[], run: Run): Promise<Section[]> {
  const sections: Section[] = [];
  for (const { step, output, cases } of tracks.flatMap((track) => begin(track, run))) {
    run.output.write(`\n== ${step.heading} ==\n`);
    output.release();
    sections.push({ heading: step.heading, cases: await cases });
  }
  return sections;
}

interface Begun {
  readonly step: Step;
  readonly output: HeldOutput;
  readonly cases: Promise<Case[]>;
}

function begin(track: Track, run: Run): readonly Begun[] {
  let before: Promise<unknown> = Promise.resolve();
  return track.map((step) => {
    const output = new HeldOutput(run.output);
    const cases = before.then(() => (run.signal.aborted ? [] : casesOfStep(step, { ...run, output })));
    before = cases;
    return { step, output, cases };
  });
}

/** What breaks a step is a failure of it, and the others still run. */
async function casesOfStep({ part, heading, run: work }: Step, run: Run): Promise<Case[]> {
  try {
    return await work(run);
  } catch (error) {
    const { message } = OpenShellError.from(error);
    return [{ suite: part, name: heading, outcome: "failed", seconds: 0, detail: message }];
  }
}

const interrupted = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => interrupted.abort());
try {
  process.exitCode = await main(process.argv.slice(2), interrupted.signal);
} catch (error) {
  process.stderr.write(`npm test: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 2;
}
