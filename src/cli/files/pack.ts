/** A file or directory of this machine as a tar stream. */
import { createReadStream } from "node:fs";
import { lstat, readdir, readlink } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { pack as createPack } from "tar-stream";
import { OpenShellError } from "../../common/errors.ts";

/** What will be packed: every path relative to `root`, parents before children. */
export interface PackList {
  readonly root: string;
  readonly entries: readonly PackEntry[];
  /** Bytes of file content. */
  readonly bytes: number;
  readonly skipped: readonly string[];
}

interface PackEntry {
  /** Name in the archive. */
  readonly name: string;
  readonly path: string;
  readonly type: "file" | "directory" | "symlink";
  readonly size: number;
  readonly mode: number;
  readonly mtime: Date;
  readonly linkname?: string;
}

/**
 * Lists `local`: a file as its base name, a directory with its own name, `dir/.` its content only. Sockets, pipes and devices are
 * left out and named in `skipped`.
 * @throws not-found when there is nothing at `local`
 */
export async function listForPacking(local: string): Promise<PackList> {
  const contentOnly = /(^|\/)\.\/?$/.test(local);
  const path = resolve(local);
  const entries: PackEntry[] = [];
  const skipped: string[] = [];
  const visit = async (at: string, name: string): Promise<void> => {
    const found = await lstat(at).catch((cause: NodeJS.ErrnoException) => {
      const missing = cause.code === "ENOENT" || cause.code === "ENOTDIR";
      throw new OpenShellError(
        missing ? "not-found" : "permission-denied",
        missing ? `there is no file or directory ${at}` : `cannot read ${at}: ${cause.message}`,
        { cause },
      );
    });
    const common = { name, path: at, mode: found.mode & 0o777, mtime: found.mtime };
    if (found.isDirectory()) {
      if (name !== "") entries.push({ ...common, type: "directory", size: 0 });
      const children = await readdir(at);
      for (const child of children.sort()) await visit(join(at, child), name === "" ? child : `${name}/${child}`);
    } else if (found.isSymbolicLink()) {
      entries.push({ ...common, type: "symlink", size: 0, linkname: await readlink(at) });
    } else if (found.isFile()) {
      entries.push({ ...common, type: "file", size: found.size });
    } else {
      skipped.push(at);
    }
  };
  await visit(path, contentOnly ? "" : basename(path));
  return { root: path, entries, skipped, bytes: entries.reduce((sum, { size }) => sum + size, 0) };
}

/** The tar stream of a list. A file that changes its size meanwhile ends it with an error. */
export async function* packed(list: PackList): AsyncGenerator<Uint8Array, void, undefined> {
  const archive = createPack();
  const filling = (async () => {
    for (const { name, path, type, size, mode, mtime, linkname } of list.entries) {
      const header = { name, type, size, mode, mtime, ...(linkname === undefined ? {} : { linkname }) };
      if (type !== "file" || size === 0) {
        await new Promise<void>((done, failed) => {
          archive.entry(header, "", (error) => (error ? failed(error) : done()));
        });
      } else {
        // Exactly the announced bytes: a file that grew is cut, one that shrank makes the entry fail.
        await pipeline(createReadStream(path, { end: size - 1 }), archive.entry(header));
      }
    }
    archive.finalize();
  })().catch((error: Error) => archive.destroy(error));
  try {
    yield* archive as AsyncIterable<Uint8Array>;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new OpenShellError("aborted", `cannot pack ${list.root}: ${why}; was it changed meanwhile?`, { cause });
  } finally {
    archive.destroy();
    await filling;
  }
}
