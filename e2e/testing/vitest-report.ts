import { relative } from "node:path";
import { z } from "zod";
import type { Case } from "./results.ts";

/** The part of vitest's JSON report that is read. */
const reportSchema = z.object({
  testResults: z.array(
    z.object({
      name: z.string(),
      status: z.string(),
      message: z.string().optional(),
      assertionResults: z.array(
        z.object({
          fullName: z.string(),
          status: z.string(),
          duration: z.number().nullish(),
          failureMessages: z.array(z.string()).nullish(),
        }),
      ),
    }),
  ),
});

/**
 * Cases of a vitest JSON report. A file that failed before its tests ran is one failed case, so that nothing that did not run counts as well.
 * @param root paths are shown relative to it
 * @throws when the text is no such report
 */
export function casesOfVitest(text: string, root: string): Case[] {
  return reportSchema.parse(JSON.parse(text)).testResults.flatMap((file) => {
    const suite = relative(root, file.name);
    const cases = file.assertionResults.map(({ fullName, status, duration, failureMessages }): Case => {
      const outcome = status === "passed" ? "passed" : status === "failed" ? "failed" : "skipped";
      const detail = outcome === "skipped" ? "marked as skipped" : (failureMessages ?? []).join("\n");
      return {
        suite,
        name: fullName.trim(),
        outcome,
        seconds: (duration ?? 0) / 1000,
        ...(detail === "" ? {} : { detail }),
      };
    });
    if (file.status !== "failed" || cases.some(({ outcome }) => outcome === "failed")) return cases;
    return [
      ...cases,
      { suite, name: "the file as a whole", outcome: "failed", seconds: 0, detail: file.message ?? "" },
    ];
  });
}
