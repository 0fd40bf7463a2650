import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { gitKeeps } from "./git-ignore.ts";

let home: string;
const path = { PATH: process.env.PATH };
const never = new AbortController().signal;

/** A repository with a secret that is ignored, and another one that ignores nothing. */
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "openshell-git-ignore-"));
  for (const name of ["tree", "other"]) {
    await mkdir(join(home, name));
    for (const file of ["main.ts", "secret.env"]) await writeFile(join(home, name, file), "x");
    execFileSync("git", ["-C", join(home, name), "init", "-q"], { env: path });
  }
  await writeFile(join(home, "tree", ".gitignore"), "*.env\n");
  execFileSync("git", ["-C", join(home, "other"), "add", "."], { env: path });
});
afterEach(() => rm(home, { recursive: true }));

async function kept(more: Record<string, string>): Promise<string[]> {
  const keeps = await gitKeeps(join(home, "tree"), { ...path, ...more }, never);
  return ["main.ts", "secret.env"].filter((name) => keeps?.(name) ?? true);
}

describe("what git keeps of a directory", () => {
  it("is asked of the repository that the directory is in, wherever the environment points", async () => {
    expect(await kept({})).toEqual(["main.ts"]);
    const other = join(home, "other");
    // As in a hook of the other repository.
    expect(await kept({ GIT_DIR: join(other, ".git") })).toEqual(["main.ts"]);
    expect(await kept({ GIT_DIR: join(other, ".git"), GIT_WORK_TREE: other })).toEqual(["main.ts"]);
    expect(await kept({ GIT_INDEX_FILE: join(other, ".git", "index") })).toEqual(["main.ts"]);
    expect(await kept({ GIT_CEILING_DIRECTORIES: home, GIT_LITERAL_PATHSPECS: "1" })).toEqual(["main.ts"]);
  });

  it("goes by the user's own configuration, which the environment may name", async () => {
    await writeFile(join(home, "ignored"), "main.ts\n");
    await writeFile(join(home, "config"), `[core]\nexcludesFile = ${join(home, "ignored")}\n`);
    expect(await kept({ GIT_CONFIG_GLOBAL: join(home, "config") })).toEqual([]);
    const pair = { GIT_CONFIG_KEY_0: "core.excludesFile", GIT_CONFIG_VALUE_0: join(home, "ignored") };
    expect(await kept({ GIT_CONFIG_COUNT: "1", ...pair })).toEqual([]);
  });

  it("is the directory of a submodule that was not fetched, and nothing in it", async () => {
    const clone = join(home, "clone");
    const git = (at: string, ...args: string[]) =>
      execFileSync(
        "git",
        ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", "-C", at, ...args],
        { env: path },
      );
    git(join(home, "other"), "commit", "-q", "-m", "x");
    git(join(home, "tree"), "submodule", "--quiet", "add", join(home, "other"), "inner");
    git(join(home, "tree"), "add", ".");
    git(join(home, "tree"), "commit", "-q", "-m", "x");
    git(home, "clone", "-q", "tree", "clone");
    await writeFile(join(clone, "inner", "stray"), "x");
    // A walk that has no end ends here.
    const signal = AbortSignal.timeout(10_000);
    const keeps = await gitKeeps(clone, path, signal);
    expect(["main.ts", "inner", "inner/stray", "inner/main.ts"].filter((name) => keeps?.(name))).toEqual([
      "main.ts",
      "inner",
    ]);
    const inner = await gitKeeps(join(clone, "inner"), path, signal);
    expect(inner?.("stray")).toBe(false);
    await rm(join(clone, "inner", "stray"));
    git(clone, "submodule", "--quiet", "update", "--init");
    expect((await gitKeeps(clone, path, signal))?.("inner/main.ts")).toBe(true);
  });

  it("is not asked any more after an interrupt", async () => {
    const interrupt = new AbortController();
    const asking = gitKeeps(join(home, "tree"), path, interrupt.signal);
    interrupt.abort();
    await expect(asking).rejects.toMatchObject({ name: "AbortError" });
  });
});
