/** One process at a time: a lock in the file system, for processes that may be killed while they hold it. */
import { randomUUID } from "node:crypto";
import { mkdir, readdir, rename, rm, rmdir, stat, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";

/**
 * Takes the lock at `path`, or that of a holder who is gone. The lock is a directory with one entry, which bears the holder's own name: it is
 * renamed into place with the entry in it, a takeover renames the entry, a release unlinks it. Each is one step that fails when the lock is
 * meanwhile somebody else's, which neither a time nor an inode could tell, since file systems use the numbers again.
 * @param path in a directory that exists
 * @param staleMs a lock of this age, or as far ahead, is one whose holder is gone
 * @returns undefined while somebody else holds it
 * @throws the file system's own errors
 */
export async function tryLock(path: string, staleMs: number): Promise<AsyncDisposable | undefined> {
  const [holder, before] = [randomUUID(), await holderOf(path)];
  const taken =
    before === undefined ? await putInPlace(path, holder) : await takeOver(path, before, { holder, staleMs });
  return taken ? { [Symbol.asyncDispose]: () => release(path, holder) } : undefined;
}

/** Undefined where nobody holds the lock: a directory without an entry is none. */
async function holderOf(path: string): Promise<string | undefined> {
  try {
    return (await readdir(path))[0];
  } catch (error) {
    unless(error, "ENOENT");
    return undefined;
  }
}

/** False where somebody was faster. */
async function putInPlace(path: string, holder: string): Promise<boolean> {
  const prepared = `${path}.${holder}`;
  try {
    await mkdir(prepared, { mode: 0o700 });
    await writeFile(join(prepared, holder), "");
    await rename(prepared, path);
    return true;
  } catch (error) {
    await rm(prepared, { recursive: true, force: true });
    return unless(error, "EEXIST", "ENOTEMPTY");
  }
}

/** What `before` is was read before the age is: whoever came in between made the lock young, so that an old one is still that holder's. */
async function takeOver(
  path: string,
  before: string,
  { holder, staleMs }: { readonly holder: string; readonly staleMs: number },
): Promise<boolean> {
  try {
    // Of a time ahead the clock is wrong, here or where the file system is.
    if (Math.abs(Date.now() - (await stat(path)).mtimeMs) <= staleMs) return false;
    await rename(join(path, before), join(path, holder));
    return true;
  } catch (error) {
    return unless(error, "ENOENT");
  }
}

async function release(path: string, holder: string): Promise<void> {
  try {
    await unlink(join(path, holder));
    await rmdir(path);
  } catch (error) {
    unless(error, "ENOENT", "EEXIST", "ENOTEMPTY");
  }
}

/** False for an error with one of these codes; another one is thrown. */
function unless(error: unknown, ...codes: readonly string[]): false {
  if (codes.includes((error as NodeJS.ErrnoException).code ?? "")) return false;
  throw error;
}
