import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const folder = mkdtempSync(join(tmpdir(), "openshell-libraries-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** What a process of its own gets that imports the libraries: where from, and what they export. @param cache the packages without one */
function imported(cache?: string): { readonly keys: string[]; readonly from: string[] } {
  const script = `
    import { importLibrariesWhole } from ${JSON.stringify(join(import.meta.dirname, "_libraries.mjs"))};
    ${cache === undefined ? "" : `await importLibrariesWhole(${JSON.stringify(cache)});`}
    const names = ["zod", "cdk8s", "constructs", "smol-toml"];
    const all = await Promise.all(names.map((name) => import(name)));
    const keys = all.map((one) => Object.keys(one).filter((key) => key !== "module.exports").join());
    console.log(JSON.stringify({ keys, from: names.map((name) => import.meta.resolve(name)) }));`;
  const cwd = join(import.meta.dirname, "..", "..");
  return JSON.parse(execFileSync(process.execPath, ["--input-type=module", "-e", script], { cwd, encoding: "utf8" }));
}

describe("a library that synth imports whole", () => {
  const cache = join(folder, "libraries");
  let plain: ReturnType<typeof imported>;
  let whole: ReturnType<typeof imported>;
  beforeAll(() => {
    plain = imported();
    whole = imported(cache);
  });

  test("exports what the package does", () => {
    expect(whole.keys).toEqual(plain.keys);
    expect(plain.keys.every((keys) => keys.length > 0)).toBe(true);
  });

  test("is one file in the cache, of which there is one folder, also for the next process", () => {
    for (const url of whole.from) expect(url).toContain("/libraries/");
    expect(imported(cache)).toEqual(whole);
    expect(readdirSync(cache)).toHaveLength(1);
  });

  test("is the package itself where nothing can be kept", () => {
    const file = join(folder, "file");
    writeFileSync(file, "");
    expect(imported(join(file, "libraries"))).toEqual(plain);
  });
});
