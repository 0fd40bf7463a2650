import { createHash, randomUUID } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { mkdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { type Pack, pack } from "tar-stream";
import { OpenShellError } from "../src/common/errors.ts";

/** Where a file's bytes come from. */
export type Source = { readonly file: string } | { readonly bytes: Buffer };

interface EntryOwner {
  /** Path inside the image, without a leading slash, e.g. `usr/bin/node`. */
  readonly path: string;
  /** @default 0 */
  readonly uid?: number;
  /** @default 0 */
  readonly gid?: number;
}

/** One file, directory or symbolic link of a layer. Parents that are not listed are made by whoever unpacks it (0755, root). */
export type LayerEntry = EntryOwner &
  (
    | { readonly type: "file" /** @default 0o644 */; readonly mode?: number; readonly source: Source }
    | { readonly type: "directory" /** @default 0o755 */; readonly mode?: number }
    | { readonly type: "symlink"; readonly linkname: string }
  );

export interface Layer {
  readonly entries: readonly LayerEntry[];
}

export interface ImageConfig {
  readonly entrypoint?: readonly string[];
  readonly cmd?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** `uid` or `uid:gid`. @default root */
  readonly user?: string;
  readonly workdir?: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** `port/protocol`, e.g. `8080/tcp`. */
  readonly exposedPorts?: readonly string[];
}

export interface ImageSpec {
  /** Full reference, e.g. `openshell.local/gateway:dev`: the name that nodes know the image by after import. */
  readonly name: string;
  readonly layers: readonly Layer[];
  readonly config: ImageConfig;
}

export interface WriteImageOptions {
  /** Where packed layers are kept by content. @default `$XDG_CACHE_HOME/openshell-dev/layers` */
  readonly cacheDirectory?: string;
}

interface Blob {
  /** `sha256:<hex>` */
  readonly digest: string;
  readonly size: number;
  readonly source: Source;
}

/** What tar-stream takes for an entry. */
type Header = Parameters<Pack["entry"]>[0];

/** Every time in an image is this one, so that the same input gives the same digest. */
const epoch = new Date(0);
const createdAt = "1970-01-01T00:00:00Z";

const mediaTypes = {
  index: "application/vnd.oci.image.index.v1+json",
  manifest: "application/vnd.oci.image.manifest.v1+json",
  config: "application/vnd.oci.image.config.v1+json",
  layer: "application/vnd.oci.image.layer.v1.tar",
} as const;

/**
 * Writes `spec` as an OCI image archive (a tar of an OCI image layout) that containerd, Docker and skopeo import under `spec.name`.
 * The same input gives the same bytes. Layers are stored uncompressed: nodes here read them from local disk.
 *
 * @returns the digest of the image manifest
 * @throws OpenShellError `invalid-argument` when a source file is missing or a path is not inside the image
 */
export async function writeImageArchive(
  spec: ImageSpec,
  file: string,
  options: WriteImageOptions = {},
): Promise<{ digest: string }> {
  const cache = options.cacheDirectory ?? defaultLayerCache();
  const layers: Blob[] = [];
  for (const layer of spec.layers) layers.push(await packLayer(layer, cache));

  const config = jsonBlob({
    created: createdAt,
    architecture: "amd64",
    os: "linux",
    config: {
      ...(spec.config.user === undefined ? {} : { User: spec.config.user }),
      ...(spec.config.exposedPorts === undefined
        ? {}
        : { ExposedPorts: Object.fromEntries([...spec.config.exposedPorts].sort().map((port) => [port, {}])) }),
      Env: environmentOf(spec.config.env),
      ...(spec.config.entrypoint === undefined ? {} : { Entrypoint: spec.config.entrypoint }),
      ...(spec.config.cmd === undefined ? {} : { Cmd: spec.config.cmd }),
      ...(spec.config.workdir === undefined ? {} : { WorkingDir: spec.config.workdir }),
      ...(spec.config.labels === undefined ? {} : { Labels: sortedRecord(spec.config.labels) }),
    },
    rootfs: { type: "layers", diff_ids: layers.map((layer) => layer.digest) },
    history: layers.map(() => ({ created: createdAt, created_by: "openshell images" })),
  });
  const manifest = jsonBlob({
    schemaVersion: 2,
    mediaType: mediaTypes.manifest,
    config: { mediaType: mediaTypes.config, digest: config.digest, size: config.size },
    layers: layers.map(({ digest, size }) => ({ mediaType: mediaTypes.layer, digest, size })),
  });
  const index = jsonBlob({
    schemaVersion: 2,
    mediaType: mediaTypes.index,
    manifests: [
      {
        mediaType: mediaTypes.manifest,
        digest: manifest.digest,
        size: manifest.size,
        platform: { architecture: "amd64", os: "linux" },
        annotations: {
          "io.containerd.image.name": spec.name,
          "org.opencontainers.image.ref.name": spec.name.slice(spec.name.lastIndexOf(":") + 1),
        },
      },
    ],
  });
  await writeLayout(file, index, [config, manifest, ...layers]);
  return { digest: manifest.digest };
}

/** The tar around an image: layout marker, index, then each blob once, in the order of their digests. */
async function writeLayout(file: string, index: Blob, blobs: readonly Blob[]): Promise<void> {
  const unique = [...new Map(blobs.map((blob) => [blob.digest, blob])).values()];
  unique.sort((a, b) => compare(a.digest, b.digest));
  const layout = jsonBlob({ imageLayoutVersion: "1.0.0" });
  await writeTar(file, async (tar) => {
    await addFile(tar, { name: "oci-layout", size: layout.size, mode: 0o644 }, layout.source);
    await addFile(tar, { name: "index.json", size: index.size, mode: 0o644 }, index.source);
    for (const blob of unique) {
      const name = `blobs/sha256/${blob.digest.slice("sha256:".length)}`;
      await addFile(tar, { name, size: blob.size, mode: 0o644 }, blob.source);
    }
  });
}

/** Packs a layer into the cache, or finds it there: the key covers every header and the content of every file. */
async function packLayer(layer: Layer, cache: string): Promise<Blob> {
  const entries = [...layer.entries].map(checkPath).sort((a, b) => compare(a.path, b.path));
  const headers: { header: Header; source?: Source }[] = [];
  const key = createHash("sha256");
  for (const entry of entries) {
    const header = await headerOf(entry);
    key.update(`${JSON.stringify(header)}\n`);
    if (entry.type === "file") key.update(`${await sha256(entry.source)}\n`);
    headers.push(entry.type === "file" ? { header, source: entry.source } : { header });
  }
  const file = join(cache, `${key.digest("hex")}.tar`);
  const digestFile = `${file}.sha256`;
  const known = await readFile(digestFile, "utf8").catch(() => undefined);
  if (known !== undefined) {
    const size = await stat(file).then(
      (found) => found.size,
      () => undefined,
    );
    if (size !== undefined) return { digest: known, size, source: { file } };
  }
  await writeTar(file, async (tar) => {
    for (const { header, source } of headers) await addFile(tar, header, source);
  });
  const digest = `sha256:${await sha256({ file })}`;
  await writeFile(digestFile, digest);
  return { digest, size: (await stat(file)).size, source: { file } };
}

async function headerOf(entry: LayerEntry): Promise<Header> {
  const owner = { uid: entry.uid ?? 0, gid: entry.gid ?? 0, mtime: epoch };
  switch (entry.type) {
    case "directory":
      return { name: `${entry.path}/`, type: "directory", mode: entry.mode ?? 0o755, ...owner };
    case "symlink":
      return { name: entry.path, type: "symlink", mode: 0o777, linkname: entry.linkname, ...owner };
    case "file":
      return { name: entry.path, type: "file", mode: entry.mode ?? 0o644, size: await sizeOf(entry), ...owner };
  }
}

async function sizeOf(entry: { readonly path: string; readonly source: Source }): Promise<number> {
  if ("bytes" in entry.source) return entry.source.bytes.length;
  const { file } = entry.source;
  const found = await stat(file).catch((cause: unknown) => {
    throw new OpenShellError("invalid-argument", `image file ${entry.path}: its source ${file} cannot be read`, {
      cause,
    });
  });
  return found.size;
}

function checkPath(entry: LayerEntry): LayerEntry {
  const path = entry.path.replace(/\/+$/, "");
  if (
    path === "" ||
    path.startsWith("/") ||
    path.split("/").some((part) => part === ".." || part === "." || part === "")
  ) {
    throw new OpenShellError("invalid-argument", `image path "${entry.path}" must be relative and inside the image`);
  }
  return { ...entry, path };
}

/** Writes a tar to a temporary name and renames it, so that a file under its final name is always whole. */
async function writeTar(file: string, fill: (tar: Pack) => Promise<void>): Promise<void> {
  const target = resolve(file);
  const temporary = `${target}.${randomUUID()}.tmp`;
  await mkdir(dirname(target), { recursive: true });
  const tar = pack();
  const filled = fill(tar).then(
    () => tar.finalize(),
    (error: unknown) => tar.destroy(error instanceof Error ? error : new OpenShellError("internal", String(error))),
  );
  try {
    await pipeline(tar, createWriteStream(temporary));
    await filled;
    await rename(temporary, target);
  } catch (error) {
    await rm(temporary, { force: true });
    if (error instanceof Error && "code" in error && error.code === "ENOSPC") {
      throw new OpenShellError("resource-exhausted", `no space left to write ${target}: free some and run again`, {
        cause: error,
      });
    }
    throw error;
  }
}

async function addFile(tar: Pack, header: Header, source?: Source): Promise<void> {
  const { promise, resolve: done, reject } = Promise.withResolvers<void>();
  const entry = tar.entry({ mtime: epoch, uid: 0, gid: 0, ...header }, (error) => (error ? reject(error) : done()));
  if (source === undefined) {
    await promise;
  } else if ("bytes" in source) {
    entry.end(source.bytes);
    await promise;
  } else {
    await Promise.all([pipeline(createReadStream(source.file, { highWaterMark: 1 << 20 }), entry), promise]);
  }
}

async function sha256(source: Source): Promise<string> {
  const hash = createHash("sha256");
  if ("bytes" in source) return hash.update(source.bytes).digest("hex");
  for await (const chunk of createReadStream(source.file, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer);
  return hash.digest("hex");
}

function jsonBlob(value: unknown): Blob {
  const bytes = Buffer.from(JSON.stringify(value));
  return {
    digest: `sha256:${createHash("sha256").update(bytes).digest("hex")}`,
    size: bytes.length,
    source: { bytes },
  };
}

function environmentOf(env: Readonly<Record<string, string>> = {}): string[] {
  const all = { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", ...env };
  return Object.entries(sortedRecord(all)).map(([name, value]) => `${name}=${value}`);
}

function sortedRecord(record: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(record).sort(([a], [b]) => compare(a, b)));
}

/** By code unit, whatever the locale. */
function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function defaultLayerCache(): string {
  return join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "openshell-dev", "layers");
}
