/**
 * `npm test`: everything this repository can prove about itself, in order. Ends with "N passed, N failed, N skipped" and a non-zero code
 * when anything failed.
 */
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { z } from "zod";
import { hasCode, OpenShellError } from "../src/common/errors.ts";
import { unpackClients } from "./cluster/clients.ts";
import { buildProgram } from "./cluster/local/programs.ts";
import { installPackages } from "./cluster/local/requirements.ts";
import { stderrProgress } from "./cluster/progress.ts";
import type { ClusterProvider } from "./cluster/provider.ts";
import { selectProvider } from "./cluster/select.ts";
import { type CommandOptions, checkedBy, finish } from "./testing/commands.ts";
import { type Case, casesOf, junitXml, markdownReport, type Section, summaryLine } from "./testing/results.ts";
import { casesOfVitest } from "./testing/vitest-report.ts";

const usage = `usage: npm test -- [options]

  --only PART      one of: static, generated, unit, conformance; may be repeated (default: all)
  --provider NAME  cluster for the conformance suite: local, k3d or kubeconfig (default: $OPENSHELL_PROVIDER, else what this machine has)
  --project NAME   part of the conformance suite: pairs, nodes or faults; may be repeated (default: pairs and nodes)
  --filter TEXT    only conformance files whose path contains TEXT
  --keep           leave the cluster up
  --report DIR     where junit.xml and report.md go (default: dist/test-report)
`;

const parts = ["static", "generated", "unit", "conformance"] as const;
type Part = (typeof parts)[number];

interface Run {
  readonly root: string;
  readonly reports: string;
  readonly provider: string | undefined;
  /** Arguments that choose among the conformance tests. */
  readonly filter: readonly string[];
  readonly keep: boolean;
  readonly signal: AbortSignal;
  readonly facts: Record<string, string>;
}

const minute = 60_000;
const isCi = /^(1|true)$/i.test(process.env.CI ?? "");

const headings: Readonly<Record<Part, string>> = {
  static: "Formatting, lint, import directions, types",
  generated: "Generated files are what their sources say",
  unit: "Unit and chart tests",
  conformance: "Conformance on a real cluster",
};

const runners: Readonly<Record<Part, (run: Run) => Promise<Case[]>>> = {
  static: staticChecks,
  generated: generatedFiles,
  unit: unitTests,
  conformance,
};

function options(run: Run, timeoutMs: number): CommandOptions {
  return { cwd: run.root, signal: run.signal, timeoutMs };
}

async function staticChecks(run: Run): Promise<Case[]> {
  const check = (name: string, command: string, ...args: string[]) =>
    checkedBy(name, command, args, options(run, 10 * minute));
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
    cases.push(await checkedBy(name, "npm", ["run", "--silent", script], options(run, 5 * minute)));
  }
  return cases;
}

/** Tests that want any cluster, beside the code they test: the conformance part runs them. */
const clusterTests = "**/{cluster,*.cluster}.test.ts";

async function unitTests(run: Run): Promise<Case[]> {
  const progress = stderrProgress();
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

async function conformance(run: Run): Promise<Case[]> {
  const progress = stderrProgress();
  let provider: ClusterProvider;
  try {
    provider = await selectProvider(run.provider);
  } catch (error) {
    if (hasCode(error, "invalid-argument")) throw error;
    return withoutCluster(run, OpenShellError.from(error).message);
  }
  run.facts.Cluster = provider.name;
  // A cluster that was there before this run is somebody's; only what this run brought up does it take down.
  const wasUp = await provider.nodes().then(
    (nodes) => nodes.length > 0,
    () => false,
  );
  const config = ["--config", "e2e/vitest.config.ts", ...run.filter];
  const timeoutMs = (run.filter.includes("--project=faults") ? 60 : 35) * minute;
  try {
    const cases = await vitest(run, "conformance", config, timeoutMs, { OPENSHELL_PROVIDER: provider.name });
    if (cases.some(({ outcome }) => outcome === "failed")) {
      const logs = join(run.reports, "cluster-logs");
      await provider.collectLogs(logs).then(
        () => progress.note(`the cluster's logs are in ${logs}`),
        (error: unknown) => progress.note(`the cluster's logs cannot be had: ${OpenShellError.from(error).message}`),
      );
    }
    return cases;
  } finally {
    if (wasUp) progress.note("the cluster was up before and stays up");
    else if (run.keep) progress.note("the cluster stays up; `npm run cluster -- down` removes it");
    else await provider.down(progress);
  }
}

/** One line, and every test that would have run counts as skipped; in CI, where a cluster is promised, as one failure. */
async function withoutCluster(run: Run, why: string): Promise<Case[]> {
  run.facts.Cluster = "none";
  process.stdout.write(`  no cluster, so these tests are skipped: ${why}\n`);
  if (isCi) {
    return [{ suite: "e2e/suites", name: "a cluster can be had", outcome: "failed", seconds: 0, detail: why }];
  }
  const skipped = await listed(run, ["--config", "e2e/vitest.config.ts", ...run.filter]);
  return skipped.map(({ name, file }) => ({
    suite: relative(run.root, file),
    name,
    outcome: "skipped",
    seconds: 0,
    detail: why,
  }));
}

/** Tests that a vitest run would have, found without running anything. */
async function listed(run: Run, args: readonly string[]): Promise<{ name: string; file: string }[]> {
  const list = ["list", ...args, "--staticParse", "--json"];
  const { output } = await finish("vitest", list, { ...options(run, 2 * minute), show: false });
  const tests = z.array(z.object({ name: z.string(), file: z.string() })).safeParse(jsonIn(output));
  if (tests.success) return tests.data;
  throw new OpenShellError("internal", `the tests cannot be listed: ${output}`);
}

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text.slice(text.indexOf("[")));
  } catch {
    // The caller says what was printed instead.
    return undefined;
  }
}

/** A vitest run as cases; one that wrote no report is a single failure with what it said. */
async function vitest(
  run: Run,
  name: string,
  args: readonly string[],
  timeoutMs: number,
  env: Readonly<Record<string, string>> = {},
): Promise<Case[]> {
  const file = join(run.reports, `${name}.json`);
  await rm(file, { force: true });
  const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${file}`];
  const finished = await finish("vitest", ["run", ...args, ...reporters], { ...options(run, timeoutMs), env });
  const text = await readFile(file, "utf8").catch(() => undefined);
  const cases = text === undefined ? [] : casesOfVitest(text, run.root);
  // Unhandled errors and a failed set-up are in the exit code only.
  if (finished.code !== 0 && !cases.some(({ outcome }) => outcome === "failed")) {
    const detail = finished.output.slice(-8000).trim();
    return [
      ...cases,
      { suite: name, name: "the run as a whole", outcome: "failed", seconds: finished.seconds, detail },
    ];
  }
  return cases;
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
  const unknown = (values.only ?? []).find((part) => !parts.some((one) => one === part));
  if (unknown !== undefined) throw new OpenShellError("invalid-argument", `there is no part "${unknown}"\n\n${usage}`);
  const root = fileURLToPath(new URL("..", import.meta.url));
  const run: Run = {
    root,
    reports: values.report ?? process.env.OPENSHELL_TEST_REPORT ?? join(root, "dist", "test-report"),
    provider: values.provider ?? process.env.OPENSHELL_PROVIDER,
    filter: [
      ...values.project.map((name) => `--project=${name}`),
      ...(values.filter === undefined ? [] : [values.filter]),
    ],
    keep: values.keep,
    signal,
    facts: { "Node.js": process.version, Machine: `${process.platform} ${process.arch}` },
  };
  await mkdir(run.reports, { recursive: true });

  const sections: Section[] = [];
  for (const part of parts.filter((one) => values.only?.includes(one) ?? true)) {
    process.stdout.write(`\n== ${headings[part]} ==\n`);
    sections.push({ heading: headings[part], cases: await casesOfPart(part, run) });
    if (signal.aborted) break;
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

/** What breaks a part is a failure of it, and the others still run. */
async function casesOfPart(part: Part, run: Run): Promise<Case[]> {
  try {
    return await runners[part](run);
  } catch (error) {
    const { message } = OpenShellError.from(error);
    return [{ suite: part, name: headings[part], outcome: "failed", seconds: 0, detail: message }];
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
