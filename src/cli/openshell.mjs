#!/usr/bin/env node
// Starts the command line on the Node.js of this project: the one that was called may be too old to run TypeScript.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import module from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import { wholeProgram } from "./_whole.mjs";

const oldestMajor = 24;
const main = fileURLToPath(new URL("main.ts", import.meta.url));
const modules = fileURLToPath(new URL("../../node_modules", import.meta.url));
const own = join(modules, ".bin", "node");

if (!existsSync(own)) {
  process.stderr.write(`openshell: run "npm ci" in ${fileURLToPath(new URL("../..", import.meta.url))} first\n`);
  // As src/cli/exit-codes.ts has it: 1 could be the code of a command in a sandbox.
  process.exitCode = process.argv.some((word) => word === "exec" || word === "create") ? 125 : 1;
} else if (Number(process.versions.node.split(".")[0]) >= oldestMajor) {
  process.argv[1] = main;
  // Half of a short command's time is the compiling of what it imports; where nothing can be kept it is compiled each time.
  module.enableCompileCache(join(modules, ".cache", "node"));
  // As src/common/small-young-generation.ts has it: copies are bytes, and loading alone makes the young generation grow.
  setFlagsFromString("--semi-space-growth-factor=1");
  await import((await wholeProgram(join(modules, ".cache", "openshell-cli"))) ?? "./main.ts");
} else {
  const child = spawn(own, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], { stdio: "inherit" });
  // The child is in the same group and hears the terminal itself, where a second SIGINT would be its end; what is sent to this one alone it
  // hears as well.
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => child.kill("SIGTERM"));
  process.on("SIGHUP", () => child.kill("SIGHUP"));
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}
