/** What a test run came to: cases, their sum, and the two reports that are written of them. Pure. */
import { stripVTControlCharacters } from "node:util";

export type Outcome = "passed" | "failed" | "skipped";

export interface Case {
  /** The file or command it is in. */
  readonly suite: string;
  /** Its sentence. */
  readonly name: string;
  readonly outcome: Outcome;
  readonly seconds: number;
  /** Why it failed or was skipped. */
  readonly detail?: string;
}

/** The cases of one heading. */
export interface Section {
  readonly heading: string;
  readonly cases: readonly Case[];
}

/** The last line of a run; its form is an interface. */
export function summaryLine(sections: readonly Section[]): string {
  const count = (outcome: Outcome) => casesOf(sections, outcome).length;
  return `${count("passed")} passed, ${count("failed")} failed, ${count("skipped")} skipped`;
}

export function casesOf(sections: readonly Section[], outcome: Outcome): Case[] {
  return sections.flatMap(({ cases }) => cases.filter((one) => one.outcome === outcome));
}

/** JUnit XML as CI systems read it: one testsuite a heading. */
export function junitXml(sections: readonly Section[]): string {
  const suites = sections.map(({ heading, cases }) => {
    const count = (outcome: Outcome) => cases.filter((one) => one.outcome === outcome).length;
    const attributes = `name="${xml(heading)}" tests="${cases.length}" failures="${count("failed")}" skipped="${count("skipped")}"`;
    return `  <testsuite ${attributes}>\n${cases.map(junitCase).join("")}  </testsuite>\n`;
  });
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n${suites.join("")}</testsuites>\n`;
}

function junitCase({ suite, name, outcome, seconds, detail = "" }: Case): string {
  const head = `    <testcase classname="${xml(suite)}" name="${xml(name)}" time="${seconds.toFixed(3)}"`;
  if (outcome === "passed") return `${head}/>\n`;
  const body =
    outcome === "skipped"
      ? `<skipped message="${xml(firstLine(detail))}"/>`
      : `<failure message="${xml(firstLine(detail))}">${xml(detail)}</failure>`;
  return `${head}>${body}</testcase>\n`;
}

/** The run as a page for people: the sum, a table of headings, every failure in full. */
export function markdownReport(sections: readonly Section[], facts: Readonly<Record<string, string>>): string {
  const rows = sections.map(({ heading, cases }) => {
    const count = (outcome: Outcome) => cases.filter((one) => one.outcome === outcome).length;
    const seconds = cases.reduce((sum, one) => sum + one.seconds, 0);
    return `| ${heading} | ${count("passed")} | ${count("failed")} | ${count("skipped")} | ${seconds.toFixed(1)} |`;
  });
  const failures = casesOf(sections, "failed").map(
    ({ suite, name, detail = "" }) => `### ${suite}: ${name}\n\n${fenced(plain(detail))}\n`,
  );
  const skipped = casesOf(sections, "skipped").map(
    ({ suite, name, detail = "" }) => `- ${suite}: ${name} (${firstLine(detail)})`,
  );
  return [
    "# Test report",
    "",
    `**${summaryLine(sections)}**`,
    "",
    ...Object.entries(facts).map(([name, value]) => `- ${name}: ${value}`),
    "",
    "| part | passed | failed | skipped | seconds |",
    "|---|---:|---:|---:|---:|",
    ...rows,
    "",
    ...(failures.length === 0 ? [] : ["## Failures", "", ...failures]),
    ...(skipped.length === 0 ? [] : ["## Skipped", "", ...skipped, ""]),
  ].join("\n");
}

/** A code block whose fence is longer than any in the text. */
function fenced(text: string): string {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((ticks) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}text\n${text}\n${fence}`;
}

function firstLine(text: string): string {
  return plain(text).trim().split("\n", 1)[0] ?? "";
}

/** Without colours, and without what XML 1.0 has no way to write. */
function plain(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it is about
  return stripVTControlCharacters(text).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "");
}

function xml(text: string): string {
  return plain(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
