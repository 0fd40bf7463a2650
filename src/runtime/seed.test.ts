import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createLogger } from "../common/log.ts";
import { isRoot } from "./_harness.ts";
import { placeRuntime } from "./_program.ts";
import { seedWorkspace } from "./seed.ts";

const log = createLogger({ name: "test", level: "error" });
let directory: string;
let source: string;
let volume: string;
let synced: number;

const run = (isExpected = false) =>
  seedWorkspace({
    isExpected,
    source,
    volume,
    log,
    sync: () => {
      // Data is synced before the sentinel exists, or it would be no proof.
      expect(existsSync(join(volume, ".openshell-seeded"))).toBe(false);
      synced += 1;
      return 0;
    },
  });

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "openshell-seed-"));
  source = join(directory, "image");
  volume = join(directory, "volume");
  synced = 0;
  mkdirSync(join(source, "sub/empty"), { recursive: true });
  mkdirSync(volume);
  mkdirSync(join(volume, "lost+found"), { mode: 0o700 });
  writeFileSync(join(source, ".bashrc"), "alias x=y\n");
  writeFileSync(join(source, "sub/tool"), "#!/bin/sh\n");
  chmodSync(join(source, "sub/tool"), 0o755);
  const time = new Date("2022-02-02T02:02:02Z");
  utimesSync(join(source, "sub/tool"), time, time);
  symlinkSync("/usr/bin/env", join(source, "link"));
});
afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

describe("seeding", () => {
  it("brings files, links, modes and times, and writes the sentinel beside the data", async () => {
    expect(await run()).toEqual({ version: 1, copied: 3, unreadable: [] });
    const data = join(volume, "data");
    expect(readdirSync(data).sort()).toEqual([".bashrc", "link", "sub"]);
    expect(statSync(join(data, "sub/tool")).mode & 0o777).toBe(0o755);
    expect(statSync(join(data, "sub/tool")).mtime).toEqual(new Date("2022-02-02T02:02:02Z"));
    expect(readlinkSync(join(data, "link"))).toBe("/usr/bin/env");
    expect(lstatSync(join(data, "sub/empty")).isDirectory()).toBe(true);
    expect(readdirSync(volume).sort()).toEqual([".openshell-seeded", "data", "lost+found"]);
    expect(synced).toBe(1);
  });

  it("happens once: what the agent deletes does not come back", async () => {
    await run();
    rmSync(join(volume, "data/.bashrc"));
    await run();
    expect(existsSync(join(volume, "data/.bashrc"))).toBe(false);
  });

  it("of a workspace that was seeded before refuses another volume, and writes nothing to it", async () => {
    await run();
    await expect(run(true)).resolves.toMatchObject({ copied: 3 });
    rmSync(volume, { recursive: true });
    mkdirSync(volume);
    await expect(run(true)).rejects.toMatchObject({
      code: "failed-precondition",
      details: { reason: "WorkspaceLost" },
      message: expect.stringContaining("delete the sandbox and create it anew"),
    });
    expect(readdirSync(volume)).toEqual([]);
  });

  it("goes on after an interruption and never writes over what is there", async () => {
    mkdirSync(join(volume, "data/sub"), { recursive: true });
    mkdirSync(join(volume, ".openshell-seeding"));
    writeFileSync(join(volume, ".openshell-seeding/1"), "half a fi");
    writeFileSync(join(volume, "data/sub/tool"), "the agent's own");
    expect(await run()).toMatchObject({ copied: 2 });
    expect(readFileSync(join(volume, "data/sub/tool"), "utf8")).toBe("the agent's own");
    expect(readdirSync(volume)).not.toContain(".openshell-seeding");
  });

  it("of an image without a home leaves an empty workspace that counts as seeded", async () => {
    source = join(directory, "nowhere");
    expect(await run()).toEqual({ version: 1, copied: 0, unreadable: [] });
    expect(readdirSync(join(volume, "data"))).toEqual([]);
  });

  it("lists what has a name that is not UTF-8", async () => {
    writeFileSync(Buffer.concat([Buffer.from(join(source, "sub/caf")), Buffer.from([0xe9])]), "latin-1");
    expect(await run()).toMatchObject({ copied: 3, unreadable: ["sub/caf\ufffd: its name is not UTF-8"] });
    expect(readdirSync(join(volume, "data/sub")).sort()).toEqual(["empty", "tool"]);
  });

  it("brings a link whose target is not UTF-8 as it is", async () => {
    const target = Buffer.from([0x63, 0x61, 0x66, 0xe9]);
    symlinkSync(target, join(source, "odd"));
    expect(await run()).toMatchObject({ copied: 4, unreadable: [] });
    expect(readlinkSync(join(volume, "data/odd"), { encoding: "buffer" })).toEqual(target);
  });

  it.skipIf(!isRoot)("lists what it could not read, as the user it runs as", async () => {
    writeFileSync(join(source, "secret"), "root's");
    chmodSync(join(source, "secret"), 0o600);
    mkdirSync(join(source, "closed"), { mode: 0o700 });
    mkdirSync(join(source, "listed"));
    writeFileSync(join(source, "listed/file"), "root's");
    chmodSync(join(source, "listed"), 0o744);
    chmodSync(volume, 0o777);
    chmodSync(directory, 0o755);
    await runAs(10_001);
    const sentinel = JSON.parse(readFileSync(join(volume, ".openshell-seeded"), "utf8"));
    expect(sentinel.unreadable).toEqual(["closed: EACCES", "listed/file: EACCES", "secret: EACCES"]);
    expect(readFileSync(join(volume, "data/.bashrc"), "utf8")).toBe("alias x=y\n");
  });

  it.skipIf(!isRoot)("says so when the volume is not writable", async () => {
    chmodSync(volume, 0o755);
    chmodSync(directory, 0o755);
    const { status, stderr } = spawnSync(...(await command(10_001)));
    expect(status).toBe(73);
    expect(stderr).toMatch(/WorkspaceNotWritable: user 10001:10001 cannot write the workspace volume/);
  });
});

async function command(uid: number) {
  const { node, main } = await placeRuntime(join(directory, "program"));
  const user = [`--reuid=${uid}`, `--regid=${uid}`, "--clear-groups"];
  const env = { ...process.env, OPENSHELL_SEED_SOURCE: source, OPENSHELL_SEED_VOLUME: volume };
  return ["setpriv", [...user, node, main, "seed"], { env, encoding: "utf8" }] as const;
}

async function runAs(uid: number): Promise<void> {
  const [file, argv, options] = await command(uid);
  execFileSync(file, argv, { ...options, stdio: "pipe" });
}
