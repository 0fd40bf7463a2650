// First step of `npm test`, `npm run demo` and `npm run e2e`: brings the dependencies, Node.js 24 among them, and starts a program on it.
// Runs on any Node.js since 18 and needs nothing but Node.js and npm.
//
//   node e2e/bootstrap.mjs PROGRAM.ts [arguments]
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const modules = join(root, "node_modules");
const node = join(modules, ".bin", process.platform === "win32" ? "node.cmd" : "node");
const lock = join(root, "package-lock.json");
/** Which lock file was installed; npm itself does not say. */
const stamp = join(modules, ".openshell-lock");

function fail(sentence) {
  process.stderr.write(`${sentence}\n`);
  process.exit(1);
}

const lockHash = () => createHash("sha256").update(readFileSync(lock)).digest("hex");
const read = (path) => (existsSync(path) ? readFileSync(path, "utf8") : "");
const changed = (path) => (existsSync(path) ? statSync(path).mtimeMs : 0);

/** Installed from this very lock file, by us or by an `npm install` since it last changed. */
function isInstalled() {
  if (!existsSync(node)) return false;
  return read(stamp) === lockHash() || changed(join(modules, ".package-lock.json")) >= changed(lock);
}

/** Runs a command; its output is shown when it fails, and until then a line every ten seconds. */
function install() {
  const started = Date.now();
  const seconds = () => `${Math.round((Date.now() - started) / 1000)} s`;
  const args = ["ci", "--no-audit", "--no-fund", "--loglevel=error", "--progress=false"];
  process.stderr.write("installing the dependencies (npm ci; the first time takes one to three minutes)\n");
  const child = spawn("npm", args, {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
    shell: process.platform === "win32",
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk) => {
      said = (said + chunk).slice(-20_000);
    });
  }
  const ticking = setInterval(() => process.stderr.write(`  npm ci runs for ${seconds()}\n`), 10_000);
  return new Promise((resolve) => {
    child.on("error", (error) => {
      clearInterval(ticking);
      fail(`npm cannot be started (${error.message}): install Node.js 20 or newer with npm`);
    });
    child.on("close", (code) => {
      clearInterval(ticking);
      if (code !== 0 || !existsSync(node)) {
        fail(
          `${said.trim()}\n\nnpm ci failed: see above. It needs the npm registry (npm config get registry) and about 1 GB of disk.`,
        );
      }
      writeFileSync(stamp, lockHash());
      process.stderr.write(`dependencies installed in ${seconds()}\n`);
      resolve();
    });
  });
}

const [program, ...args] = process.argv.slice(2);
if (program === undefined) fail("usage: node e2e/bootstrap.mjs PROGRAM.ts [arguments]");
if (!isInstalled()) await install();

const child = spawn(node, [join(root, program), ...args], {
  stdio: "inherit",
  env: {
    // What one program compiled of our sources, the next one finds: half of the CPU of a start.
    NODE_COMPILE_CACHE: join(modules, ".cache", "node"),
    ...process.env,
    PATH: `${join(modules, ".bin")}${delimiter}${process.env.PATH ?? ""}`,
  },
});
// The keyboard's interrupt reaches the program by itself; this process waits for the program to clean up.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => child.kill("SIGTERM"));
child.on("error", (error) => fail(`${node} cannot be started (${error.message}): remove node_modules and run again`));
child.on("exit", (code, signal) => {
  process.exitCode = code ?? 128 + (signal === "SIGINT" ? 2 : 15);
});
