import { isUtf8 } from "node:buffer";
import type { Stats } from "node:fs";
import { constants } from "node:fs";
import { type FileHandle, lstat, open, readdir, readlink, realpath } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { type Pack, pack as tarPack } from "tar-stream";
import { OpenShellError } from "../common/errors.ts";
import { explain, isOfFileSystem, settled, type Tally, type TransferSummary } from "./_tar.ts";
import { chunkBytes } from "./protocol.ts";

type NewHeader = Parameters<Pack["entry"]>[0];
export interface PackOptions {
  /** Name of the root entry. @default the source's base name */
  readonly name?: string;
  /** Which entries below the source are packed, by their path relative to it. @default all */
  readonly only?: (path: string) => boolean;
}

/**
 * A file or directory as a tar stream, read as it is consumed; modes and modification times kept, owners not. The source itself is followed
 * when it is a symbolic link, as scp has it; links below it stay links. What is removed meanwhile is left out; so is a
 * file or a link that is replaced by something of another kind, which is named.
 * @throws not-found when the source does not exist, invalid-argument when it is a device, a pipe or a socket
 */
export async function packTree(source: string, options: PackOptions = {}) {
  const absolute = await followed(source);
  const root = options.name ?? (basename(resolve(source)) || "root");
  const tally: Tally = { files: 0, bytes: 0, skipped: [] };
  return {
    stream: archived(walk(absolute, options.only), root, tally),
    /** Complete once the stream has ended. */
    summary: (): TransferSummary => ({ ...tally, path: absolute }),
  };
}

/**
 * Bytes of file content that `packTree` would pack now.
 * @throws as `packTree`
 */
export async function treeBytes(source: string, { only }: PackOptions = {}): Promise<number> {
  let bytes = 0;
  try {
    for await (const { stat, leftOut } of walk(await followed(source), only)) {
      if (leftOut === undefined && stat.isFile()) bytes += stat.size;
    }
  } catch (error) {
    throw isOfFileSystem(error) ? explain(error) : error;
  }
  return bytes;
}

interface Found {
  readonly path: string;
  /** Relative to the source; "" for the source itself. */
  readonly relative: string;
  readonly stat: Stats;
  /** Of a symbolic link. */
  readonly target?: string;
  /** Why it cannot be packed; nothing below it is. */
  readonly leftOut?: string;
}

/** The source and what is below it, directories before their entries, entries by name. */
async function* walk(path: string, only: PackOptions["only"], relative = ""): AsyncGenerator<Found, void, undefined> {
  const stat = await unlessChanged(relative, lstat(path));
  if (isChange(stat)) return;
  if (stat.isSymbolicLink()) {
    const target = await unlessChanged(relative, readlink(path, { encoding: "buffer" }));
    if (target === "gone") return;
    if (target === "replaced") {
      yield { path, relative, stat, leftOut: changed };
    } else {
      const leftOut = isUtf8(target) ? {} : { leftOut: "its target's name is not UTF-8" };
      yield { path, relative, stat, target: target.toString(), ...leftOut };
    }
    return;
  }
  yield { path, relative, stat };
  if (!stat.isDirectory()) return;
  const children = await unlessChanged(relative, readdir(path, { encoding: "buffer" }));
  if (isChange(children)) return;
  for (const child of children.sort(Buffer.compare)) {
    const name = child.toString();
    const below = relative === "" ? name : `${relative}/${name}`;
    // A name is a string from here on, and this one would be another file's.
    if (!isUtf8(child)) yield { path, relative: below, stat, leftOut: "its name is not UTF-8" };
    else if (only?.(below) ?? true) yield* walk(join(path, name), only, below);
  }
}

/** What became of an entry that was there a moment ago. */
type Change = "gone" | "replaced";
const changed = "it changed while it was read";

function isChange(value: unknown): value is Change {
  return value === "gone" || value === "replaced";
}

/** What `work` finds at an entry, or what became of it meanwhile; the source itself has to stay. */
async function unlessChanged<T>(relative: string, work: Promise<T>): Promise<T | Change> {
  try {
    return await work;
  } catch (error) {
    const change = relative === "" || !isOfFileSystem(error) ? undefined : changes.get(error.code);
    if (change === undefined) throw error;
    return change;
  }
}

const changes: ReadonlyMap<string | undefined, Change> = new Map([
  ["ENOENT", "gone"],
  ["ENOTDIR", "gone"],
  // A link where a file was opened, a socket, and what is no link any more.
  ["ELOOP", "replaced"],
  ["ENXIO", "replaced"],
  ["EINVAL", "replaced"],
]);

/** Begins when it is read: before, nobody would hear of a failure, and a file that was opened would stay so. */
async function* archived(found: AsyncIterable<Found>, root: string, tally: Tally) {
  const archive = tarPack();
  addTree(archive, found, root, tally).then(
    () => archive.finalize(),
    (error: unknown) => archive.destroy(isOfFileSystem(error) ? explain(error) : (error as Error)),
  );
  yield* archive as AsyncIterable<Uint8Array>;
}

async function addTree(archive: Pack, found: AsyncIterable<Found>, root: string, tally: Tally): Promise<void> {
  for await (const { path, relative, stat, target, leftOut } of found) {
    const name = relative === "" ? root : `${root}/${relative}`;
    if (leftOut !== undefined) {
      tally.skipped.push(`${name}: ${leftOut}`);
    } else if (stat.isDirectory()) {
      await addEntry(archive, { ...headerOf(`${name}/`, stat), type: "directory" });
    } else if (target !== undefined) {
      await addEntry(archive, { ...headerOf(name, stat), type: "symlink", linkname: target });
      tally.files += 1;
    } else if (stat.isFile()) {
      await addFile(archive, { path, relative, name }, tally);
    } else {
      tally.skipped.push(`${name}: not a file, directory or symbolic link`);
    }
  }
}

function headerOf(name: string, { mode, mtime }: Stats) {
  return { name, mode: mode & 0o7777, mtime };
}

function addEntry(archive: Pack, header: NewHeader): Promise<void> {
  return new Promise((resolve, reject) => {
    archive.entry(header, (error) => (error ? reject(error) : resolve()));
  });
}

/**
 * A file that was found, as it is now. A link in its place is not followed, and a pipe does not hold up a thread until somebody writes
 * into it.
 */
async function addFile(
  archive: Pack,
  { path, relative, name }: Pick<Found, "path" | "relative"> & { readonly name: string },
  tally: Tally,
): Promise<void> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const opened = await unlessChanged(relative, open(path, flags));
  if (opened === "gone") return;
  await using file = opened === "replaced" ? undefined : opened;
  const stat = await file?.stat();
  if (file === undefined || !stat?.isFile()) {
    tally.skipped.push(`${name}: ${changed}`);
    return;
  }
  await addContents(archive, file, { ...headerOf(name, stat), type: "file", size: stat.size });
  tally.files += 1;
  tally.bytes += stat.size;
}

/** Exactly `header.size` bytes, as the header promised, even when the file grows or shrinks meanwhile. */
function addContents(archive: Pack, file: FileHandle, header: NewHeader & { size: number }): Promise<void> {
  return new Promise<void>((resolve, reject) => {
    const sink = archive.entry(header, (error) => (error ? reject(error) : resolve()));
    const copy = async () => {
      for (let left = header.size; left > 0; ) {
        const buffer = new Uint8Array(Math.min(left, chunkBytes));
        const { bytesRead } = await file.read(buffer, 0, buffer.length);
        const chunk = bytesRead === 0 ? buffer : buffer.subarray(0, bytesRead);
        left -= chunk.length;
        if (!sink.write(chunk)) await settled(sink);
      }
      sink.end(undefined);
    };
    copy().catch(reject);
  });
}

/** Where the source really is. */
async function followed(source: string): Promise<string> {
  try {
    const path = await realpath(source);
    const stat = await lstat(path);
    if (stat.isFile() || stat.isDirectory()) return path;
  } catch (error) {
    throw explain(error);
  }
  throw new OpenShellError("invalid-argument", `${source} is not a file or a directory, and nothing else is copied`);
}
