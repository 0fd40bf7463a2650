/** What of a directory git would keep: .gitignore, .git/info/exclude and the user's own excludes, as git itself reads them. */
import { execFile } from "node:child_process";
import { lstat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { OpenShellError } from "../common/errors.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** Who asks git. */
interface Asking {
  readonly env: Environment;
  readonly signal: AbortSignal;
}

/**
 * Which paths of an upload are taken, relative to the directory `source`. Undefined where git has no say: for a file, outside of a work tree,
 * and for a directory that is ignored as a whole, since whoever names it wants it.
 * @throws failed-precondition when git is needed and cannot be asked: to guess would upload what was to stay here
 */
export async function gitKeeps(
  source: string,
  env: Environment,
  signal: AbortSignal,
): Promise<((path: string) => boolean) | undefined> {
  const stat = await lstatIfThere(source);
  if (stat?.isDirectory() !== true || !(await isInWorkTree(source))) return undefined;
  const asking = { env: withoutRepository(env), signal };
  const ignored = await git(source, ["check-ignore", "-q", source], asking);
  if (ignored.code === 0) return undefined;
  const kept = new Set<string>();
  await addKept(source, "", kept, asking);
  return (path) => kept.has(path);
}

async function isInWorkTree(directory: string): Promise<boolean> {
  for (let at = directory; ; at = dirname(at)) {
    if ((await lstatIfThere(join(at, ".git"))) !== undefined) return true;
    if (at === dirname(at)) return false;
  }
}

/** Adds files and the directories above them. Another repository inside, submodule or not, is asked for itself. */
async function addKept(directory: string, prefix: string, kept: Set<string>, asking: Asking): Promise<void> {
  for (const listed of await tracked(directory, asking)) {
    const stat = await lstatIfThere(join(directory, listed));
    // Deleted, and still in the index.
    if (stat === undefined) continue;
    const path = `${prefix}${listed.replace(/\/$/, "")}`;
    for (let at = path; at !== "." && !kept.has(at); at = dirname(at)) kept.add(at);
    if (stat.isDirectory()) await addKept(join(directory, listed), `${path}/`, kept, asking);
  }
}

/**
 * Files that are tracked or could be, and repositories, relative to `directory`. In a submodule that was not fetched git lists nothing but the
 * directory itself.
 */
async function tracked(directory: string, asking: Asking): Promise<string[]> {
  const list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
  const { code, stdout, stderr } = await git(directory, list, asking);
  if (code === 0) return stdout.split("\0").filter((path) => path !== "" && path !== "./");
  const why = code === "ENOENT" ? "it is not on the PATH" : stderr.trim().split("\n")[0];
  throw new OpenShellError(
    "failed-precondition",
    `${directory} is in a git work tree, and git cannot say what of it is ignored: ${why}; --no-git-ignore uploads everything`,
  );
}

/**
 * The environment without what points git to another repository, index or kind of path, as it does for a command in a hook. What names the
 * user's own configuration stays.
 */
function withoutRepository(env: Environment): Environment {
  return Object.fromEntries(Object.entries(env).filter(([name]) => !/^GIT_(?!CONFIG_|EXEC_PATH$)/.test(name)));
}

/** Without the programs that a repository's own configuration could name. */
function git(directory: string, args: readonly string[], { env, signal }: Asking) {
  const all = ["-c", "core.fsmonitor=false", "-C", directory, ...args];
  const options = { env: { ...env } as NodeJS.ProcessEnv, maxBuffer: 1024 ** 3, signal };
  return new Promise<{ code: number | string; stdout: string; stderr: string }>((resolve, reject) => {
    execFile("git", all, options, (error, stdout, stderr) => {
      if (signal.aborted) reject(signal.reason);
      else resolve({ code: error === null ? 0 : (error.code ?? 1), stdout, stderr });
    });
  });
}

function lstatIfThere(path: string) {
  return lstat(path).catch(() => undefined);
}
