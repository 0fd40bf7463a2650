import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { extract } from "tar-stream";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type ImageSpec, writeImageArchive } from "./oci.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "oci-"));
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

interface Unpacked {
  readonly name: string;
  readonly mode: number;
  readonly uid: number;
  readonly mtime: number;
  readonly linkname: string | undefined;
  readonly bytes: Buffer;
}

async function unpack(tar: Buffer): Promise<Unpacked[]> {
  const entries: Unpacked[] = [];
  const reader = extract();
  Readable.from([tar]).pipe(reader);
  for await (const entry of reader) {
    const chunks: Buffer[] = [];
    for await (const chunk of entry) chunks.push(chunk as Buffer);
    const { name, mode = 0, uid = 0, mtime, linkname } = entry.header;
    entries.push({
      name,
      mode,
      uid,
      mtime: mtime?.getTime() ?? -1,
      linkname: linkname ?? undefined,
      bytes: Buffer.concat(chunks),
    });
  }
  return entries;
}

function specOf(file: string): ImageSpec {
  return {
    name: "openshell.local/example:dev",
    layers: [
      {
        entries: [
          { type: "symlink", path: "bin/sh", linkname: "busybox" },
          { type: "file", path: "bin/busybox", mode: 0o755, uid: 7, source: { file } },
          { type: "directory", path: "tmp", mode: 0o1777 },
        ],
      },
    ],
    config: { entrypoint: ["/bin/sh"], env: { B: "2", A: "1" }, user: "10001:10001", exposedPorts: ["8080/tcp"] },
  };
}

async function write(name: string): Promise<{ digest: string; entries: Unpacked[]; bytes: Buffer }> {
  const source = join(directory, "source");
  await writeFile(source, "busybox's bytes");
  const archive = join(directory, name);
  const { digest } = await writeImageArchive(specOf(source), archive, { cacheDirectory: join(directory, "layers") });
  const bytes = await readFile(archive);
  return { digest, entries: await unpack(bytes), bytes };
}

function jsonOf(entries: readonly Unpacked[], digest: string): Record<string, unknown> {
  return JSON.parse(blobOf(entries, digest).toString());
}

function blobOf(entries: readonly Unpacked[], digest: string): Buffer {
  const found = entries.find((entry) => entry.name === `blobs/sha256/${digest.replace("sha256:", "")}`);
  if (found === undefined) throw new Error(`no blob ${digest}`);
  return found.bytes;
}

describe("an image archive", () => {
  test("names its image the way containerd's import reads it", async () => {
    const { entries, digest } = await write("a.tar");
    expect(entries.map((entry) => entry.name).slice(0, 2)).toEqual(["oci-layout", "index.json"]);
    const index = JSON.parse(entries[1]?.bytes.toString() ?? "");
    expect(index.manifests).toHaveLength(1);
    expect(index.manifests[0].digest).toBe(digest);
    expect(index.manifests[0].annotations).toEqual({
      "io.containerd.image.name": "openshell.local/example:dev",
      "org.opencontainers.image.ref.name": "dev",
    });
  });

  test("has its layer's digest as diff id and the config's fields in the runtime's spelling", async () => {
    const { entries, digest } = await write("a.tar");
    const manifest = jsonOf(entries, digest) as {
      layers: { digest: string; size: number }[];
      config: { digest: string };
    };
    const config = jsonOf(entries, manifest.config.digest) as { rootfs: { diff_ids: string[] }; config: unknown };
    expect(config.rootfs.diff_ids).toEqual(manifest.layers.map((layer) => layer.digest));
    expect(config.config).toMatchObject({
      Entrypoint: ["/bin/sh"],
      User: "10001:10001",
      ExposedPorts: { "8080/tcp": {} },
      Env: ["A=1", "B=2", expect.stringMatching(/^PATH=/)],
    });
  });

  test("keeps modes, owners and links, sorts entries and fixes times", async () => {
    const { entries, digest } = await write("a.tar");
    const manifest = jsonOf(entries, digest) as { layers: { digest: string }[] };
    const layer = await unpack(blobOf(entries, manifest.layers[0]?.digest ?? ""));
    expect(layer.map(({ name, mode, uid, linkname, mtime }) => ({ name, mode, uid, linkname, mtime }))).toEqual([
      { name: "bin/busybox", mode: 0o755, uid: 7, linkname: undefined, mtime: 0 },
      { name: "bin/sh", mode: 0o777, uid: 0, linkname: "busybox", mtime: 0 },
      { name: "tmp/", mode: 0o1777, uid: 0, linkname: undefined, mtime: 0 },
    ]);
    expect(layer[0]?.bytes.toString()).toBe("busybox's bytes");
  });

  test("is the same bytes when written again, from the cache or without it", async () => {
    const first = await write("a.tar");
    const cached = await write("b.tar");
    await rm(join(directory, "layers"), { recursive: true });
    const afresh = await write("c.tar");
    expect(cached.bytes.equals(first.bytes)).toBe(true);
    expect(afresh.bytes.equals(first.bytes)).toBe(true);
  });

  test("changes its digest when only the content of a source file changed", async () => {
    const first = await write("a.tar");
    const source = join(directory, "source");
    await writeFile(source, "busybox's bytez");
    const second = await writeImageArchive(specOf(source), join(directory, "b.tar"), {
      cacheDirectory: join(directory, "layers"),
    });
    expect(second.digest).not.toBe(first.digest);
  });

  test("refuses a missing source and leaves nothing under the final name", async () => {
    const archive = join(directory, "a.tar");
    await expect(writeImageArchive(specOf("/does/not/exist"), archive)).rejects.toThrow(
      "image file bin/busybox: its source /does/not/exist cannot be read",
    );
    await expect(readFile(archive)).rejects.toThrow("ENOENT");
  });

  test.each(["/etc/passwd", "../up", "a//b", ""])("refuses the path %j", async (path) => {
    const spec: ImageSpec = { name: "x:y", layers: [{ entries: [{ type: "directory", path }] }], config: {} };
    await expect(writeImageArchive(spec, join(directory, "a.tar"))).rejects.toThrow(
      "must be relative and inside the image",
    );
  });
});
