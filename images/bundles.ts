import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, type Plugin } from "esbuild";
import packageJson from "../package.json" with { type: "json" };
import { buildNative } from "../src/runtime/native/build.ts";

const root = fileURLToPath(new URL("..", import.meta.url));

/** File of each program's bundle; the same names in every image. */
export const bundleFiles = {
  gateway: "openshell-gateway.mjs",
  supervisor: "openshell-supervisor.mjs",
  runtime: "runtime.mjs",
} as const;

export type ProgramName = keyof typeof bundleFiles;

/** The runtime's native layer, beside its bundle. */
export const nativeFile = "openshell.node";

/**
 * Bundles one program of src/ with all it needs into a single file.
 * @returns the bundle's path
 */
export async function bundle(name: ProgramName, directory: string): Promise<string> {
  const outfile = join(directory, bundleFiles[name]);
  await mkdir(dirname(outfile), { recursive: true });
  await build({
    entryPoints: [join(root, "src", name, "main.ts")],
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node24",
    // Half the bytes to read and to keep as source; names stay, so that a stack trace from the field can be read.
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: "none",
    logLevel: "warning",
    define: { "process.env.OPENSHELL_BUILD": JSON.stringify(packageJson.version) },
    // grpc-js and a few others are CommonJS and call require for Node's own modules.
    banner: {
      js: 'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);',
    },
    plugins: [ownModulesArePure, withoutProtoLoader],
  });
  return outfile;
}

/** Compiles the runtime's native layer. @returns its path */
export async function bundleNative(directory: string): Promise<string> {
  await mkdir(directory, { recursive: true });
  return buildNative({ output: join(directory, nativeFile) });
}

/**
 * Our modules do nothing when they are loaded, so a door's unused rooms can be left out. Without it the supervisor carries zod, which only
 * the runtime's check of the grant uses: 1.15 MB instead of 0.56.
 */
const ownModulesArePure: Plugin = {
  name: "own-modules-are-pure",
  setup(context) {
    context.onResolve({ filter: /^\.{1,2}\// }, async ({ path, importer, resolveDir, kind, pluginData }) => {
      if (pluginData === "resolved" || importer.includes("node_modules")) return undefined;
      const found = await context.resolve(path, { importer, resolveDir, kind, pluginData: "resolved" });
      return found.errors.length > 0 ? { errors: found.errors } : { path: found.path, sideEffects: false };
    });
  },
};

/** grpc-js loads it only for channelz and ORCA, which nothing here serves. */
const withoutProtoLoader: Plugin = {
  name: "without-proto-loader",
  setup(context) {
    context.onResolve({ filter: /^@grpc\/proto-loader$/ }, ({ path }) => ({ path, namespace: "left-out" }));
    context.onLoad({ filter: /.*/, namespace: "left-out" }, () => ({ contents: "module.exports = {};" }));
  },
};
