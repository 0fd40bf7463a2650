import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import fs, { access } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { type Pack, pack } from "tar-stream";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { cut } from "./files.ts";
import { chunkBytes } from "./protocol.ts";
import { extractTree } from "./tar-extract.ts";
import { packTree, treeBytes } from "./tar-pack.ts";

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "openshell-tar-"));
});
afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

type Header = Parameters<Pack["entry"]>[0];

/** A stream as a hostile peer could write it. */
function crafted(...entries: readonly (readonly [Header, string?])[]): AsyncIterable<Uint8Array> {
  const archive = pack();
  for (const [header, content] of entries) {
    if (content === undefined) archive.entry(header);
    else archive.entry(header, content);
  }
  archive.finalize();
  return archive as unknown as AsyncIterable<Uint8Array>;
}

describe("a tree through a tar stream", () => {
  it("comes out with its contents, modes, times and inner links", async () => {
    const source = join(directory, "project");
    mkdirSync(join(source, "sub/deep"), { recursive: true });
    writeFileSync(join(source, "run.sh"), "#!/bin/sh\n");
    chmodSync(join(source, "run.sh"), 0o751);
    writeFileSync(join(source, "sub/deep/big"), Buffer.alloc(300_000, "x"));
    writeFileSync(join(source, "empty"), "");
    symlinkSync("../run.sh", join(source, "sub/link"));
    const time = new Date("2021-03-04T05:06:07Z");
    utimesSync(join(source, "run.sh"), time, time);
    chmodSync(join(source, "sub/deep"), 0o500);
    utimesSync(join(source, "sub/deep"), time, time);

    const { stream, summary } = await packTree(source);
    const result = await extractTree(stream, join(directory, "out"));

    const out = join(directory, "out/project");
    expect(readFileSync(join(out, "sub/deep/big")).equals(Buffer.alloc(300_000, "x"))).toBe(true);
    expect(statSync(join(out, "run.sh")).mode & 0o777).toBe(0o751);
    expect(statSync(join(out, "run.sh")).mtime).toEqual(time);
    expect(statSync(join(out, "sub/deep")).mode & 0o777).toBe(0o500);
    expect(statSync(join(out, "sub/deep")).mtime).toEqual(time);
    expect(readlinkSync(join(out, "sub/link"))).toBe("../run.sh");
    expect(result).toEqual({ files: 4, bytes: 300_010, path: out, skipped: [] });
    expect(summary()).toEqual({ ...result, path: source });
  });

  it("can be given another name on the way in and on the way out", async () => {
    writeFileSync(join(directory, "a"), "1");
    const { stream } = await packTree(join(directory, "a"), { name: "b" });
    await extractTree(stream, directory, { name: "c" });
    expect(readFileSync(join(directory, "c"), "utf8")).toBe("1");
    expect(existsSync(join(directory, "b"))).toBe(false);
  });

  it("replaces an existing file, and a link by a file without following it", async () => {
    writeFileSync(join(directory, "precious"), "keep");
    mkdirSync(join(directory, "out"));
    symlinkSync(join(directory, "precious"), join(directory, "out/a"));
    await extractTree(crafted([{ name: "a" }, "new"]), join(directory, "out"));
    expect(readFileSync(join(directory, "out/a"), "utf8")).toBe("new");
    expect(lstatSync(join(directory, "out/a")).isSymbolicLink()).toBe(false);
    expect(readFileSync(join(directory, "precious"), "utf8")).toBe("keep");
  });

  it("replaces no pipe, socket or device, nor anything else then", async () => {
    writeFileSync(join(directory, "a"), "old");
    execFileSync("mkfifo", [join(directory, "pipe")]);
    await expect(
      extractTree(crafted([{ name: "a" }, "new"], [{ name: "pipe" }, "new"]), directory),
    ).rejects.toMatchObject({
      code: "failed-precondition",
      message: `${realpathSync(join(directory, "pipe"))} is in the way: it is a device, a pipe or a socket`,
    });
    expect(lstatSync(join(directory, "pipe")).isFIFO()).toBe(true);
    expect(readFileSync(join(directory, "a"), "utf8")).toBe("old");
  });

  describe.each([
    ["somebody else's", {}, 0o700, 0o600],
    ["that owns the destination", { links: "any" }, 0o777, 0o666],
  ] as const)("from a stream %s", (_whose, options, ofDirectory, ofFile) => {
    let umask: number;
    beforeEach(() => {
      umask = process.umask(0o077);
    });
    afterEach(() => void process.umask(umask));

    it(`has modes of ${ofDirectory.toString(8)} where they are all open and the umask is 77`, async () => {
      const entries = [
        [{ name: "tree/", type: "directory", mode: 0o777 }],
        [{ name: "tree/a", mode: 0o666 }, "1"],
      ] as const;
      await extractTree(crafted(...entries), directory, options);
      expect(statSync(join(directory, "tree")).mode & 0o777).toBe(ofDirectory);
      expect(statSync(join(directory, "tree/a")).mode & 0o777).toBe(ofFile);
    });
  });

  it("names a source that is not there", async () => {
    await expect(packTree(join(directory, "absent"))).rejects.toThrow(`${join(directory, "absent")} does not exist`);
  });

  it("is not read before somebody asks for it, who then hears of a failure", async () => {
    const source = join(directory, "project");
    mkdirSync(source);
    const { stream } = await packTree(source);
    rmSync(source, { recursive: true });
    // Long enough for a look at the disk.
    await access(directory).then(() => access(directory));
    await expect(extractTree(stream, join(directory, "out"))).rejects.toMatchObject({ code: "not-found" });
  });
});

describe("what a tar stream cannot carry", () => {
  it("is left out and named, and the rest comes: names and link targets that are not UTF-8", async () => {
    const source = join(directory, "project");
    mkdirSync(join(source, "sub"), { recursive: true });
    const latin = (name: string) => Buffer.from(name, "latin1");
    const at = (name: string) => Buffer.concat([Buffer.from(`${source}/`), latin(name)]);
    writeFileSync(join(source, "sub/good"), "kept");
    writeFileSync(at("sub/b\xff"), "lost");
    mkdirSync(at("caf\xe9"));
    writeFileSync(at("caf\xe9/x"), "lost");
    symlinkSync(latin("caf\xe9"), join(source, "link"));

    expect(await treeBytes(source)).toBe(4);
    const { stream, summary } = await packTree(source);
    const result = await extractTree(stream, join(directory, "out"));
    expect(summary().skipped).toEqual([
      "project/caf\ufffd: its name is not UTF-8",
      "project/link: its target's name is not UTF-8",
      "project/sub/b\ufffd: its name is not UTF-8",
    ]);
    expect(result.files).toBe(1);
    expect(readFileSync(join(directory, "out/project/sub/good"), "utf8")).toBe("kept");
  });
});

describe("many small files", () => {
  const bytesOf = (index: number) => Buffer.alloc((index * 977) % 70_000, index);

  function makeMany(source: string): string[] {
    const names: string[] = [];
    for (let index = 0; index < 300; index += 1) {
      const name = `d${index % 7}/f${index}`;
      mkdirSync(join(source, dirname(name)), { recursive: true });
      writeFileSync(join(source, name), bytesOf(index), { mode: index % 2 === 0 ? 0o600 : 0o666 });
      names.push(name);
    }
    return names;
  }

  it("come out whole, with their modes, and go in messages as full as they can be", async () => {
    const source = join(directory, "project");
    const names = makeMany(source);
    chmodSync(join(source, "d1/f1"), 0o666);
    const { stream } = await packTree(source);
    const lengths: number[] = [];
    async function* counted() {
      for await (const piece of cut(stream)) {
        lengths.push(piece.length);
        yield piece;
      }
    }
    const { files, bytes } = await extractTree(counted(), join(directory, "out"), { links: "any" });
    expect(files).toBe(300);
    expect(bytes).toBe(names.reduce((sum, _, index) => sum + bytesOf(index).length, 0));
    for (const [index, name] of names.entries()) {
      const there = join(directory, "out/project", name);
      expect(readFileSync(there).equals(bytesOf(index))).toBe(true);
      expect(statSync(there).mode).toBe(statSync(join(source, name)).mode);
    }
    const last = lengths.pop() ?? 0;
    expect(lengths.every((length) => length === chunkBytes)).toBe(true);
    expect(last).toBeLessThanOrEqual(chunkBytes);
  });

  it("of one name: the last counts, also as something else", async () => {
    const file = (name: string, content: string) => [{ name, type: "file" as const }, content] as const;
    const stream = crafted(
      ...Array.from({ length: 30 }, (_, index) => file("x", String(index))),
      file("y", "file"),
      [{ name: "y", type: "symlink", linkname: "x" }],
      [{ name: "z", type: "symlink", linkname: "x" }],
      file("z", "file"),
    );
    await extractTree(stream, join(directory, "out"));
    expect(readFileSync(join(directory, "out/x"), "utf8")).toBe("29");
    expect(readlinkSync(join(directory, "out/y"))).toBe("x");
    expect(readFileSync(join(directory, "out/z"), "utf8")).toBe("file");
  });

  /** Puts something before each `open`; gives back what undoes it. */
  function opening(before: (path: string, mode: number) => Promise<number>): Disposable {
    const open = fs.open;
    vi.spyOn(fs, "open").mockImplementation(async (path, flags, mode) =>
      open(path, flags, await before(String(path), Number(mode))),
    );
    syncBuiltinESMExports();
    return {
      [Symbol.dispose]() {
        vi.restoreAllMocks();
        syncBuiltinESMExports();
      },
    };
  }

  it("have their modes where the directory's own rules take something of them", async () => {
    using _rules = opening(async (_path, mode) => mode & 0o700);
    await extractTree(crafted([{ name: "run", type: "file", mode: 0o755 }, "x"]), join(directory, "out"));
    expect(statSync(join(directory, "out/run")).mode & 0o777).toBe(0o755);
  });

  it("are not made at the same time when some file system takes their names for one", async () => {
    const making = new Set<string>();
    const together: string[][] = [];
    using _turns = opening(async (path, mode) => {
      making.add(basename(path));
      // Until everything that need not wait has begun, too.
      for (let turn = 0; turn < 50; turn += 1) await setImmediate();
      together.push([...making].sort());
      making.delete(basename(path));
      return mode;
    });
    const file = (name: string) => [{ name, type: "file" as const }, name] as const;
    await extractTree(crafted(file("A"), file("b"), file("a")), join(directory, "out"));
    expect(together).toEqual([["A", "b"], ["b"], ["a"]]);
  });

  it("of which one cannot be made leave nothing", async () => {
    const file = (name: string, content: string) => [{ name, type: "file" as const }, content] as const;
    const stream = crafted(
      [{ name: "taken", type: "directory" }],
      file("taken", "a file where a directory is"),
      ...Array.from({ length: 30 }, (_, index) => file(`f${index}`, String(index))),
    );
    await expect(extractTree(stream, join(directory, "out"))).rejects.toMatchObject({ code: "failed-precondition" });
    expect(existsSync(join(directory, "out"))).toBe(false);
  });
});

describe("a tree that changes while it is packed", () => {
  let source: string;

  beforeEach(() => {
    source = join(directory, "project");
    mkdirSync(join(source, "d"), { recursive: true });
    for (const name of ["a", "b", "c", "d/e"]) writeFileSync(join(source, name), name);
    symlinkSync("a", join(source, "l"));
  });
  afterEach(() => {
    vi.restoreAllMocks();
    syncBuiltinESMExports();
  });

  /** Runs `change` right after a look at `name`, before anything is done with what was seen. Of a file that is its directory's reading. */
  function afterLookAt(name: string, change: (path: string) => void): void {
    const { lstat, readdir } = fs;
    const found = join(source, name);
    const isFile = lstatSync(found).isFile();
    vi.spyOn(fs, "lstat").mockImplementation(async (path, options) => {
      const seen = await lstat(path, options);
      if (path === found && !isFile) change(found);
      return seen;
    });
    vi.spyOn(fs, "readdir").mockImplementation((async (path: string, options: object) => {
      const seen = await readdir(path, options);
      if (path === dirname(found) && isFile) change(found);
      return seen;
    }) as never);
    syncBuiltinESMExports();
  }

  async function packed() {
    const { stream, summary } = await packTree(source);
    await extractTree(stream, join(directory, "out"));
    const names = readdirSync(join(directory, "out/project"), { recursive: true }).map(String).sort();
    return { names, skipped: summary().skipped, files: summary().files };
  }

  it.each([
    ["b", ["a", "c", "d", "d/e", "l"]],
    ["d", ["a", "b", "c", "d", "l"]],
    ["d/e", ["a", "b", "c", "d", "l"]],
    ["l", ["a", "b", "c", "d", "d/e"]],
  ])("comes without %s when that is removed between a look and its reading", async (name, names) => {
    afterLookAt(name, (path) => rmSync(path, { recursive: true }));
    expect(await packed()).toEqual({ names, skipped: [], files: names.filter((one) => one !== "d").length });
  });

  it("comes without what is removed between the directory's reading and a look", async () => {
    afterLookAt("b", () => rmSync(join(source, "c")));
    expect(await packed()).toEqual({ names: ["a", "b", "d", "d/e", "l"], skipped: [], files: 4 });
  });

  it.each([
    ["a pipe", "b", (path: string) => execFileSync("mkfifo", [path])],
    ["a link", "b", (path: string) => symlinkSync("/etc/passwd", path)],
    ["a directory", "b", (path: string) => mkdirSync(path)],
    ["a file", "l", (path: string) => writeFileSync(path, "x")],
  ])("comes without what is replaced by %s, and says so", async (_, name, replace) => {
    afterLookAt(name, (path) => {
      rmSync(path);
      replace(path);
    });
    expect(await packed()).toEqual({
      names: ["a", "b", "c", "d", "d/e", "l"].filter((one) => one !== name),
      skipped: [`project/${name}: it changed while it was read`],
      files: 4,
    });
  });

  it("has a file's size and mode as they are when it is opened", async () => {
    afterLookAt("b", (path) => {
      writeFileSync(path, "longer than before");
      chmodSync(path, 0o751);
    });
    expect(await packed()).toMatchObject({ skipped: [], files: 5 });
    expect(readFileSync(join(directory, "out/project/b"), "utf8")).toBe("longer than before");
    expect(statSync(join(directory, "out/project/b")).mode & 0o777).toBe(0o751);
  });
});

describe("a tree of which not all may be read", () => {
  afterEach(() => {
    vi.restoreAllMocks();
    syncBuiltinESMExports();
  });

  /** Has the file system refuse this, as it does not for root. */
  function refuse(call: "open" | "readdir" | "lstat", refused: string): void {
    const original = fs[call] as (path: string, ...more: unknown[]) => Promise<unknown>;
    vi.spyOn(fs, call).mockImplementation((async (path: string, ...more: unknown[]) => {
      if (path !== refused) return original(path, ...more);
      throw Object.assign(new Error(`EACCES: ${path}`), { code: "EACCES", errno: -13, path });
    }) as never);
    syncBuiltinESMExports();
  }

  it.each([
    ["a file", "open", "d/b", ["a", "d"]],
    ["a directory's names", "readdir", "d", ["a", "d"]],
    ["what is in a directory", "lstat", "d/l", ["a", "d", "d/b"]],
  ] as const)("comes without %s, and says so", async (_, call, name, names) => {
    const source = join(directory, "project");
    mkdirSync(join(source, "d"), { recursive: true });
    for (const file of ["a", "d/b"]) writeFileSync(join(source, file), file);
    if (call === "lstat") symlinkSync("b", join(source, name));
    refuse(call, join(source, name));
    const { stream, summary } = await packTree(source);
    await extractTree(stream, join(directory, "out"));
    expect(readdirSync(join(directory, "out/project"), { recursive: true }).map(String).sort()).toEqual(names);
    expect(summary().skipped).toEqual([`project/${name}: it may not be read`]);
    expect(await treeBytes(source)).toBe(call === "readdir" ? 1 : 4);
  });

  it("does not come at all when that is its top", async () => {
    const source = join(directory, "project");
    mkdirSync(source);
    refuse("readdir", source);
    const { stream } = await packTree(source);
    await expect(extractTree(stream, join(directory, "out"))).rejects.toMatchObject({ code: "permission-denied" });
  });
});

describe("a directory whose mode and time may not be changed", () => {
  afterEach(() => {
    vi.restoreAllMocks();
    syncBuiltinESMExports();
  });

  /** As a volume's, which belongs to root and to our group. */
  const entries = [
    [{ name: "tree/", type: "directory", mode: 0o750 }],
    [{ name: "tree/shared/", type: "directory", mode: 0o700 }],
    [{ name: "tree/shared/a", mode: 0o640 }, "new"],
    [{ name: "tree/shared/own/", type: "directory", mode: 0o710 }],
  ] as const;
  const modeOf = (path: string) => statSync(join(directory, path)).mode & 0o777;

  function refuse(name: string): void {
    const { chmod } = fs;
    vi.spyOn(fs, "chmod").mockImplementation(async (path, mode) => {
      if (basename(String(path)) === name) throw Object.assign(new Error("EPERM"), { code: "EPERM", errno: -1, path });
      await chmod(path, mode);
    });
    syncBuiltinESMExports();
  }

  it("keeps them where it was there before, and takes what comes", async () => {
    mkdirSync(join(directory, "tree/shared"), { recursive: true });
    chmodSync(join(directory, "tree/shared"), 0o775);
    refuse("shared");
    expect(await extractTree(crafted(...entries), directory, { links: "any" })).toMatchObject({
      files: 1,
      skipped: [],
    });
    expect(readFileSync(join(directory, "tree/shared/a"), "utf8")).toBe("new");
    expect(["tree", "tree/shared", "tree/shared/own"].map(modeOf)).toEqual([0o750, 0o775, 0o710]);
  });

  it("is an error where it was made by the same stream", async () => {
    mkdirSync(join(directory, "tree/shared"), { recursive: true });
    refuse("own");
    const extracting = extractTree(crafted(...entries), directory, { links: "any" });
    await expect(extracting).rejects.toMatchObject({ code: "permission-denied" });
  });
});

describe("a file that becomes shorter while it is packed", () => {
  it("is named, and has zeros where its end was, when its size was told already", async () => {
    const source = join(directory, "log");
    writeFileSync(source, Buffer.alloc(3_000_000, "x"));
    const { stream, summary } = await packTree(source);
    async function* cutOff() {
      let seen = 0;
      for await (const chunk of stream) {
        if (seen === 0) truncateSync(source, 1_000_000);
        seen += chunk.length;
        yield chunk;
      }
    }
    await extractTree(cutOff(), join(directory, "out"));
    const expected = Buffer.alloc(3_000_000);
    expected.fill("x", 0, 1_000_000);
    expect(readFileSync(join(directory, "out/log")).equals(expected)).toBe(true);
    expect(summary().skipped).toEqual(["log: its last 2000000 bytes, cut off while it was read; zeros are there"]);
  });

  it("comes as it is then, when it is a small one", async () => {
    const source = join(directory, "log");
    writeFileSync(source, "x".repeat(5_000));
    const probe = await fs.open(source);
    const files = Object.getPrototypeOf(probe);
    await probe.close();
    const { stat } = files;
    vi.spyOn(files, "stat").mockImplementation(async function (this: fs.FileHandle) {
      const seen = await stat.call(this);
      truncateSync(source, 1_000);
      return seen;
    });
    const { stream, summary } = await packTree(source);
    await extractTree(stream, join(directory, "out"));
    vi.restoreAllMocks();
    expect(readFileSync(join(directory, "out/log"), "utf8")).toBe("x".repeat(1_000));
    expect(summary()).toMatchObject({ skipped: [], bytes: 1_000 });
  });
});

describe("what is named", () => {
  it.each([
    ["a pipe", (path: string) => execFileSync("mkfifo", [path])],
    ["a device", (path: string) => symlinkSync("/dev/null", path)],
  ])("and is %s is refused by its name, while inside a directory it is left out", async (_, make) => {
    const source = join(directory, "project");
    mkdirSync(source);
    const path = join(source, "odd");
    make(path);
    await expect(packTree(path)).rejects.toMatchObject({
      code: "invalid-argument",
      message: `${path} is not a file or a directory, and nothing else is copied`,
    });
    if (lstatSync(path).isSymbolicLink()) return;
    const { stream, summary } = await packTree(source);
    await extractTree(stream, join(directory, "out"));
    expect(summary().skipped).toEqual(["project/odd: not a file, directory or symbolic link"]);
  });

  it("is followed when it is a link, under the link's name; links inside stay links", async () => {
    const source = join(directory, "project");
    mkdirSync(source);
    writeFileSync(join(source, "file"), "content");
    symlinkSync("file", join(source, "link"));
    symlinkSync("project", join(directory, "named"));
    expect(await treeBytes(join(directory, "named"))).toBe(7);
    await extractTree((await packTree(join(directory, "named"))).stream, join(directory, "out"));
    expect(readlinkSync(join(directory, "out/named/link"))).toBe("file");
    expect(readFileSync(join(directory, "out/named/file"), "utf8")).toBe("content");

    expect(await treeBytes(join(source, "link"))).toBe(7);
    await extractTree((await packTree(join(source, "link"))).stream, join(directory, "out"));
    expect(lstatSync(join(directory, "out/link")).isFile()).toBe(true);

    symlinkSync("nowhere", join(source, "dangling"));
    await expect(packTree(join(source, "dangling"))).rejects.toThrow(`${join(source, "dangling")} does not exist`);
  });
});

describe.skipIf(process.getuid?.() !== 0)("a tree over one with another file system mounted in it", () => {
  it("arrives there too", async () => {
    const destination = join(directory, "out");
    mkdirSync(join(destination, "d/mounted"), { recursive: true });
    execFileSync("mount", ["-t", "tmpfs", "none", join(destination, "d/mounted")]);
    try {
      writeFileSync(join(destination, "d/mounted/a"), "old");
      const time = new Date("2021-03-04T05:06:07Z");
      const stream = crafted(
        [{ name: "d/mounted/a", mode: 0o751, mtime: time }, "new"],
        [{ name: "d/mounted/sub/b" }, "b"],
        [{ name: "d/mounted/link", type: "symlink", linkname: "sub/b" }],
      );
      await extractTree(stream, destination);
      const at = (path: string) => join(destination, "d/mounted", path);
      expect(readFileSync(at("a"), "utf8")).toBe("new");
      expect(statSync(at("a"))).toMatchObject({ mtime: time });
      expect(statSync(at("a")).mode & 0o777).toBe(0o751);
      expect(readlinkSync(at("link"))).toBe("sub/b");
      expect(readFileSync(at("link"), "utf8")).toBe("b");
      expect(readdirSync(at(".")).sort()).toEqual(["a", "link", "sub"]);
      expect(readdirSync(destination)).toEqual(["d"]);
    } finally {
      execFileSync("umount", [join(destination, "d/mounted")]);
    }
  });
});

describe("a hostile tar stream", () => {
  const outside = () => join(directory, "outside");
  const destination = () => join(directory, "out");

  it.each(["../outside/x", "a/../../outside/x", "/etc/x", "a/../../../x"])(
    "is refused for the name %s",
    async (name) => {
      mkdirSync(outside());
      await expect(extractTree(crafted([{ name }, "evil"]), destination())).rejects.toMatchObject({
        code: "invalid-argument",
      });
      expect(existsSync(join(outside(), "x"))).toBe(false);
    },
  );

  it("cannot write through a link that it brought", async () => {
    mkdirSync(outside());
    const stream = crafted(
      [{ name: "d", type: "symlink", linkname: "e" }],
      [{ name: "e", type: "symlink", linkname: "." }],
      [{ name: "d/x" }, "evil"],
    );
    await expect(extractTree(stream, destination(), { links: "any" })).rejects.toMatchObject({
      code: "failed-precondition",
    });
  });

  it("cannot write through a link that was there", async () => {
    mkdirSync(outside());
    mkdirSync(destination());
    symlinkSync(outside(), join(destination(), "d"));
    await expect(extractTree(crafted([{ name: "d/x" }, "evil"]), destination())).rejects.toMatchObject({
      code: "failed-precondition",
    });
    expect(existsSync(join(outside(), "x"))).toBe(false);
  });

  it.each(["/etc/passwd", "../../outside", "a/../../../x"])("leaves out a link to %s and says so", async (linkname) => {
    const result = await extractTree(crafted([{ name: "d/l", type: "symlink", linkname }]), destination());
    expect(result.skipped).toHaveLength(1);
    expect(existsSync(join(destination(), "d/l"))).toBe(false);
  });

  it.each(["up/../../../secret", "up/x/../../../../secret", "./up/..", "../d/up/../../.."])(
    "leaves out a link to %s, which is inside by its text and outside by the links on its way",
    async (linkname) => {
      writeFileSync(join(directory, "secret"), "outside");
      const stream = crafted(
        [{ name: "a/b/c/d/up", type: "symlink", linkname: "../../../.." }],
        [{ name: "a/b/c/d/l", type: "symlink", linkname }],
      );
      const result = await extractTree(stream, destination());
      expect(result.skipped).toEqual([
        `a/b/c/d/l: a link to ${linkname}, which may be outside: it goes up (..) after a name`,
      ]);
      expect(readdirSync(join(destination(), "a/b/c/d"))).toEqual(["up"]);
      expect(realpathSync(join(destination(), "a/b/c/d/up"))).toBe(realpathSync(destination()));
    },
  );

  it("brings links that go up first and stay inside, through other links too", async () => {
    const links = { "a/up": "..", "a/b/over": "../../d/x", "a/b/through": "../up/d/x", "a/b/down": ".//c" };
    const stream = crafted(
      [{ name: "d/x" }, "inside"],
      ...Object.entries(links).map(([name, linkname]) => [{ name, type: "symlink" as const, linkname }] as const),
    );
    expect((await extractTree(stream, destination())).skipped).toEqual([]);
    for (const [name, linkname] of Object.entries(links))
      expect(readlinkSync(join(destination(), name))).toBe(linkname);
    expect(readFileSync(join(destination(), "a/b/through"), "utf8")).toBe("inside");
  });

  it("leaves out devices, pipes and hard links", async () => {
    const result = await extractTree(
      crafted(
        [{ name: "null", type: "character-device", devmajor: 1, devminor: 3 }],
        [{ name: "pipe", type: "fifo" }],
        [{ name: "hard", type: "link", linkname: "/etc/passwd" }],
      ),
      destination(),
    );
    expect(result).toMatchObject({ files: 0, skipped: [expect.any(String), expect.any(String), expect.any(String)] });
  });

  it.each([{}, { name: "p" }])("leaves the destination's own mode and time alone, with %o", async (options) => {
    mkdirSync(destination());
    chmodSync(destination(), 0o700);
    const stream = crafted(
      [{ name: "./", type: "directory", mode: 0o777, mtime: new Date(0) }],
      [{ name: "p/", type: "directory", mode: 0o750, mtime: new Date(0) }],
      [{ name: "p/x" }, "x"],
    );
    await extractTree(stream, destination(), options);
    expect(statSync(destination()).mode & 0o777).toBe(0o700);
    expect(statSync(destination()).mtimeMs).not.toBe(0);
    expect(statSync(join(destination(), "p")).mode & 0o777).toBe(0o750);
    expect(statSync(join(destination(), "p")).mtimeMs).toBe(0);
  });

  it("brings no set-uid bit", async () => {
    await extractTree(crafted([{ name: "x", mode: 0o6755 }, "x"]), destination());
    expect(statSync(join(destination(), "x")).mode & 0o7777).toBe(0o755);
  });

  it.each([
    ["a directory where a file is to go", [{ name: "d/x" }, "new"], "d/x/y"],
    ["a file where a directory is to go", [{ name: "d/x/z" }, "new"], "d/x"],
  ] as const)("that meets %s changes nothing at all", async (_, blocked, there) => {
    mkdirSync(dirname(join(destination(), there)), { recursive: true });
    writeFileSync(join(destination(), there), "old");
    writeFileSync(join(destination(), "a"), "old");
    const stream = crafted([{ name: "a" }, "new"], [{ name: "b" }, "new"], [...blocked]);
    await expect(extractTree(stream, destination())).rejects.toMatchObject({
      code: "failed-precondition",
      message: `${join(destination(), "d/x")} is in the way: ${there === "d/x" ? "it is no directory, and links are not followed" : "it is a directory"}`,
    });
    expect(readFileSync(join(destination(), "a"), "utf8")).toBe("old");
    expect(readdirSync(destination()).sort()).toEqual(["a", "d"]);
  });

  it("that breaks off in a later file changes nothing of what was there and leaves nothing of its own", async () => {
    mkdirSync(join(destination(), "d"), { recursive: true });
    writeFileSync(join(destination(), "d/a"), "old");
    async function* broken() {
      yield* crafted([{ name: "d/a" }, "new"], [{ name: "d/e/b" }, "new"]);
      throw new Error("the line went dead");
    }
    async function* cutBeforeTheEnd() {
      const chunks: Uint8Array[] = [];
      for await (const chunk of crafted([{ name: "d/a" }, "new"], [{ name: "d/e/b" }, "x".repeat(5_000)]))
        chunks.push(chunk);
      yield Buffer.concat(chunks).subarray(0, 3_000);
      throw new Error("the line went dead");
    }
    for (const stream of [broken(), cutBeforeTheEnd()]) {
      await expect(extractTree(stream, destination())).rejects.toThrow();
      expect(readFileSync(join(destination(), "d/a"), "utf8")).toBe("old");
      expect([readdirSync(destination()), readdirSync(join(destination(), "d"))]).toEqual([["d"], ["a"]]);
    }
    rmSync(destination(), { recursive: true });
    await expect(extractTree(broken(), join(destination(), "x/y"))).rejects.toThrow();
    expect(existsSync(destination())).toBe(false);
  });

  it("lays a tree over one that is there, file by file", async () => {
    mkdirSync(join(destination(), "d/e"), { recursive: true });
    writeFileSync(join(destination(), "d/mine"), "stays");
    writeFileSync(join(destination(), "d/e/both"), "old");
    const stream = crafted(
      [{ name: "d/e/both" }, "new"],
      [{ name: "d/f/only" }, "new"],
      [{ name: "d/e/both" }, "newer"],
    );
    await extractTree(stream, destination());
    const read = (path: string) => readFileSync(join(destination(), path), "utf8");
    expect(["d/mine", "d/e/both", "d/f/only"].map(read)).toEqual(["stays", "newer", "new"]);
    expect(readdirSync(destination())).toEqual(["d"]);
  });

  it("that ends early is data loss and leaves no half file", async () => {
    async function* cutShort() {
      let left = 700;
      for await (const chunk of crafted([{ name: "x" }, "x".repeat(5_000)])) {
        yield chunk.subarray(0, left);
        left -= chunk.length;
        if (left <= 0) return;
      }
    }
    await expect(extractTree(cutShort(), destination())).rejects.toMatchObject({ code: "data-loss" });
    expect(existsSync(join(destination(), "x"))).toBe(false);
  });
});
