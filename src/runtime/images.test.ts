import { execFileSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isRoot, nativePath, RuntimeProcess, typed } from "./_harness.ts";

const busybox = ["/usr/bin/busybox", "/bin/busybox"].find((file) => existsSync(file));
let directory: string;
let bundle: string;

/** Without copying 120 MB where one file system holds both. */
function place(file: string, target: string): void {
  mkdirSync(dirname(target), { recursive: true });
  try {
    linkSync(realpathSync(file), target);
  } catch {
    copyFileSync(file, target);
  }
}

/** Node, its libraries and loader, our bundle: what `stage` brings into any image. */
async function makeBundle(target: string): Promise<void> {
  const node = process.execPath;
  place(node, join(target, "bin/node"));
  const libraries = execFileSync("ldd", [node], { encoding: "utf8" }).matchAll(/(?:=> )?(\/\S+) \(0x/g);
  for (const [, library = ""] of libraries) place(library, join(target, "lib", basename(library)));
  copyFileSync(nativePath, join(target, "openshell.node"));
  await build({
    entryPoints: [join(dirname(fileURLToPath(import.meta.url)), "main.ts")],
    outfile: join(target, "runtime.mjs"),
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node24",
    logLevel: "silent",
    banner: { js: 'import { createRequire as __r } from "node:module"; const require = __r(import.meta.url);' },
  });
}

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
    await makeBundle(bundle);
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
