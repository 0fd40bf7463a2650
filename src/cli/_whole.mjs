// The command line as one file: to find and read its three hundred modules takes longer than most commands. The file is made again when
// one of our own that went into it, or package-lock.json, has changed; whoever doubts it deletes its folder.

import { createHash } from "node:crypto";
import {
  accessSync,
  constants,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const root = join(import.meta.dirname, "..", "..");

/**
 * URL of the one file; undefined where nothing can be kept in the folder, or nothing is there to make it with.
 * @param {string} folder
 * @returns {Promise<string | undefined>}
 */
export async function wholeProgram(folder) {
  const kept = keptIn(folder);
  if (kept !== undefined) return urlOf(kept);
  try {
    mkdirSync(folder, { recursive: true });
    accessSync(folder, constants.W_OK);
    return urlOf(await make(folder));
  } catch {
    return undefined;
  }
}

function urlOf(file) {
  return pathToFileURL(file).href;
}

/** The file that is there and still whole; undefined, so that it is made again, also where what is kept is none of ours. */
function keptIn(folder) {
  try {
    const { file, state, parts } = JSON.parse(readFileSync(join(folder, "parts.json"), "utf8"));
    const program = join(folder, file);
    accessSync(program, constants.R_OK);
    return state !== undefined && stateOf(parts) === state ? program : undefined;
  } catch {
    return undefined;
  }
}

/** Changes when one of the files does; undefined where one is not there. */
function stateOf(parts) {
  const hash = createHash("sha256");
  for (const part of parts) {
    const found = statSync(join(root, part), { throwIfNoEntry: false });
    if (found === undefined) return undefined;
    hash.update(`${part} ${found.mtimeMs} ${found.size}\n`);
  }
  return hash.digest("hex").slice(0, 16);
}

/** Complete under its name or not there, though others make it at the same time. */
async function make(folder) {
  const own = join(folder, `${process.pid}.partial`);
  try {
    return await makeBy(own, folder);
  } finally {
    rmSync(own, { force: true });
  }
}

/** @param {string} own where a file of this process is until it is complete */
async function makeBy(own, folder) {
  const [{ build }, { oneFile }] = await Promise.all([import("esbuild"), import("../common/one-file.ts")]);
  const { metafile } = await build({
    ...oneFile,
    absWorkingDir: root,
    entryPoints: ["src/cli/main.ts"],
    outfile: own,
    logLevel: "silent",
    metafile: true,
  });
  const parts = [
    "package-lock.json",
    ...Object.keys(metafile.inputs).filter((part) => !part.startsWith("node_modules/")),
  ];
  const state = stateOf(parts);
  const file = `openshell-${state}.mjs`;
  renameSync(own, join(folder, file));
  writeFileSync(own, JSON.stringify({ file, state, parts }));
  renameSync(own, join(folder, "parts.json"));
  for (const old of readdirSync(folder).filter((name) => /^openshell-.*\.mjs$/.test(name) && name !== file)) {
    rmSync(join(folder, old), { force: true });
  }
  return join(folder, file);
}
