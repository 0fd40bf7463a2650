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
 * when it is a symbolic link, as scp has it; links below it stay links. What is removed meanwhile is left out; so is, and is named, a
 * file or a link that is replaced by something of another kind, and what may not be read. A large file that becomes shorter meanwhile has
 * zeros at its end, and is named as well.
 * @throws not-found when the source does not exist, permission-denied when it may not be read itself, invalid-argument when it is a device,
 * a pipe or a socket
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
    for await (const { path, relative, stat, leftOut } of walk(await followed(source), only)) {
      if (leftOut !== undefined) continue;
      const now = stat ?? (await unlessChanged(relative, lstat(path)));
      if (!isChange(now) && now.isFile()) bytes += now.size;
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
  /** None of a file below the source: it is looked at when it is read. */
  readonly stat?: Stats;
  /** Of a symbolic link. */
  readonly target?: string;
  /** Why it cannot be packed; nothing below it is. */
  readonly leftOut?: string;
}

/** The source and what is below it, directories before their entries, entries by name. */
async function* walk(path: string, only: PackOptions["only"], relative = ""): AsyncGenerator<Found, void, undefined> {
  const stat = await unlessChanged(relative, lstat(path));
  if (isChange(stat)) return yield* leftOutFor(stat, path, relative);
  if (stat.isSymbolicLink()) {
    const target = await unlessChanged(relative, readlink(path, { encoding: "buffer" }));
    if (isChange(target)) {
      yield* leftOutFor(target, path, relative);
    } else {
      const leftOut = isUtf8(target) ? {} : { leftOut: "its target's name is not UTF-8" };
      yield { path, relative, stat, target: target.toString(), ...leftOut };
    }
    return;
  }
  yield { path, relative, stat };
  if (!stat.isDirectory()) return;
  const children = await unlessChanged(relative, readdir(path, { encoding: "buffer", withFileTypes: true }));
  if (isChange(children)) return yield* leftOutFor(children, path, relative);
  for (const child of children.sort((left, right) => Buffer.compare(left.name, right.name))) {
    const name = child.name.toString();
    const below = relative === "" ? name : `${relative}/${name}`;
    // A name is a string from here on, and this one would be another file's.
    if (!isUtf8(child.name)) yield { path, relative: below, stat, leftOut: "its name is not UTF-8" };
    else if (!(only?.(below) ?? true)) continue;
    else if (child.isFile()) yield { path: join(path, name), relative: below };
    else yield* walk(join(path, name), only, below);
  }
}

/** Why nothing of an entry can be had that was there a moment ago. */
type Change = "gone" | "replaced" | "unreadable";

/** What is said of it; nothing of one that is gone. */
const reasons = {
  gone: undefined,
  replaced: "it changed while it was read",
  unreadable: "it may not be read",
} as const;

function isChange(value: unknown): value is Change {
  return typeof value === "string" && value in reasons;
}

function* leftOutFor(change: Change, path: string, relative: string): Generator<Found, void, undefined> {
  const leftOut = reasons[change];
  if (leftOut !== undefined) yield { path, relative, leftOut };
}

/** What `work` finds at an entry, or why it finds nothing; the source itself has to stay, and to be readable. */
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
  ["EACCES", "unreadable"],
  ["EPERM", "unreadable"],
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
  for await (const { found: one, contents } of readAhead(found)) {
    const { relative, stat, target, leftOut } = one;
    const name = relative === "" ? root : `${root}/${relative}`;
    if (leftOut !== undefined) {
      tally.skipped.push(`${name}: ${leftOut}`);
    } else if (contents !== undefined || stat === undefined) {
      await addFile(archive, name, one, (await contents) ?? "gone", tally);
    } else if (stat.isDirectory()) {
      await addEntry(archive, { ...headerOf(`${name}/`, stat), type: "directory" });
    } else if (target !== undefined) {
      await addEntry(archive, { ...headerOf(name, stat), type: "symlink", linkname: target });
      tally.files += 1;
    } else {
      tally.skipped.push(`${name}: not a file, directory or symbolic link`);
    }
  }
}

function headerOf(name: string, { mode, mtime }: Stats) {
  return { name, mode: mode & 0o7777, mtime };
}

/** A file that was found, as it is now. */
async function addFile(
  archive: Pack,
  name: string,
  { path, relative }: Found,
  contents: Contents,
  tally: Tally,
): Promise<void> {
  if (isChange(contents)) {
    const reason = reasons[contents];
    if (reason !== undefined) tally.skipped.push(`${name}: ${reason}`);
    return;
  }
  const { stat, bytes } = contents;
  if (bytes === undefined) {
    const large = await openFile(path, relative);
    if (isChange(large)) return addFile(archive, name, { path, relative }, large, tally);
    await using file = large.file;
    const { size } = large.stat;
    let missing = 0;
    const padded = async function* () {
      let got = 0;
      for await (const chunk of read(file, size)) {
        got += chunk.length;
        yield chunk;
      }
      missing = size - got;
      for (let left = missing; left > 0; left -= chunkBytes) yield new Uint8Array(Math.min(left, chunkBytes));
    };
    await addEntry(archive, fileHeader(name, large.stat, size), padded());
    if (missing > 0)
      tally.skipped.push(`${name}: its last ${missing} bytes, cut off while it was read; zeros are there`);
    tally.bytes += size;
  } else {
    await addEntry(archive, fileHeader(name, stat, bytes.length), bytes.length === 0 ? [] : [bytes]);
    tally.bytes += bytes.length;
  }
  tally.files += 1;
}

function fileHeader(name: string, stat: Stats, size: number): NewHeader {
  return { ...headerOf(name, stat), type: "file", size };
}

/** An entry with exactly as many bytes as its header promises. */
function addEntry(
  archive: Pack,
  header: NewHeader,
  contents?: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): Promise<void> {
  return new Promise<void>((resolve, reject) => {
    const sink = archive.entry(header, (error) => (error ? reject(error) : resolve()));
    if (contents === undefined) return;
    const copy = async () => {
      for await (const chunk of contents) if (!sink.write(chunk)) await settled(sink);
      sink.end(undefined);
    };
    copy().catch(reject);
  });
}

/** Contents that are read before it is their turn; of larger files they are read then. */
const smallBytes = 64 * 1024;
/** Files that are read at a time: each takes several turns of the file system, and the one that is packed goes on meanwhile. */
const filesAhead = 8;

/** What is read of a file ahead; no bytes when it is large. */
type Contents = { readonly stat: Stats; readonly bytes: Uint8Array | undefined } | Change;

/** What was found, in order, with what is in the files. */
async function* readAhead(found: AsyncIterable<Found>) {
  const waiting: { readonly found: Found; readonly contents?: Promise<Contents> }[] = [];
  for await (const one of found) {
    if (one.leftOut === undefined && (one.stat?.isFile() ?? true)) {
      const contents = readSmall(one.path, one.relative);
      // It is heard of in its turn.
      contents.catch(() => {});
      waiting.push({ found: one, contents });
    } else {
      waiting.push({ found: one });
    }
    const next = waiting.length > filesAhead ? waiting.shift() : undefined;
    if (next !== undefined) yield next;
  }
  yield* waiting;
}

async function readSmall(path: string, relative: string): Promise<Contents> {
  const opened = await openFile(path, relative);
  if (isChange(opened)) return opened;
  const { stat } = opened;
  await using file = opened.file;
  if (stat.size > smallBytes) return { stat, bytes: undefined };
  const bytes = new Uint8Array(stat.size);
  let filled = 0;
  for await (const chunk of read(file, stat.size)) {
    bytes.set(chunk, filled);
    filled += chunk.length;
  }
  // What it lost meanwhile was not promised to anybody yet.
  return { stat, bytes: bytes.subarray(0, filled) };
}

/** A link in its place is not followed, and a pipe does not hold up a thread until somebody writes into it. */
async function openFile(path: string, relative: string): Promise<{ file: FileHandle; stat: Stats } | Change> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const file = await unlessChanged(relative, open(path, flags));
  if (isChange(file)) return file;
  const stat = await file.stat();
  if (stat.isFile()) return { file, stat };
  await file.close();
  return "replaced";
}

/** At most `size` bytes, fewer when the file becomes shorter meanwhile. */
async function* read(file: FileHandle, size: number): AsyncGenerator<Uint8Array, void, undefined> {
  for (let left = size; left > 0; ) {
    const buffer = new Uint8Array(Math.min(left, chunkBytes));
    const { bytesRead } = await file.read(buffer, 0, buffer.length);
    if (bytesRead === 0) return;
    left -= bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
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
