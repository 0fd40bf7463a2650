// The libraries of `npm run synth` as one file each: to find and read their two hundred modules takes longer than what is done with them.
// The files are made again when package-lock.json has changed; whoever doubts them deletes their folder.
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { basename, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const root = join(import.meta.dirname, "..", "..");
const names = ["zod", "cdk8s", "constructs", "smol-toml"];

/** From now on whoever imports one of the libraries gets its one file, which is kept in the folder; where nothing can be kept, as ever. */
export async function importLibrariesWhole(folder) {
  const { mtimeMs, size } = statSync(join(root, "package-lock.json"));
  const current = join(folder, `${Math.round(mtimeMs)}-${size}`);
  if (!existsSync(current) && !(await bundle(current))) return;
  const urls = new Map(names.map((name) => [name, pathToFileURL(join(current, `${name}.mjs`)).href]));
  registerHooks({
    resolve(name, context, next) {
      // Our own imports say the file, so that there is nothing to look for.
      const url = urls.get(name) ?? (name.endsWith(".ts") ? new URL(name, context.parentURL).href : undefined);
      return url === undefined ? next(name, context) : { url, shortCircuit: true };
    },
  });
}

/** Complete under its name or not there, though others do the same at the same time; what was there for another package-lock.json goes. */
async function bundle(current) {
  const folder = dirname(current);
  const making = `${current}.${process.pid}`;
  try {
    mkdirSync(making, { recursive: true });
    await bundleInto(making);
    renameSync(making, current);
    const old = readdirSync(folder).filter((name) => !name.startsWith(basename(current)));
    for (const name of old) rmSync(join(folder, name), { recursive: true, force: true });
  } catch {
    rmSync(making, { recursive: true, force: true });
  }
  return existsSync(current);
}

async function bundleInto(outdir) {
  const { build } = await import("esbuild");
  const entryPoints = await Promise.all(
    names.map(async (name) => {
      // Name by name: of a CommonJS library only running it tells them.
      const exported = Object.keys(await import(name)).filter((key) => key !== "module.exports");
      const entry = join(outdir, "exports", `${name}.mjs`);
      mkdirSync(dirname(entry), { recursive: true });
      writeFileSync(entry, `export { ${exported.join(", ")} } from "${name}";\n`);
      return entry;
    }),
  );
  await build({
    entryPoints,
    nodePaths: [join(root, "node_modules")],
    outdir,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node24",
    minifySyntax: true,
    minifyWhitespace: true,
    banner: { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' },
  });
}
