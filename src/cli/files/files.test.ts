import { createWriteStream } from "node:fs";
import {
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Header, pack } from "tar-stream";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { channelPair } from "../../boundary/index.ts";
import { OpenShellError } from "../../common/errors.ts";
import { decodeFrames, encodeFrame } from "../../common/frames.ts";
import { boundary } from "../../wire/index.ts";
import { listForPacking, packed } from "./pack.ts";
import { downloadTar, uploadTar } from "./transfer.ts";
import { unpackTo } from "./unpack.ts";

let root: string;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "openshell-files-"));
});
afterEach(() => rm(root, { recursive: true }));

type Made = Partial<Header> & { readonly name: string; readonly body?: string };

function tarOf(...entries: Made[]): AsyncIterable<Uint8Array> {
  const archive = pack();
  for (const { body, ...header } of entries) archive.entry(header, body ?? "");
  archive.finalize();
  return archive as AsyncIterable<Uint8Array>;
}

describe("packing and unpacking", () => {
  it("carries a tree with its modes, times, links and empty files", async () => {
    const from = join(root, "project");
    await mkdir(join(from, "src", "empty"), { recursive: true });
    await writeFile(join(from, "src", "run.sh"), "#!/bin/sh\n");
    await chmod(join(from, "src", "run.sh"), 0o755);
    await utimes(join(from, "src", "run.sh"), 1_000_000_000, 1_000_000_000);
    await writeFile(join(from, "nothing"), "");
    await writeFile(join(from, "big"), Buffer.alloc(3_000_000, 7));
    await symlink("src/run.sh", join(from, "link"));
    await mkdir(join(root, "to"));

    const list = await listForPacking(from);
    expect(list.bytes).toBe(3_000_010);
    const { path, skipped } = await unpackTo(packed(list), join(root, "to"));

    expect(skipped).toEqual([]);
    expect(path).toBe(join(root, "to", "project"));
    const run = await stat(join(path, "src", "run.sh"));
    expect([run.mode & 0o777, run.mtimeMs]).toEqual([0o755, 1_000_000_000_000]);
    expect((await readFile(join(path, "big"))).equals(Buffer.alloc(3_000_000, 7))).toBe(true);
    expect(await readFile(join(path, "nothing"), "utf8")).toBe("");
    expect(await readlink(join(path, "link"))).toBe("src/run.sh");
    expect((await lstat(join(path, "src", "empty"))).isDirectory()).toBe(true);
  });

  it("names a single file by its base name, and the content of `dir/.` without the directory", async () => {
    await mkdir(join(root, "dir"));
    await writeFile(join(root, "dir", "a"), "A");
    expect((await listForPacking(join(root, "dir", "a"))).entries.map(({ name }) => name)).toEqual(["a"]);
    expect((await listForPacking(`${join(root, "dir")}/.`)).entries.map(({ name }) => name)).toEqual(["a"]);
    expect((await listForPacking(join(root, "dir"))).entries.map(({ name }) => name)).toEqual(["dir", "dir/a"]);
  });

  it("says what is not there", async () => {
    await expect(listForPacking(join(root, "missing"))).rejects.toThrow("there is no file or directory");
  });

  it("fails rather than sending a file that shrank since it was listed", async () => {
    await writeFile(join(root, "shrinks"), "0123456789");
    const list = await listForPacking(join(root, "shrinks"));
    await writeFile(join(root, "shrinks"), "0");
    const read = async () => {
      for await (const _chunk of packed(list));
    };
    await expect(read()).rejects.toThrow("cannot pack");
  });
});

describe("placing a download", () => {
  it("goes into a directory that exists, and is renamed where none does", async () => {
    const first = await unpackTo(tarOf({ name: "notes.txt", body: "one" }), root);
    expect(first.path).toBe(join(root, "notes.txt"));
    const second = await unpackTo(tarOf({ name: "notes.txt", body: "two" }), join(root, "copy.txt"));
    expect(await readFile(second.path, "utf8")).toBe("two");
  });

  it("makes the directory that a trailing slash asks for", async () => {
    const { path } = await unpackTo(tarOf({ name: "notes.txt", body: "one" }), `${join(root, "new")}/`);
    expect(path).toBe(join(root, "new", "notes.txt"));
  });

  it("overwrites nothing, and leaves nothing behind when it refuses", async () => {
    await writeFile(join(root, "notes.txt"), "mine");
    await expect(unpackTo(tarOf({ name: "notes.txt", body: "theirs" }), root)).rejects.toMatchObject({
      code: "already-exists",
    });
    expect(await readFile(join(root, "notes.txt"), "utf8")).toBe("mine");
    await expect(unpackTo(tarOf(), join(root, "empty"))).rejects.toThrow("empty archive");
    expect(await (await import("node:fs/promises")).readdir(root)).toEqual(["notes.txt"]);
  });

  it("leaves nothing behind when the stream breaks off", async () => {
    async function* broken() {
      for await (const chunk of tarOf({ name: "a", body: "x".repeat(10_000) })) {
        yield chunk.subarray(0, 100);
        throw new OpenShellError("unavailable", "the connection to the sandbox was lost");
      }
    }
    await expect(unpackTo(broken(), root)).rejects.toThrow("lost");
    expect(await (await import("node:fs/promises")).readdir(root)).toEqual([]);
  });

  it("refuses bytes that are no tar", async () => {
    async function* noise() {
      yield Buffer.alloc(1024, 0xff);
    }
    await expect(unpackTo(noise(), join(root, "x"))).rejects.toMatchObject({ code: "data-loss" });
  });
});

describe("a hostile archive", () => {
  it.each([
    ["a path that climbs out", [{ name: "d/../../evil", body: "x" }]],
    ["an absolute path", [{ name: "/tmp/evil", body: "x" }]],
    ["a link that climbs out", [{ name: "d/l", type: "symlink", linkname: "../../evil" }]],
    ["an absolute link", [{ name: "d/l", type: "symlink", linkname: "/etc/passwd" }]],
    ["a link that climbs out of another link", [{ name: "d/m", type: "symlink", linkname: "x/.." }]],
    ["a hard link", [{ name: "d/h", type: "link", linkname: "/etc/passwd" }]],
    ["a device", [{ name: "d/null", type: "character-device", devmajor: 1, devminor: 3 }]],
    [
      "a file through a link",
      [
        { name: "d/here", type: "symlink", linkname: "." },
        { name: "d/here/evil", body: "x" },
      ],
    ],
  ] as [string, Made[]][])("cannot use %s", async (_what, entries) => {
    await mkdir(join(root, "in"));
    const made = tarOf({ name: "d", type: "directory" }, ...entries);
    const { skipped } = await unpackTo(made, join(root, "in"));
    expect(skipped).toHaveLength(1);
    await expect(lstat(join(root, "evil"))).rejects.toThrow("ENOENT");
    await expect(lstat(join(root, "in", "d", "evil"))).rejects.toThrow("ENOENT");
  });

  it("cannot set special modes", async () => {
    const { path } = await unpackTo(tarOf({ name: "su", body: "x", mode: 0o6755 }), root);
    expect((await stat(path)).mode & 0o7777).toBe(0o755);
  });

  it("cannot bring a second top entry along", async () => {
    await expect(unpackTo(tarOf({ name: "a", body: "1" }, { name: "b", body: "2" }), root)).rejects.toThrow(
      "more than",
    );
  });
});

describe("a transfer over a channel", () => {
  const reply = (payload: boundary.FilesReply["payload"] | { case: "summary"; value: object }) =>
    encodeFrame(boundary.FilesReplySchema, { payload } as never);

  it("sends the destination, the archive and its end, and returns what the sandbox counted", async () => {
    const [near, far] = channelPair();
    const seen: string[] = [];
    const serving = (async () => {
      for await (const { payload } of decodeFrames(boundary.FilesRequestSchema, far.readable)) {
        seen.push(payload.case === "upload" ? `upload ${payload.value.destination}` : String(payload.case));
        if (payload.case === "end") {
          await far.write(reply({ case: "summary", value: { files: 1n, bytes: 5n, path: "/sandbox/in" } }));
          far.end();
        }
      }
    })();
    const summary = await uploadTar(near, "in", tarOf({ name: "a", body: "hello" }), 5);
    expect(summary).toEqual({ files: 1, bytes: 5, path: "/sandbox/in" });
    expect([seen[0], seen[1], seen.at(-1)]).toEqual(["upload in", "data", "end"]);
    await serving.catch(() => {});
  });

  it("reports why the sandbox refused in the middle of an upload", async () => {
    const [near, far] = channelPair();
    const serving = (async () => {
      for await (const { payload } of decodeFrames(boundary.FilesRequestSchema, far.readable)) {
        if (payload.case !== "data") continue;
        await far.write(reply({ case: "failure", value: { code: 8, message: "no space left" } as never }));
        far.end();
        return;
      }
    })();
    async function* endless() {
      for (;;) yield Buffer.alloc(65536);
    }
    await expect(uploadTar(near, "/sandbox", endless())).rejects.toMatchObject({
      code: "resource-exhausted",
      message: "no space left",
    });
    await serving.catch(() => {});
  });

  it("reports what went wrong on this side of an upload", async () => {
    const [near, far] = channelPair();
    void (async () => {
      for await (const _request of far.readable);
    })().catch(() => far.end());
    async function* broken() {
      yield Buffer.alloc(10);
      throw new OpenShellError("aborted", "the file changed");
    }
    await expect(uploadTar(near, "/sandbox", broken())).rejects.toThrow("the file changed");
  });

  it("yields a download and then its summary", async () => {
    const [near, far] = channelPair();
    void (async () => {
      for await (const { payload } of decodeFrames(boundary.FilesRequestSchema, far.readable)) {
        if (payload.case !== "download") continue;
        for await (const chunk of tarOf({ name: "a", body: "hello" })) {
          await far.write(reply({ case: "data", value: chunk } as never));
        }
        await far.write(
          reply({ case: "summary", value: { files: 1n, bytes: 5n, path: `/sandbox/${payload.value.source}` } }),
        );
        far.end();
      }
    })().catch(() => {});
    const download = downloadTar(near, "a");
    const file = createWriteStream(join(root, "out.tar"));
    for await (const chunk of download.tar) file.write(chunk);
    file.end();
    expect(download.summary()).toEqual({ files: 1, bytes: 5, path: "/sandbox/a" });
  });

  it("is no success when the channel ends without a summary", async () => {
    const [near, far] = channelPair();
    far.end();
    const read = async () => {
      for await (const _chunk of downloadTar(near, "a").tar);
    };
    await expect(read()).rejects.toMatchObject({ code: "unavailable" });
  });
});
