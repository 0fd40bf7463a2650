import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, type Plugin } from "esbuild";
import packageJson from "../package.json" with { type: "json" };
import { OpenShellError } from "../src/common/errors.ts";
import { oneFile } from "../src/common/one-file.ts";
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
  const { warnings } = await build({
    ...oneFile,
    entryPoints: [join(root, "src", name, "main.ts")],
    outfile,
    logLevel: "warning",
    define: { "process.env.OPENSHELL_BUILD": JSON.stringify(packageJson.version) },
    plugins: [...oneFile.plugins, withoutProtoLoader],
  });
  const [first] = warnings;
  if (first !== undefined)
    throw new OpenShellError("internal", `the bundle of ${name} is not to be trusted: ${first.text}`);
  return outfile;
}

/** Compiles the runtime's native layer. @returns its path */
export async function bundleNative(directory: string): Promise<string> {
  await mkdir(directory, { recursive: true });
  return buildNative({ output: join(directory, nativeFile) });
}

/** grpc-js loads it only for channelz and ORCA, which nothing here serves. */
const withoutProtoLoader: Plugin = {
  name: "without-proto-loader",
  setup(context) {
    context.onResolve({ filter: /^@grpc\/proto-loader$/ }, ({ path }) => ({ path, namespace: "left-out" }));
    context.onLoad({ filter: /.*/, namespace: "left-out" }, () => ({ contents: "module.exports = {};" }));
  },
};
