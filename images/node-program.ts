import { createHash } from "node:crypto";
import { chmod, copyFile, mkdir, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { OpenShellError } from "../src/common/errors.ts";
import { tool } from "./_commands.ts";
import { type SharedLibrary, sharedLibraries } from "./shared-libraries.ts";

/** Node as it goes into images. */
export interface NodeProgram {
  /** The program without its symbol table: 104 MB instead of 127. */
  readonly file: string;
  /** Its shared libraries and its loader. */
  readonly libraries: readonly SharedLibrary[];
}

const source = fileURLToPath(new URL("../node_modules/node/bin/node", import.meta.url));

/** Node 24 from the npm package `node`, stripped once per version into `cache`. */
export async function nodeProgram(cache: string): Promise<NodeProgram> {
  const { size, mtimeMs } = await stat(source).catch((cause: unknown) => {
    throw new OpenShellError("failed-precondition", "node_modules/node is missing: run `npm ci`", { cause });
  });
  const version = (await tool(source, ["--version"], "run `npm ci`")).trim();
  const key = createHash("sha256").update(`${size} ${mtimeMs}`).digest("hex").slice(0, 8);
  const file = join(cache, "node", `${version}-${key}`);
  const known = await stat(file).catch(() => undefined);
  if (known === undefined) {
    await mkdir(join(cache, "node"), { recursive: true });
    const partial = `${file}.${process.pid}`;
    await copyFile(source, partial);
    await tool("strip", ["--strip-all", partial], "apt-get install binutils");
    await chmod(partial, 0o755);
    await rename(partial, file);
  }
  return { file, libraries: await sharedLibraries(file) };
}
