/**
 * A tar stream from a sandbox as files of this machine. What an agent packed is hostile: nothing may land outside the directory, follow a
 * link that it made, or take on special modes.
 */
import { constants } from "node:fs";
import { chmod, lstat, mkdir, mkdtemp, open, readdir, rename, rm, symlink, utimes } from "node:fs/promises";
import { basename, dirname, join, normalize, resolve, sep } from "node:path";
import { Readable, type Writable } from "node:stream";
import { extract as createExtract, type Header } from "tar-stream";
import { OpenShellError } from "../../common/errors.ts";

type Entry = Readable & { readonly header: Header };

export interface UnpackResult {
  /** Where it is now. */
  readonly path: string;
  /** Entries that were left out, each with the reason. */
  readonly skipped: readonly string[];
}

/**
 * Unpacks a stream with one top entry as `cp -r` would place it: into `destination` when that is a directory, else as `destination`.
 * Everything is unpacked beside it first and moved there when whole.
 * @throws already-exists when something is there already; data-loss when the stream is no tar
 */
export async function unpackTo(tar: AsyncIterable<Uint8Array>, destination: string): Promise<UnpackResult> {
  const target = resolve(destination);
  const intoDirectory = (await isDirectory(target)) || destination.endsWith("/");
  const parent = intoDirectory ? target : dirname(target);
  await mkdir(parent, { recursive: true });
  const staging = await mkdtemp(join(parent, ".openshell-download-"));
  try {
    const skipped = await unpackInto(tar, staging);
    const tops = await readdir(staging);
    const [top] = tops;
    if (top === undefined) throw new OpenShellError("data-loss", "the sandbox sent an empty archive");
    if (tops.length > 1) throw new OpenShellError("data-loss", "the sandbox sent more than was asked for");
    const path = intoDirectory ? join(parent, basename(top)) : target;
    if ((await kindOf(path)) !== undefined) {
      throw new OpenShellError("already-exists", `${path} exists already; move it away, or name another destination`);
    }
    await rename(join(staging, top), path);
    return { path, skipped };
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}

async function unpackInto(tar: AsyncIterable<Uint8Array>, root: string): Promise<string[]> {
  const skipped: string[] = [];
  const directories: { readonly path: string; readonly mode: number; readonly mtime: Date | undefined }[] = [];
  const extract = createExtract();
  const source = Readable.from(tar);
  source.on("error", (error) => extract.destroy(error));
  source.pipe(extract as unknown as Writable);
  try {
    for await (const entry of extract as unknown as AsyncIterable<Entry>) {
      const { name, type, mode = 0o644, mtime, linkname } = entry.header;
      const path = await placeOf(root, name);
      if (path === undefined) {
        skipped.push(`${name}: would lie outside the destination`);
        entry.resume();
      } else if (type === "directory") {
        await mkdir(path, { recursive: true });
        directories.push({ path, mode: (mode & 0o777) | 0o700, mtime });
        entry.resume();
      } else if (type === "file" || type === "contiguous-file") {
        await writeFileOf(entry, path, mode & 0o777, mtime);
      } else if (type === "symlink" && linkname && staysInside(root, path, linkname)) {
        await symlink(linkname, path);
        entry.resume();
      } else {
        skipped.push(`${name}: ${type === "symlink" ? "a link that leads outside" : `a ${type}`}`);
        entry.resume();
      }
    }
  } catch (error) {
    if (error instanceof OpenShellError) throw error;
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "ENOSPC")
      throw new OpenShellError("resource-exhausted", `no space is left for ${root}`, { cause: error });
    throw new OpenShellError("data-loss", `what the sandbox sent cannot be unpacked: ${message}`, { cause: error });
  } finally {
    source.destroy();
  }
  // Children before parents, or writing a child would touch the parent's time again.
  for (const { path, mode, mtime } of directories.reverse()) {
    await chmod(path, mode);
    if (mtime !== undefined) await utimes(path, mtime, mtime);
  }
  return skipped;
}

async function writeFileOf(entry: Entry, path: string, mode: number, mtime: Date | undefined): Promise<void> {
  await rm(path, { force: true });
  const flags = constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY | constants.O_NOFOLLOW;
  const file = await open(path, flags, mode | 0o200);
  try {
    for await (const chunk of entry as AsyncIterable<Uint8Array>) await file.write(chunk);
    await file.chmod(mode);
    if (mtime !== undefined) await file.utimes(mtime, mtime);
  } finally {
    await file.close();
  }
}

/** The path of an entry, its parents made; undefined when it leaves `root` or passes through something that is no directory. */
async function placeOf(root: string, name: string): Promise<string | undefined> {
  const clean = normalize(name).replace(/\/+$/, "");
  if (name.includes("\0") || clean.startsWith("/") || clean === "." || clean.split(sep).includes(".."))
    return undefined;
  const parts = clean.split(sep);
  let at = root;
  for (const part of parts.slice(0, -1)) {
    at = join(at, part);
    const kind = await kindOf(at);
    if (kind === undefined) await mkdir(at);
    else if (kind !== "directory") return undefined;
  }
  return join(root, clean);
}

/**
 * True when a link at `link` to `target` cannot lead out of `root`. Climbing is allowed at a target's start only: after a name it could
 * climb out of a directory that the name is itself a link to.
 */
function staysInside(root: string, link: string, target: string): boolean {
  const parts = target.split("/");
  const named = parts.findIndex((part) => part !== "." && part !== "..");
  if (target.startsWith("/") || (named >= 0 && parts.slice(named).includes(".."))) return false;
  const reached = resolve(dirname(link), target);
  return reached === root || reached.startsWith(`${root}${sep}`);
}

async function kindOf(path: string): Promise<"directory" | "other" | undefined> {
  try {
    return (await lstat(path)).isDirectory() ? "directory" : "other";
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

async function isDirectory(path: string): Promise<boolean> {
  return (await kindOf(path)) === "directory";
}
