/** For tests: the runtime outside of its source tree, for another root directory or for another user. */

import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, linkSync, mkdirSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { buildNative } from "./native/build.ts";

const readableByAll = 0o444;

/** Puts `file` at `target`, readable by every user, and without copying 120 MB where one file system holds both. */
export function place(file: string, target: string): void {
  mkdirSync(dirname(target), { recursive: true });
  const source = realpathSync(file);
  const { mode } = statSync(source);
  if ((mode & readableByAll) === readableByAll) {
    try {
      linkSync(source, target);
      return;
    } catch {
      // Another file system, or one without hard links.
    }
  }
  copyFileSync(source, target);
  chmodSync(target, mode | (mode & 0o100 ? 0o555 : readableByAll));
}

export interface RuntimeProgram {
  readonly node: string;
  /** The bundle, with the native layer beside it. */
  readonly main: string;
}

/** Node, our bundle and the native layer in `directory`, as a workload Pod has them in /openshell. */
export async function placeRuntime(directory: string): Promise<RuntimeProgram> {
  const node = join(directory, "bin/node");
  const main = join(directory, "runtime.mjs");
  place(process.execPath, node);
  place(buildNative(), join(directory, "openshell.node"));
  await build({
    entryPoints: [join(dirname(fileURLToPath(import.meta.url)), "main.ts")],
    outfile: main,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node24",
    logLevel: "silent",
    banner: { js: 'import { createRequire as __r } from "node:module"; const require = __r(import.meta.url);' },
  });
  for (const folder of [directory, dirname(node)]) chmodSync(folder, 0o755);
  chmodSync(main, 0o644);
  return { node, main };
}

/** Node's shared libraries and their loader, so that the program runs in a root directory that has none. */
export function placeLibraries(directory: string): void {
  const libraries = execFileSync("ldd", [process.execPath], { encoding: "utf8" }).matchAll(/(?:=> )?(\/\S+) \(0x/g);
  for (const [, library = ""] of libraries) place(library, join(directory, "lib", basename(library)));
}
