import type { BuildOptions, Plugin } from "esbuild";

/** Name of the modules that are there for what they do when they are loaded. */
const atStart = /[\\/]_at-start\.ts$/;

/**
 * Our other modules do nothing when they are loaded, so a door's unused rooms can be left out. Without it the supervisor carries zod, which only
 * the runtime's check of the grant uses: 1.15 MB instead of 0.56.
 */
const ownModulesArePure: Plugin = {
  name: "own-modules-are-pure",
  setup(context) {
    context.onResolve(
      { filter: /^\.{1,2}\// },
      async ({ path, importer, resolveDir, kind, with: attributes, pluginData }) => {
        if (pluginData === "resolved" || importer.includes("node_modules")) return undefined;
        const options = { importer, resolveDir, kind, with: attributes, pluginData: "resolved" };
        const found = await context.resolve(path, options);
        return found.errors.length > 0
          ? { errors: found.errors }
          : { path: found.path, sideEffects: atStart.test(found.path) };
      },
    );
  },
};

/** How esbuild puts one of our programs, with all that it needs, into a single file for Node.js. */
export const oneFile = {
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node24",
  // Half the bytes to read and to keep as source; names stay, so that a stack trace from the field can be read.
  minifySyntax: true,
  minifyWhitespace: true,
  legalComments: "none",
  // grpc-js and a few others are CommonJS and call require for Node's own modules.
  banner: {
    js: 'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);',
  },
  plugins: [ownModulesArePure],
} satisfies BuildOptions;
