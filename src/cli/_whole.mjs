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
  const known = read(join(folder, "parts.json"));
  if (known !== undefined && stateOf(known.parts) === known.state) return urlOf(join(folder, known.file));
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

function read(file) {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
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
  const { build } = await import("esbuild");
  const own = `${process.pid}.partial`;
  const { metafile } = await build({
    absWorkingDir: root,
    entryPoints: ["src/cli/main.ts"],
    outfile: join(folder, own),
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node24",
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: "none",
    logLevel: "silent",
    metafile: true,
    // grpc-js and a few others are CommonJS and call require for Node's own modules.
    banner: {
      js: 'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);',
    },
    plugins: [ownModulesArePure],
  });
  const parts = [
    "package-lock.json",
    ...Object.keys(metafile.inputs).filter((part) => !part.startsWith("node_modules/")),
  ];
  const state = stateOf(parts);
  const file = `openshell-${state}.mjs`;
  renameSync(join(folder, own), join(folder, file));
  writeFileSync(join(folder, own), JSON.stringify({ file, state, parts }));
  renameSync(join(folder, own), join(folder, "parts.json"));
  for (const old of readdirSync(folder).filter((name) => /^openshell-.*\.mjs$/.test(name) && name !== file)) {
    rmSync(join(folder, old), { force: true });
  }
  return join(folder, file);
}

/** They do nothing when they are loaded, so that what a door offers and nobody here uses is left out. */
const ownModulesArePure = {
  name: "own-modules-are-pure",
  setup(context) {
    context.onResolve(
      { filter: /^\.{1,2}\// },
      async ({ path, importer, resolveDir, kind, with: attributes, pluginData }) => {
        if (pluginData === "resolved" || importer.includes("node_modules")) return undefined;
        const found = await context.resolve(path, {
          importer,
          resolveDir,
          kind,
          with: attributes,
          pluginData: "resolved",
        });
        return found.errors.length > 0 ? { errors: found.errors } : { path: found.path, sideEffects: false };
      },
    );
  },
};
