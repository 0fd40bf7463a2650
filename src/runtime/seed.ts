import { isUtf8 } from "node:buffer";
import { constants, type Stats } from "node:fs";
import {
  access,
  chmod,
  copyFile,
  lstat,
  lutimes,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  symlink,
  utimes,
} from "node:fs/promises";
import { join } from "node:path";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { loadNative } from "./native/index.ts";

/** In the volume's root, beside `data` and so out of the agent's reach. */
const sentinelName = ".openshell-seeded";
const workName = ".openshell-seeding";
const dataName = "data";

/** What the sentinel says. */
interface Sentinel {
  readonly version: 1;
  readonly copied: number;
  /** Paths of the image that could not be read, with the reason. */
  readonly unreadable: readonly string[];
}

export interface SeedOptions {
  /** The image's own home directory. */
  readonly source: string;
  /** Root of the workspace volume. */
  readonly volume: string;
  /** The workspace was seeded before: a volume that says otherwise is another one, and nothing is written to it. @default false */
  readonly isExpected?: boolean;
  /** Puts everything written so far on disk. */
  readonly sync: (fd: number) => number;
  readonly log: Logger;
}

/** The init container in the workload image: gives an empty workspace what the image has in /sandbox, and knows a lost one. */
export async function seed(environment: NodeJS.ProcessEnv, log: Logger): Promise<number> {
  await seedWorkspace({
    source: environment.OPENSHELL_SEED_SOURCE ?? "/sandbox",
    volume: environment.OPENSHELL_SEED_VOLUME ?? "/openshell-workspace",
    isExpected: environment.OPENSHELL_SEED_EXPECTED === "seeded",
    sync: loadNative().sync,
    log,
  });
  return 0;
}

/**
 * Copies the image's home into `data` of the volume, once. Can be interrupted anywhere and run again: every file appears whole or not at
 * all, what is there is never written over, and the sentinel comes last, when everything before it is on disk.
 * @throws failed-precondition `WorkspaceNotWritable` or `WorkspaceLost`, resource-exhausted `WorkspaceFull`
 */
export async function seedWorkspace(options: SeedOptions): Promise<Sentinel> {
  const { volume, log } = options;
  const data = join(volume, dataName);
  const done = await readSentinel(volume);
  if (done === undefined && options.isExpected) throw lost();
  await prepare(volume, data);
  if (done !== undefined) {
    log.info("the workspace is seeded already");
    return done;
  }
  const copy = new Copy(join(volume, workName));
  try {
    await rm(copy.work, { recursive: true, force: true });
    await mkdir(copy.work);
    await copy.directory(options.source, data, "", true);
    await rm(copy.work, { recursive: true, force: true });
    const sentinel: Sentinel = { version: 1, copied: copy.copied, unreadable: copy.unreadable };
    await writeSentinel(volume, sentinel, options.sync);
    for (const one of copy.unreadable) log.warn({ path: one }, "not copied into the workspace");
    log.info({ copied: copy.copied, unreadable: copy.unreadable.length }, "the workspace is seeded");
    return sentinel;
  } catch (error) {
    throw explain(error, volume);
  }
}

async function prepare(volume: string, data: string): Promise<void> {
  try {
    await mkdir(data, { mode: 0o755 }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error;
    });
    await access(volume, constants.W_OK | constants.X_OK);
    await access(data, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw explain(error, volume);
  }
}

class Copy {
  readonly work: string;
  readonly unreadable: string[] = [];
  copied = 0;
  #serial = 0;

  constructor(work: string) {
    this.work = work;
  }

  /** @param top the source itself, which an image need not have */
  async directory(source: string, target: string, name: string, top = false): Promise<void> {
    let entries: Buffer[];
    try {
      entries = await readdir(source, { encoding: "buffer" });
    } catch (error) {
      if (!(top && codeOf(error) === "ENOENT")) this.#leaveOut(name || ".", error);
      return;
    }
    for (const bytes of entries.sort(Buffer.compare)) {
      const entry = bytes.toString();
      const path = name === "" ? entry : `${name}/${entry}`;
      if (isUtf8(bytes)) await this.#entry(join(source, entry), join(target, entry), path);
      else this.unreadable.push(`${path}: its name is not UTF-8`);
    }
  }

  async #entry(source: string, target: string, name: string): Promise<void> {
    let stat: Stats;
    try {
      stat = await lstat(source);
    } catch (error) {
      // In a directory that can be listed and not searched.
      this.#leaveOut(name, error);
      return;
    }
    const there = await lstat(target).catch(() => undefined);
    if (stat.isDirectory()) {
      if (there === undefined) await mkdir(target, { mode: 0o700 });
      else if (!there.isDirectory()) return;
      await this.directory(source, target, name);
      // Kept writable for us: the agent has the same user, and the next start of an interrupted seed goes on in it.
      await chmod(target, (stat.mode & 0o777) | 0o700);
      await utimes(target, stat.atime, stat.mtime);
    } else if (there !== undefined) {
      return;
    } else if (stat.isSymbolicLink()) {
      const link = await readlink(source, { encoding: "buffer" });
      await this.#place(target, (temporary) => symlink(link, temporary));
      await lutimes(target, stat.atime, stat.mtime);
    } else if (stat.isFile()) {
      await this.#file(source, target, name, stat);
    } else {
      this.unreadable.push(`${name}: not a file, directory or symbolic link`);
    }
  }

  async #file(
    source: string,
    target: string,
    name: string,
    stat: { readonly mode: number; readonly atime: Date; readonly mtime: Date },
  ): Promise<void> {
    try {
      await access(source, constants.R_OK);
    } catch (error) {
      this.#leaveOut(name, error);
      return;
    }
    await this.#place(target, async (temporary) => {
      await copyFile(source, temporary, constants.COPYFILE_EXCL);
      await chmod(temporary, stat.mode & 0o777);
      await utimes(temporary, stat.atime, stat.mtime);
    });
  }

  /** Made beside the data and moved into it, so that a name in the data is always a whole file. */
  async #place(target: string, make: (temporary: string) => Promise<void>): Promise<void> {
    this.#serial += 1;
    const temporary = join(this.work, String(this.#serial));
    await make(temporary);
    await rename(temporary, target);
    this.copied += 1;
  }

  #leaveOut(name: string, error: unknown): void {
    this.unreadable.push(`${name}: ${codeOf(error) ?? String(error)}`);
  }
}

async function readSentinel(volume: string): Promise<Sentinel | undefined> {
  try {
    return JSON.parse(await readFile(join(volume, sentinelName), "utf8")) as Sentinel;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw explain(error, volume);
  }
}

async function writeSentinel(volume: string, sentinel: Sentinel, sync: (fd: number) => number): Promise<void> {
  const directory = await open(volume, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    const flush = () => {
      const result = sync(directory.fd);
      if (result < 0)
        throw new OpenShellError("internal", `the workspace could not be written to disk: errno ${-result}`);
    };
    flush();
    const temporary = join(volume, `${sentinelName}.new`);
    const file = await open(temporary, "w", 0o444);
    try {
      await file.writeFile(`${JSON.stringify(sentinel)}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, join(volume, sentinelName));
    await directory.sync();
  } finally {
    await directory.close();
  }
}

function lost(): OpenShellError {
  const message =
    "the workspace volume of this sandbox was deleted or replaced: what is mounted was never seeded, and nothing was written to it. Bring the former volume back, or delete the sandbox and create it anew with an empty workspace";
  return new OpenShellError("failed-precondition", message, { reason: "WorkspaceLost" });
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}

function explain(error: unknown, volume: string): OpenShellError {
  if (error instanceof OpenShellError) return error;
  switch (codeOf(error)) {
    case "EACCES":
    case "EPERM":
    case "EROFS": {
      const user = `${process.getuid?.()}:${process.getgid?.()}`;
      const message = `user ${user} cannot write the workspace volume at ${volume}: set fsGroup, or make the volume writable for it`;
      return new OpenShellError("failed-precondition", message, { reason: "WorkspaceNotWritable", cause: error });
    }
    case "ENOSPC":
    case "EDQUOT":
      return new OpenShellError("resource-exhausted", "the workspace volume is too small for the image's /sandbox", {
        reason: "WorkspaceFull",
        cause: error,
      });
    default:
      return OpenShellError.from(error);
  }
}
