import { randomBytes } from "node:crypto";
import { chmod, lstat, mkdir, open, realpath, rename, rm, symlink, utimes } from "node:fs/promises";
import { dirname, join, normalize, posix, sep } from "node:path";
import { type Header, extract as tarExtract } from "tar-stream";
import { OpenShellError } from "../common/errors.ts";
import { explain, settled, type Tally, type TransferSummary } from "./_tar.ts";

type Entry = AsyncIterable<unknown> & { readonly header: Header; resume(): unknown };

export interface ExtractOptions {
  /** Replaces the first component of every name. @default as in the stream */
  readonly name?: string;
  /**
   * Which symbolic links are made: `inside` only relative ones that stay below the destination, which is right for a stream from
   * somebody else; `any` where the writer of the stream owns the destination.
   * @default "inside"
   */
  readonly links?: "inside" | "any";
}

/**
 * Unpacks a tar stream below a directory, which is made when missing. No name leaves the directory, nothing is written through a
 * symbolic link below it, files replace what they find in one step, set-uid bits and owners are dropped.
 * @throws invalid-argument for a name that points outside, failed-precondition where a link or file is in the way
 */
export async function extractTree(
  chunks: AsyncIterable<Uint8Array>,
  destination: string,
  options: ExtractOptions = {},
): Promise<TransferSummary> {
  const root = await makeRoot(destination);
  const extraction = new Extraction(root, options);
  const archive = tarExtract();
  const fed = feed(chunks, archive);
  // A failing source is told by destroying the archive, which ends the loop below with the same error.
  fed.catch((error: unknown) => archive.destroy(error as Error));
  try {
    for await (const entry of archive) await extraction.take(entry);
    await fed;
    return await extraction.finish();
  } catch (error) {
    archive.destroy(error as Error);
    throw error instanceof OpenShellError ? error : explain(error);
  }
}

class Extraction {
  readonly #root: string;
  readonly #options: ExtractOptions;
  readonly #tally: Tally = { files: 0, bytes: 0, skipped: [] };
  /** Directories known to be real ones of ours, so that they are looked at once. */
  readonly #real = new Set<string>();
  /** Set last, innermost first: writing into a directory changes its time, and it may be read-only. */
  readonly #directories: { readonly path: string; readonly mode: number; readonly mtime: Date }[] = [];
  #top = "";

  constructor(root: string, options: ExtractOptions) {
    this.#root = root;
    this.#options = options;
    this.#real.add(root);
  }

  async take(entry: Entry): Promise<void> {
    const { header } = entry;
    const parts = this.#partsOf(header.name);
    const path = join(this.#root, ...parts);
    this.#top ||= parts[0] ?? "";
    if (header.type === "directory") {
      await this.#directory(parts);
      this.#directories.push({ path, mode: modeOf(header, 0o755), mtime: header.mtime ?? new Date() });
    } else if (header.type === "symlink") {
      await this.#link(parts, path, header.linkname ?? "");
    } else if (header.type === "file" || header.type === "contiguous-file") {
      await this.#directory(parts.slice(0, -1));
      await this.#file(path, entry);
    } else {
      this.#tally.skipped.push(`${header.name}: a ${header.type} is not copied`);
    }
    entry.resume();
  }

  async finish(): Promise<TransferSummary> {
    for (const { path, mode, mtime } of this.#directories.reverse()) {
      await chmod(path, mode);
      await utimes(path, mtime, mtime);
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

  /** Makes the directories below the root, refusing to go through a link or file. */
  async #directory(parts: readonly string[]): Promise<void> {
    let path = this.#root;
    for (const part of parts) {
      path = join(path, part);
      if (this.#real.has(path)) continue;
      await mkdir(path, { mode: 0o755 }).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== "EEXIST") throw error;
      });
      if (!(await lstat(path)).isDirectory()) {
        throw new OpenShellError(
          "failed-precondition",
          `${path} is in the way: it is no directory, and links are not followed`,
        );
      }
      this.#real.add(path);
    }
  }

  async #link(parts: readonly string[], path: string, target: string): Promise<void> {
    const resolved = posix.normalize(posix.join(...parts.slice(0, -1), target));
    const leaves = target.startsWith("/") || resolved === ".." || resolved.startsWith("../");
    if (this.#options.links !== "any" && leaves) {
      this.#tally.skipped.push(`${parts.join("/")}: a link to ${target}, which is outside`);
      return;
    }
    await this.#directory(parts.slice(0, -1));
    await this.#replace(path, (temporary) => symlink(target, temporary));
    this.#tally.files += 1;
  }

  async #file(path: string, entry: Entry): Promise<void> {
    const { header } = entry;
    await this.#replace(path, async (temporary) => {
      const file = await open(temporary, "wx", 0o600);
      try {
        for await (const chunk of entry as AsyncIterable<Uint8Array>) {
          await file.writeFile(chunk);
          this.#tally.bytes += chunk.length;
        }
        await file.chmod(modeOf(header, 0o644));
        const mtime = header.mtime ?? new Date();
        await file.utimes(mtime, mtime);
      } finally {
        await file.close();
      }
    });
    this.#tally.files += 1;
  }

  /** Writes beside the place and renames, so that nobody sees half a file and a failure leaves what was there. */
  async #replace(path: string, write: (temporary: string) => Promise<void>): Promise<void> {
    const temporary = join(dirname(path), `.openshell-${randomBytes(6).toString("hex")}`);
    try {
      await write(temporary);
      await rename(temporary, path);
    } catch (error) {
      await rm(temporary, { force: true });
      throw error;
    }
  }
}

function modeOf(header: Header, fallback: number): number {
  return (header.mode ?? fallback) & 0o777;
}

async function feed(chunks: AsyncIterable<Uint8Array>, archive: ReturnType<typeof tarExtract>): Promise<void> {
  for await (const chunk of chunks) {
    if (archive.destroyed) return;
    if (!archive.write(chunk)) await settled(archive);
  }
  archive.end(undefined);
}

async function makeRoot(destination: string): Promise<string> {
  try {
    await mkdir(destination, { recursive: true });
    return await realpath(destination);
  } catch (error) {
    throw explain(error);
  }
}
