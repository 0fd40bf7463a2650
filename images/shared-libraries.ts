import { realpath } from "node:fs/promises";
import { basename } from "node:path";
import { tool } from "./_commands.ts";

/** One shared object a program loads. */
export interface SharedLibrary {
  /** Name the dynamic linker looks for, e.g. `libc.so.6`. */
  readonly name: string;
  /** The file on this machine, links resolved. */
  readonly file: string;
}

/** The dynamic linker that programs for x86-64 Linux name in their header. */
export const loaderPath = "lib64/ld-linux-x86-64.so.2";
export const loaderName = basename(loaderPath);

/** Every shared object that any of `programs` needs, the loader included; none for static programs. */
export async function sharedLibraries(...programs: readonly string[]): Promise<readonly SharedLibrary[]> {
  const listing = await tool("ldd", programs, "apt-get install libc-bin").catch((error: unknown) => {
    // ldd's way of saying that a program is static.
    if (error instanceof Error && /not a dynamic executable|statically linked/.test(error.message)) return "";
    throw error;
  });
  const found = new Map<string, string>();
  for (const line of listing.split("\n")) {
    const path = /(?:=> )?(\/\S+) \(0x[0-9a-f]+\)$/.exec(line.trim())?.[1];
    if (path !== undefined) found.set(basename(path), path);
  }
  const libraries = [...found].map(async ([name, path]) => ({ name, file: await realpath(path) }));
  return (await Promise.all(libraries)).sort((a, b) => (a.name < b.name ? -1 : 1));
}
