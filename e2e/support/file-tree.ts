import { createHash, randomBytes } from "node:crypto";
import { chmod, lstat, mkdir, readdir, readFile, readlink, symlink, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";

/** What `plantTree` writes into the file `deep/a word → ü.txt`. */
export const plantedWord = "up and back\n";
export const plantedFile = "deep/a word → ü.txt";

/** Makes a directory with everything that a transfer could lose: 4 MiB of noise, an empty file and directory, modes, a link, names of all kinds. */
export async function plantTree(root: string): Promise<void> {
  await mkdir(join(root, "deep/empty"), { recursive: true });
  await writeFile(join(root, "noise"), randomBytes(4 * 1_048_576));
  await writeFile(join(root, plantedFile), plantedWord);
  await writeFile(join(root, "-rf"), "");
  await writeFile(join(root, "run.sh"), "#!/bin/sh\n");
  await symlink("../noise", join(root, "deep/link"));
  for (const [path, mode] of Object.entries({ "run.sh": 0o755, "-rf": 0o444, noise: 0o600, "deep/empty": 0o700 })) {
    await chmod(join(root, path), mode);
  }
}

/** A directory as one line an entry: its path, its mode, and the checksum of a file or the target of a link. */
export async function linesOf(root: string): Promise<string[]> {
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  const lines = entries.map(async (entry) => {
    const path = join(entry.parentPath, entry.name);
    const name = relative(root, path);
    // A link's own mode means nothing.
    if (entry.isSymbolicLink()) return `${name} -> ${await readlink(path)}`;
    const mode = ((await lstat(path)).mode & 0o7777).toString(8);
    return entry.isDirectory() ? `${name}/ ${mode}` : `${name} ${mode} ${sha256(await readFile(path))}`;
  });
  return (await Promise.all(lines)).sort();
}

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}
