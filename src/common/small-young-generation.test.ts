import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

/** Says how many MiB the young generation has at a program's end, after work that has it grow to 16 or more. */
const measured = `data:text/javascript,${encodeURIComponent(`
  import { getHeapSpaceStatistics } from "node:v8";
  process.on("exit", () => {
    let kept = [];
    for (let index = 0; index < 2_000_000; index += 1) {
      kept.push({ index });
      if (kept.length > 50_000) kept = [];
    }
    const { space_size } = getHeapSpaceStatistics().find((space) => space.space_name === "new_space");
    process.stderr.write("\\nyoung generation: " + space_size / 1024 ** 2);
  });
`)}`;

function youngGeneration(program: readonly string[]): number {
  const env = { ...process.env, NODE_OPTIONS: "" };
  const { stderr } = spawnSync(process.execPath, ["--import", measured, ...program], { encoding: "utf8", env });
  return Number(/^young generation: (.*)$/m.exec(stderr)?.[1]);
}

const mainOf = (room: string) => fileURLToPath(new URL(`../${room}/main.ts`, import.meta.url));

describe("a young generation", () => {
  it("grows by itself", () => {
    expect(youngGeneration(["--eval", ""])).toBeGreaterThanOrEqual(16);
  });

  // What comes before the call may have it grow once or twice; each refuses what it is asked, and so does nothing.
  it.each([
    ["gateway", ["render", "--sandbox", "/dev/null/none"]],
    ["runtime", ["none"]],
  ])("stays small in the %s", (room, args) => {
    expect(youngGeneration([mainOf(room), ...args])).toBeLessThan(16);
  });
});
