import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Case, junitXml, markdownReport, summaryLine } from "./results.ts";
import { casesOfVitest } from "./vitest-report.ts";

const one = (outcome: Case["outcome"], detail = ""): Case => ({
  suite: "a.test.ts",
  name: "works",
  outcome,
  seconds: 1,
  detail,
});

describe("a run's results", () => {
  it("end in the line that CI reads", () => {
    const sections = [
      { heading: "Unit", cases: [one("passed"), one("passed"), one("failed", "no")] },
      { heading: "Conformance", cases: [one("skipped", "no cluster")] },
    ];
    expect(summaryLine(sections)).toBe("2 passed, 1 failed, 1 skipped");
    expect(summaryLine([])).toBe("0 passed, 0 failed, 0 skipped");
  });

  it("are XML whatever a failure says", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        const document = junitXml([{ heading: text, cases: [one("failed", text), one("skipped", text)] }]);
        const inside = document.replace(/<[^<>]*>/g, "");
        expect(inside).not.toMatch(/[<>]/);
        expect([...inside].filter((character) => character < " " && !"\t\n\r".includes(character))).toEqual([]);
        expect(inside).not.toMatch(/&(?!amp;|lt;|gt;|quot;)/);
      }),
    );
  });

  it("are free of what they told a terminal", () => {
    const red = "\u001b[31mred\u001b[39m";
    const sections = [{ heading: "Unit", cases: [one("failed", red), one("skipped", red)] }];
    expect(junitXml(sections)).toContain('<failure message="red">red</failure>');
    expect(junitXml(sections)).toContain('<skipped message="red"/>');
    const report = markdownReport(sections, {});
    expect(report).toContain("```text\nred\n```");
    expect(report).toContain("works (red)");
  });

  it("show a failure in full in the report, fences and all", () => {
    const report = markdownReport([{ heading: "Unit", cases: [one("failed", "line\n```\nfence")] }], {
      Provider: "local",
    });
    expect(report).toContain("````text\nline\n```\nfence\n````");
    expect(report).toContain("| Unit | 0 | 1 | 0 | 1.0 |");
    expect(report).toContain("- Provider: local");
  });
});

describe("vitest's report", () => {
  const report = (testResults: unknown) => JSON.stringify({ testResults });

  it("becomes cases", () => {
    const assertionResults = [
      { fullName: " a works", status: "passed", duration: 12, failureMessages: [] },
      { fullName: "a fails", status: "failed", duration: null, failureMessages: ["AssertionError: no"] },
      { fullName: "a later", status: "pending" },
    ];
    const text = report([{ name: "/repo/src/a.test.ts", status: "failed", message: "", assertionResults }]);
    expect(casesOfVitest(text, "/repo")).toEqual([
      { suite: "src/a.test.ts", name: "a works", outcome: "passed", seconds: 0.012 },
      { suite: "src/a.test.ts", name: "a fails", outcome: "failed", seconds: 0, detail: "AssertionError: no" },
      { suite: "src/a.test.ts", name: "a later", outcome: "skipped", seconds: 0, detail: "marked as skipped" },
    ]);
  });

  it("counts a file that could not be loaded as a failure", () => {
    const text = report([{ name: "/repo/b.test.ts", status: "failed", message: "SyntaxError", assertionResults: [] }]);
    expect(casesOfVitest(text, "/repo")).toMatchObject([{ outcome: "failed", detail: "SyntaxError" }]);
  });

  it("counts a file whose hook failed after tests that passed as a failure", () => {
    const assertionResults = [{ fullName: "a works", status: "passed", duration: 1 }];
    const text = report([{ name: "/repo/b.test.ts", status: "failed", message: "afterAll: boom", assertionResults }]);
    expect(casesOfVitest(text, "/repo").map(({ outcome }) => outcome)).toEqual(["passed", "failed"]);
  });
});
