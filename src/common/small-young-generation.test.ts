import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

/** MiB of a process's young generation after work that would have it grow to 16. */
function youngGeneration(prelude: string): number {
  const script = `
    ${prelude}
    import { getHeapSpaceStatistics } from "node:v8";
    let kept = [];
    for (let index = 0; index < 2_000_000; index += 1) {
      kept.push({ index });
      if (kept.length > 50_000) kept = [];
    }
    console.log(getHeapSpaceStatistics().find((space) => space.space_name === "new_space").space_size / 1024 ** 2);
  `;
  const run = ["--input-type=module", "--eval", script];
  return Number(execFileSync(process.execPath, run, { encoding: "utf8", env: { ...process.env, NODE_OPTIONS: "" } }));
}

describe("a young generation", () => {
  it("stays small where that was asked for", () => {
    const url = new URL("./small-young-generation.ts", import.meta.url);
    expect(youngGeneration("")).toBeGreaterThan(8);
    const asked = `import { keepYoungGenerationSmall } from ${JSON.stringify(url)}; keepYoungGenerationSmall();`;
    expect(youngGeneration(asked)).toBeLessThan(4);
  });

  it.each(["gateway", "runtime"])("is asked to before the most of %s is loaded", (room) => {
    const main = readFileSync(new URL(`../${room}/main.ts`, import.meta.url), "utf8");
    const at = main.indexOf("\nkeepYoungGenerationSmall();");
    expect(at).toBeGreaterThan(0);
    expect(at).toBeLessThan(main.indexOf("await import("));
  });
});
