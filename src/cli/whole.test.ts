import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import packageJson from "../../package.json" with { type: "json" };

const maker: string = "./_whole.mjs";
const { wholeProgram } = (await import(maker)) as { wholeProgram(folder: string): Promise<string | undefined> };

const programIn = (directory: string) =>
  join(directory, readdirSync(directory).find((name) => name.endsWith(".mjs")) ?? "");

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "openshell-whole-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

describe("the command line as one file", () => {
  it("is made once, and does what its modules do", async () => {
    const url = await wholeProgram(folder);
    expect(await wholeProgram(folder)).toBe(url);
    const program = fileURLToPath(url ?? "");
    const said = execFileSync(process.execPath, [program, "--version"], { encoding: "utf8" });
    expect(said.trim()).toBe(packageJson.version);
    expect(readdirSync(folder)).toHaveLength(2);
  });

  it("is made again when what went into it has changed, and the one before goes", async () => {
    const url = await wholeProgram(folder);
    const file = join(folder, "parts.json");
    const known = JSON.parse(readFileSync(file, "utf8"));
    expect(known.parts).toEqual(expect.arrayContaining(["package-lock.json", "package.json", "src/cli/main.ts"]));
    writeFileSync(join(folder, "openshell-0123.mjs"), "");
    writeFileSync(file, JSON.stringify({ ...known, state: "0123", file: "openshell-0123.mjs" }));
    expect(await wholeProgram(folder)).toBe(url);
    expect(readdirSync(folder)).toHaveLength(2);
  });

  it.each([
    ["another's", () => writeFileSync(join(folder, "parts.json"), "{}")],
    ["no JSON", () => writeFileSync(join(folder, "parts.json"), "{")],
    ["of a file that has gone", () => rmSync(programIn(folder))],
  ])("is made again when what is known of it is %s", async (_what, spoil) => {
    const url = await wholeProgram(folder);
    spoil();
    expect(await wholeProgram(folder)).toBe(url);
    expect(existsSync(programIn(folder))).toBe(true);
    expect(readdirSync(folder)).toHaveLength(2);
  });

  it("leaves nothing where it cannot be made", async () => {
    await wholeProgram(folder);
    const program = programIn(folder);
    rmSync(program);
    mkdirSync(program);
    writeFileSync(join(folder, "parts.json"), "{}");
    expect(await wholeProgram(folder)).toBeUndefined();
    expect(readdirSync(folder).sort()).toEqual([basename(program), "parts.json"]);
  });

  it("is none where nothing can be kept", async () => {
    writeFileSync(join(folder, "file"), "");
    expect(await wholeProgram(join(folder, "file"))).toBeUndefined();
  });
});
