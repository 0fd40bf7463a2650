// `npm run synth`: writes charts/openshell and what else comes from its sources. With --check it writes nothing and exits 1 when a file differs.
// JavaScript, so that the cache is on before the first file of TypeScript is read: Node's part for that costs more than any file. It is started
// with a young generation that holds all that a run makes, so that nothing is collected.
import { enableCompileCache } from "node:module";
import { join } from "node:path";
import { importLibrariesWhole } from "./_libraries.mjs";

const cache = join(import.meta.dirname, "..", "..", "node_modules", ".cache");
// Compiling what is imported takes most of the time; with the cache it is compiled when it has changed.
enableCompileCache(join(cache, "node"));
await importLibrariesWhole(join(cache, "libraries"));
// Schemas that parse once are not worth compiling.
(await import("zod")).z.config({ jitless: true });
const { checkFiles, writeFiles } = await import("./synth.ts");

if (process.argv.includes("--check")) checkFiles();
else writeFiles();
