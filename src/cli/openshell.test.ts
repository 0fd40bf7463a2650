import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, describe, expect, it } from "vitest";

let clone: string;
let child: ChildProcess | undefined;

/** A clone with the program's first file, and a command line that says which signals it hears. */
beforeEach(() => {
  clone = mkdtempSync(join(tmpdir(), "openshell-clone-"));
  mkdirSync(join(clone, "src", "cli"), { recursive: true });
  for (const file of ["openshell.mjs", "_whole.mjs"]) {
    copyFileSync(join(import.meta.dirname, file), join(clone, "src", "cli", file));
  }
  writeFileSync(
    join(clone, "src", "cli", "main.ts"),
    `for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
      process.on(signal, () => {
        console.log("heard", signal);
        process.exit(130);
      });
    }
    setInterval(() => {}, 1_000);
    console.log("listening");`,
  );
});
afterEach(() => {
  // Of what is left both processes hear it.
  child?.kill("SIGTERM");
  rmSync(clone, { recursive: true });
});

function install() {
  mkdirSync(join(clone, "node_modules", ".bin"), { recursive: true });
  symlinkSync(process.execPath, join(clone, "node_modules", ".bin", "node"));
}

/** Run by a Node.js that says that it is an older one. */
function openshell(...args: string[]) {
  const old = 'data:text/javascript,Object.defineProperty(process, "versions", { value: { node: "20.0.0" } })';
  const program = join(clone, "src", "cli", "openshell.mjs");
  const started = spawn(process.execPath, ["--import", old, program, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  child = started;
  return started;
}

describe("openshell of a clone, run by an older Node.js", () => {
  it.each([
    ["SIGINT", "SIGTERM"],
    ["SIGTERM", "SIGTERM"],
    ["SIGHUP", "SIGHUP"],
  ] as const)("passes a %s on that only it got", async (signal, heard) => {
    install();
    const running = openshell("status");
    const exit = once(running, "exit");
    await once(running.stdout, "data");
    running.kill(signal);
    expect(await text(running.stdout)).toBe(`heard ${heard}\n`);
    expect(await exit).toEqual([130, null]);
  });

  it.each([
    ["sandbox list", 1],
    ["sandbox exec box -- true", 125],
    ["sandbox create -- true", 125],
  ])('lets "%s" fail with code %i where nothing is installed', async (line, code) => {
    const running = openshell(...line.split(" "));
    const exit = once(running, "exit");
    expect(await text(running.stderr)).toMatch(/^openshell: run "npm ci" in .* first\n$/);
    expect(await exit).toEqual([code, null]);
  });
});
