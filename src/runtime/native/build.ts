/**
 * Compiles native.c: `node src/runtime/native/build.ts [output]`. A fixed compiler command and content-addressed caching, so that
 * building images again costs nothing. Needs a C compiler (cc, gcc or clang, or `CC`); the headers come from the npm package
 * node-api-headers.
 */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { OpenShellError } from "../../common/errors.ts";

const here = dirname(fileURLToPath(import.meta.url));
const source = join(here, "native.c");
const flags = [
  ...["-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-s"],
  // Every symbol is bound at load: a child that shares our memory must not bind one while we do.
  "-Wl,-z,now",
];

export interface NativeBuild {
  /** Where the shared object goes. @default `dist/openshell.node` */
  readonly output?: string;
  /** Directory of earlier builds by content. @default `node_modules/.cache/openshell` */
  readonly cacheDirectory?: string;
}

/**
 * Builds the addon, or takes it from the cache, and returns its path.
 * @throws failed-precondition when there is no compiler or no headers, with what to install
 */
export function buildNative(options: NativeBuild = {}): string {
  const output = resolve(options.output ?? join(here, "../../../dist/openshell.node"));
  const cache = options.cacheDirectory ?? join(here, "../../../node_modules/.cache/openshell");
  const headers = headerDirectory();
  const compiler = findCompiler();
  const version = execFileSync(compiler, ["--version"], { encoding: "utf8" });
  const key = createHash("sha256")
    .update(readFileSync(source))
    .update(JSON.stringify([flags, version, process.versions.modules, process.arch]))
    .digest("hex")
    .slice(0, 32);
  const cached = join(cache, `native-${key}.node`);
  if (!existsSync(cached)) compile(compiler, headers, cached);
  mkdirSync(dirname(output), { recursive: true });
  const partial = `${output}.${process.pid}`;
  copyFileSync(cached, partial);
  renameSync(partial, output);
  return output;
}

function compile(compiler: string, headers: string, target: string): void {
  mkdirSync(dirname(target), { recursive: true });
  const partial = `${target}.${process.pid}`;
  try {
    execFileSync(compiler, [...flags, "-I", headers, "-o", partial, source], { stdio: ["ignore", "pipe", "pipe"] });
  } catch (cause) {
    const output = cause instanceof Error && "stderr" in cause ? String(cause.stderr) : "";
    throw new OpenShellError("internal", `${compiler} could not compile ${source}:\n${output}`, { cause });
  }
  renameSync(partial, target);
}

function findCompiler(): string {
  for (const name of [process.env.CC, "cc", "gcc", "clang"]) {
    if (name === undefined || name === "") continue;
    try {
      execFileSync(name, ["--version"], { stdio: "ignore" });
      return name;
    } catch {
      // Not this one; the sentence below names what was looked for.
    }
  }
  throw new OpenShellError(
    "failed-precondition",
    "no C compiler found (looked for $CC, cc, gcc, clang): install one, e.g. `apt-get install gcc libc6-dev`",
  );
}

function headerDirectory(): string {
  const require = createRequire(import.meta.url);
  try {
    return join(dirname(require.resolve("node-api-headers/package.json")), "include");
  } catch (cause) {
    throw new OpenShellError("failed-precondition", "the npm package node-api-headers is missing: run npm install", {
      cause,
    });
  }
}

if (process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const [, , output] = process.argv;
  process.stdout.write(`${buildNative(output === undefined ? {} : { output })}\n`);
}
