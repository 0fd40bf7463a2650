import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isRoot, RuntimeProcess, typed } from "./_harness.ts";
import { place, placeLibraries, placeRuntime } from "./_program.ts";

const busybox = ["/usr/bin/busybox", "/bin/busybox"].find((file) => existsSync(file));
let directory: string;
let bundle: string;

/** An image with these programs, all of them one static busybox, and nothing else. */
function makeImage(name: string, programs: readonly string[]): string {
  const root = join(directory, name);
  for (const folder of ["proc", "dev", "etc", "sandbox"]) mkdirSync(join(root, folder), { recursive: true });
  place(busybox ?? "", join(root, "usr/bin/.busybox"));
  for (const program of programs) {
    mkdirSync(dirname(join(root, program)), { recursive: true });
    symlinkSync("/usr/bin/.busybox", join(root, program));
  }
  symlinkSync("usr/lib", join(root, "lib"));
  execFileSync("cp", ["-al", bundle, join(root, "openshell")]);
  return root;
}

describe.skipIf(busybox === undefined || !isRoot)("the relocated runtime", () => {
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), "openshell-images-"));
    bundle = join(directory, "bundle");
    await placeRuntime(bundle);
    placeLibraries(bundle);
  });
  afterAll(() => {
    if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
  });

  it("serves an image that holds only busybox, through its shell", async () => {
    const root = makeImage("busybox", ["bin/sh", "bin/cat", "bin/ps", "bin/tty", "bin/sleep"]);
    await using runtime = await RuntimeProcess.start({ root });
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    expect(await supervisor.exec(["cat", "-"], { input: typed("in") })).toEqual({ stdout: "in", stderr: "", code: 0 });
    expect((await supervisor.exec(["sh", "-c", "echo $0 $HOME; exit 4"])).code).toBe(4);
    expect((await supervisor.exec(["tty"], { tty: true })).stdout).toMatch(/^\/dev\/pts\/\d+/);
    expect((await supervisor.exec(["absent"])).code).toBe(127);
    expect((await supervisor.exec(["sh", "-c", "echo $PPID"])).stdout).toBe("1\n");
  });

  it("serves an image with no shell at all, directly", async () => {
    const root = makeImage("noshell", ["usr/bin/cat", "usr/bin/env"]);
    writeFileSync(join(root, "usr/bin/data"), "no program");
    chmodSync(join(root, "usr/bin/data"), 0o644);
    await using runtime = await RuntimeProcess.start({ root });
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    expect(await supervisor.exec(["cat"], { input: typed("in") })).toEqual({ stdout: "in", stderr: "", code: 0 });
    expect((await supervisor.exec(["/usr/bin/env"])).stdout).toContain("USER=sandbox");
    expect((await supervisor.exec(["sh", "-c", "true"])).code).toBe(127);
    expect((await supervisor.exec(["/usr/bin/data"])).code).toBe(126);
  });
});
