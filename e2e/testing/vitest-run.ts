import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { OpenShellError } from "../../src/common/errors.ts";
import { finish } from "./commands.ts";
import type { Case } from "./results.ts";
import { commandOptions, minute, type Run } from "./run.ts";
import { casesOfVitest } from "./vitest-report.ts";

/** A vitest run as cases; one that wrote no report is a single failure with what it said. */
export async function vitest(
  run: Run,
  name: string,
  args: readonly string[],
  timeoutMs: number,
  env: Readonly<Record<string, string>> = {},
): Promise<Case[]> {
  const file = join(run.reports, `${name}.json`);
  await rm(file, { force: true });
  const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${file}`];
  const finished = await finish("vitest", ["run", ...args, ...reporters], { ...commandOptions(run, timeoutMs), env });
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

/** Tests that a vitest run would have, found without running anything. */
export async function listed(run: Run, args: readonly string[]): Promise<{ name: string; file: string }[]> {
  const { output: _, ...options } = commandOptions(run, 2 * minute);
  const { output } = await finish("vitest", ["list", ...args, "--staticParse", "--json"], options);
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
