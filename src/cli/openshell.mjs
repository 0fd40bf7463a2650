#!/usr/bin/env node
// Starts the command line on the Node.js of this project: the one that was called may be too old to run TypeScript.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const oldestMajor = 24;
const main = fileURLToPath(new URL("main.ts", import.meta.url));
const own = fileURLToPath(new URL("../../node_modules/.bin/node", import.meta.url));

if (!existsSync(own)) {
  process.stderr.write(`openshell: run "npm ci" in ${fileURLToPath(new URL("../..", import.meta.url))} first\n`);
  process.exitCode = 1;
} else if (Number(process.versions.node.split(".")[0]) >= oldestMajor) {
  process.argv[1] = main;
  await import("./main.ts");
} else {
  const child = spawn(own, [main, ...process.argv.slice(2)], { stdio: "inherit" });
  // The child is in the same group and hears the terminal itself; this one only waits for it.
  for (const signal of ["SIGINT", "SIGHUP"]) process.on(signal, () => {});
  process.on("SIGTERM", () => child.kill("SIGTERM"));
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}
