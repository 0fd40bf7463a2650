import { randomBytes } from "node:crypto";
import {
  chmod,
  cp,
  type FileHandle,
  lstat,
  mkdir,
  open,
  readdir,
  realpath,
  rename,
  rm,
  rmdir,
  stat,
  symlink,
  unlink,
  utimes,
} from "node:fs/promises";
import { dirname, join, normalize, resolve, sep } from "node:path";
import { type Header, extract as tarExtract } from "tar-stream";
import { OpenShellError } from "../common/errors.ts";
import { explain, settled, type Tally, type TransferSummary } from "./_tar.ts";

type Entry = AsyncIterable<unknown> & { readonly header: Header; resume(): unknown };

/** Contents that are held while their file is made; larger ones are written as they come. */
const smallBytes = 64 * 1024;
/** Small files that are made at a time: each takes several turns of the file system, and the stream goes on meanwhile. */
const smallFilesAtOnce = 8;

export interface ExtractOptions {
  /** Replaces the first component of every name. @default as in the stream */
  readonly name?: string;
  /**
   * Which symbolic links are made: `inside` only relative ones that stay below the destination whatever other links the stream brings,
   * that is with `..` at their head alone, which is right for a stream from somebody else; `any` where the writer of the stream owns the
   * destination, and says who may read and write there, too: else modes are cut by the umask.
   * @default "inside"
   */
  readonly links?: "inside" | "any";
}

/**
 * Unpacks a tar stream below a directory, which is made when missing. No name leaves the directory, nothing is written through a
 * symbolic link below it, no device, pipe or socket is replaced, set-uid bits and owners are dropped. The tree is unpacked beside its place
 * and moved there, by renames, only when the stream has come to its end: one that breaks off changes nothing and leaves nothing.
 * @throws invalid-argument for a name that points outside, failed-precondition where something else is in the way
 */
export async function extractTree(
  chunks: AsyncIterable<Uint8Array>,
  destination: string,
  options: ExtractOptions = {},
): Promise<TransferSummary> {
  await using root = await makeRoot(destination);
  await using extraction = await Extraction.begin(root.path, options);
  const archive = tarExtract();
  const fed = feed(chunks, archive);
  // A failing source is told by destroying the archive, which ends the loop below with the same error.
  fed.catch((error: unknown) => archive.destroy(error as Error));
  try {
    for await (const entry of archive) await extraction.take(entry);
    await fed;
    const summary = await extraction.finish();
    root.keep();
    return summary;
  } catch (error) {
    archive.destroy(error as Error);
    throw error instanceof OpenShellError ? error : explain(error);
  }
}

class Extraction implements AsyncDisposable {
  readonly #root: string;
  /** Where everything is unpacked until the stream is whole; in the destination, so that its files can be renamed into place. */
  readonly #staging: string;
  readonly #options: ExtractOptions;
  /** Bits of a mode that are dropped. */
  readonly #umask: number;
  readonly #tally: Tally = { files: 0, bytes: 0, skipped: [] };
  /** Directories known to be real ones of ours, so that they are looked at once. */
  readonly #real = new Set<string>();
  /** Set last, innermost first: writing into a directory changes its time, and it may be read-only. */
  readonly #directories: { readonly path: string; readonly mode: number; readonly mtime: Date }[] = [];
  #top = "";
  /** Small files that are being made, by their {@link keyOf}. */
  readonly #making = new Map<string, Promise<void>>();
  #failed: { readonly error: unknown } | undefined;

  private constructor(root: string, staging: string, options: ExtractOptions) {
    this.#root = root;
    this.#staging = staging;
    this.#options = options;
    this.#umask = options.links === "any" ? 0 : process.umask();
    this.#real.add(staging);
  }

  static async begin(root: string, options: ExtractOptions): Promise<Extraction> {
    const staging = join(root, `.openshell-${randomBytes(6).toString("hex")}`);
    await mkdir(staging, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
      throw unmakeable(root, error);
    });
    return new Extraction(root, staging, options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#making.values());
    await rm(this.#staging, { recursive: true, force: true });
  }

  async take(entry: Entry): Promise<void> {
    const { header } = entry;
    const parts = this.#partsOf(header.name);
    const path = join(this.#staging, ...parts);
    if (parts.length === 0 && header.type !== "directory") {
      throw new OpenShellError("invalid-argument", `the archive holds a ${header.type} in place of the destination`);
    }
    this.#top ||= parts[0] ?? "";
    // A name may come twice, and as something else.
    if (!isFile(header) || this.#making.has(keyOf(path))) await this.#made();
    if (header.type === "directory") {
      await this.#directory(parts);
      // The destination itself is the user's, not the stream's.
      if (parts.length > 0) {
        this.#directories.push({
          path: join(this.#root, ...parts),
          mode: this.#modeOf(header, 0o755),
          mtime: header.mtime ?? new Date(),
        });
      }
    } else if (header.type === "symlink") {
      await this.#link(parts, path, header.linkname ?? "");
    } else if (isFile(header)) {
      await this.#directory(parts.slice(0, -1));
      await this.#file(path, entry);
    } else {
      this.#tally.skipped.push(`${header.name}: a ${header.type} is not copied`);
    }
    entry.resume();
  }

  /** Moves what came to its place, after a look at everything that could be in the way. */
  async finish(): Promise<TransferSummary> {
    await this.#made();
    const there = new Set<string>();
    for await (const _ of moves(this.#staging, this.#root, (path) => there.add(path)));
    for await (const { from, to } of moves(this.#staging, this.#root)) await move(from, to);
    for (const { path, mode, mtime } of this.#directories.reverse()) {
      try {
        await chmod(path, mode);
        await utimes(path, mtime, mtime);
      } catch (error) {
        // One that was there and is somebody else's keeps what its owner gave it, and takes files where our group may write.
        if (!there.has(path) || (error as NodeJS.ErrnoException).code !== "EPERM") throw error;
      }
    }
    return { ...this.#tally, path: join(this.#root, this.#top) };
  }

  #partsOf(name: string): string[] {
    const parts = normalize(name)
      .split(sep)
      .filter((part) => part !== "" && part !== ".");
    if (name.startsWith("/") || parts.includes("..") || name.split("/").includes("..") || name.includes("\0")) {
      throw new OpenShellError("invalid-argument", `the archive holds "${name}", which points outside the destination`);
    }
    if (this.#options.name !== undefined && parts.length > 0) parts[0] = this.#options.name;
    return parts;
  }

  /** Makes the directories below the staging one, refusing to go through a link or file. */
  async #directory(parts: readonly string[]): Promise<void> {
    let path = this.#staging;
    for (const part of parts) {
      path = join(path, part);
      if (this.#real.has(path)) continue;
      await mkdir(path, { mode: 0o755 }).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== "EEXIST") throw error;
      });
      if (!(await lstat(path)).isDirectory()) {
        throw inTheWay(join(this.#root, ...parts));
      }
      this.#real.add(path);
    }
  }

  async #link(parts: readonly string[], path: string, target: string): Promise<void> {
    const out = this.#options.links === "any" ? undefined : wayOut(target, parts.length - 1);
    if (out !== undefined) {
      this.#tally.skipped.push(`${parts.join("/")}: a link to ${target}, ${out}`);
      return;
    }
    await this.#directory(parts.slice(0, -1));
    await removeIfThere(path);
    await symlink(target, path);
    this.#tally.files += 1;
  }

  async #file(path: string, entry: Entry): Promise<void> {
    const { header } = entry;
    if ((header.size ?? 0) > smallBytes) return this.#fill(path, header, entry as AsyncIterable<Uint8Array>);
    const contents: Uint8Array[] = [];
    for await (const chunk of entry as AsyncIterable<Uint8Array>) contents.push(chunk);
    if (this.#making.size >= smallFilesAtOnce) await Promise.race(this.#making.values());
    if (this.#failed !== undefined) throw this.#failed.error;
    const key = keyOf(path);
    const making = this.#fill(path, header, contents).then(
      () => void this.#making.delete(key),
      (error: unknown) => {
        this.#making.delete(key);
        this.#failed ??= { error };
      },
    );
    this.#making.set(key, making);
  }

  /** Returns when no small file is being made. @throws what the first that failed was refused with */
  async #made(): Promise<void> {
    await Promise.all(this.#making.values());
    if (this.#failed !== undefined) throw this.#failed.error;
  }

  #modeOf(header: Header, fallback: number): number {
    return (header.mode ?? fallback) & 0o777 & ~this.#umask;
  }

  async #fill(path: string, header: Header, contents: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    const mode = this.#modeOf(header, 0o644);
    const file = await openNew(path, mode);
    try {
      for await (const chunk of contents) {
        await file.writeFile(chunk);
        this.#tally.bytes += chunk.length;
      }
      // Not only the umask decides what `open` makes of a mode: a default ACL of the directory and the mount do, too.
      if (((await file.stat()).mode & 0o777) !== mode) await file.chmod(mode);
      const mtime = header.mtime ?? new Date();
      await file.utimes(mtime, mtime);
    } finally {
      await file.close();
    }
    this.#tally.files += 1;
  }
}

function isFile({ type }: Header): boolean {
  return type === "file" || type === "contiguous-file";
}

/** The same for all names that some file system takes for one: of two, the later counts, so they are not made at the same time. */
function keyOf(path: string): string {
  return path.normalize("NFC").toLowerCase();
}

/** A file that was not there. A name that comes twice: the later one counts, as tar has it. */
async function openNew(path: string, mode: number): Promise<FileHandle> {
  try {
    return await open(path, "wx", mode);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    await removeIfThere(path);
    return open(path, "wx", mode);
  }
}

interface Move {
  readonly from: string;
  readonly to: string;
}

/**
 * What has to be moved so that the tree `from` lies over the tree `to`: a directory that is not there yet as a whole, others entry by entry.
 * @param met told of each directory that is there
 * @throws failed-precondition where a directory meets something else, or anything a device, a pipe or a socket
 */
async function* moves(
  from: string,
  to: string,
  met?: (directory: string) => void,
): AsyncGenerator<Move, void, undefined> {
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const move = { from: join(from, entry.name), to: join(to, entry.name) };
    const there = await lstatIfThere(move.to);
    if (entry.isDirectory() && there?.isDirectory()) {
      met?.(move.to);
      yield* moves(move.from, move.to, met);
    } else if (there !== undefined && entry.isDirectory()) throw inTheWay(move.to);
    else if (there?.isDirectory()) {
      throw new OpenShellError("failed-precondition", `${move.to} is in the way: it is a directory`);
    } else if (there !== undefined && !there.isFile() && !there.isSymbolicLink()) {
      throw new OpenShellError("failed-precondition", `${move.to} is in the way: it is a device, a pipe or a socket`);
    } else yield move;
  }
}

/** Renames, or copies where another file system is mounted below the destination; each file appears in one step. */
async function move(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EXDEV") throw error;
    const temporary = join(dirname(to), `.openshell-${randomBytes(6).toString("hex")}`);
    try {
      await cp(from, temporary, { recursive: true, verbatimSymlinks: true, preserveTimestamps: true });
      await rename(temporary, to);
    } catch (failure) {
      await rm(temporary, { recursive: true, force: true });
      throw failure;
    }
  }
}

/**
 * Why a link in a directory that is `depth` below the destination may lead out of it. The kernel follows links before it goes up, so only
 * the `..` at the head of a target leave directories that are known; one after a name starts wherever that name leads.
 */
function wayOut(target: string, depth: number): string | undefined {
  const steps = target.split("/").filter((step) => step !== "" && step !== ".");
  const named = steps.findIndex((step) => step !== "..");
  const up = named === -1 ? steps.length : named;
  if (target.startsWith("/") || up > depth) return "which is outside";
  return steps.includes("..", up) ? "which may be outside: it goes up (..) after a name" : undefined;
}

async function removeIfThere(path: string): Promise<void> {
  await unlink(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
  });
}

function lstatIfThere(path: string) {
  return lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
}

function inTheWay(path: string): OpenShellError {
  return new OpenShellError(
    "failed-precondition",
    `${path} is in the way: it is no directory, and links are not followed`,
  );
}

async function feed(chunks: AsyncIterable<Uint8Array>, archive: ReturnType<typeof tarExtract>): Promise<void> {
  for await (const chunk of chunks) {
    if (archive.destroyed) return;
    if (!archive.write(chunk)) await settled(archive);
  }
  archive.end(undefined);
}

/** The highest directory that was made, if any. Node's own `recursive` never comes back from /proc/new/deep. */
async function makeDirectories(path: string): Promise<string | undefined> {
  try {
    await mkdir(path);
    return path;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // There already; systems differ in how they say so of a root.
    if (code !== "ENOENT" && (await isDirectory(path))) return undefined;
    if (code !== "ENOENT" || path === dirname(path)) throw error;
    const first = await makeDirectories(dirname(path));
    // Its parent was there, and yet it cannot be made.
    if (first === undefined) throw error;
    await mkdir(path);
    return first;
  }
}

function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}

/** Why nothing can be made at `path`. A file system such as /proc says of a new name that it does not exist. */
function unmakeable(path: string, error: NodeJS.ErrnoException): OpenShellError {
  if (error.code !== "ENOENT") return explain(Object.assign(error, { path }));
  return new OpenShellError("permission-denied", `nothing can be written at ${path}`, { cause: error });
}

/** The destination, made when missing, and what takes away again what was made of it unless it is kept. */
async function makeRoot(destination: string) {
  let path: string;
  let first: string | undefined;
  try {
    first = await makeDirectories(resolve(destination));
    path = await realpath(destination);
  } catch (error) {
    throw unmakeable(destination, error as NodeJS.ErrnoException);
  }
  let kept = first === undefined;
  return {
    path,
    keep() {
      kept = true;
    },
    async [Symbol.asyncDispose]() {
      if (kept || first === undefined) return;
      const highest = await realpath(first);
      for (let at = path; at.startsWith(highest); at = dirname(at)) {
        // Somebody else's file in it keeps it.
        if (
          !(await rmdir(at).then(
            () => true,
            () => false,
          ))
        )
          return;
      }
    },
  };
}
