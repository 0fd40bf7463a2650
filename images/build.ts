/** `node images/build.ts`: builds the images without Docker, into OCI archives. */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { readFile, stat, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { OpenShellError } from "../src/common/errors.ts";
import { bundle, bundleNative, type ProgramName } from "./bundles.ts";
import { type ImageSpec, writeImageArchive } from "./oci.ts";
import { type ImageName, imageNames, type References, referenceOf, shippedImages } from "./references.ts";
import { type BuildContext, gatewayImage, runtimeImage, supervisorImage } from "./shipped.ts";
import { busyboxImage, glibcImage, noshellImage } from "./workload-images.ts";

export interface BuildOptions extends References {
  /** @default all */
  readonly names?: readonly ImageName[];
  /** Where archives and bundles go. @default the cache directory */
  readonly out?: string;
  /** What is kept between builds. @default `$XDG_CACHE_HOME/openshell-dev/images` */
  readonly cache?: string;
  /** Told what is done, a line each. */
  readonly note?: (line: string) => void;
}

export interface BuiltImage {
  readonly name: ImageName;
  readonly reference: string;
  /** Path of the OCI archive. */
  readonly archive: string;
  /** Digest of the image's manifest. */
  readonly digest: string;
  /** False when the archive of an earlier build was still right. */
  readonly changed: boolean;
}

type Recipe = (reference: string, context: BuildContext) => Promise<ImageSpec>;

const recipes: Readonly<Record<ImageName, Recipe>> = {
  gateway: gatewayImage,
  supervisor: supervisorImage,
  runtime: runtimeImage,
  busybox: busyboxImage,
  glibc: glibcImage,
  noshell: noshellImage,
};

/** Fails where the images cannot be built: they are made of the programs of the machine that builds them. */
export function checkBuildMachine({ platform, arch }: Pick<NodeJS.Process, "platform" | "arch"> = process): void {
  if (platform === "linux" && arch === "x64") return;
  throw new OpenShellError(
    "failed-precondition",
    `the images are made of this machine's own programs, for linux/amd64, and this is ${platform}/${arch}: use a Linux machine or a virtual one of that kind`,
  );
}

/** Builds images; one whose content did not change is left as it is. */
export async function buildImages(options: BuildOptions = {}): Promise<readonly BuiltImage[]> {
  checkBuildMachine();
  const cache = options.cache ?? defaultCache();
  const out = resolve(options.out ?? cache);
  const context: BuildContext = { cache, bundles: join(out, "bundles") };
  const built: BuiltImage[] = [];
  for (const name of options.names ?? imageNames) {
    const started = performance.now();
    const reference = referenceOf(name, options);
    const image = await buildOne(name, reference, await recipes[name](reference, context), out, cache);
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    options.note?.(`${image.changed ? "built" : "unchanged"} ${reference} ${image.digest.slice(0, 19)} (${seconds} s)`);
    built.push(image);
  }
  return built;
}

/** Writes only the programs' bundles, for the Dockerfiles. */
export async function buildBundles(directory: string): Promise<readonly string[]> {
  const files: string[] = [];
  for (const name of shippedImages) files.push(await bundle(name satisfies ProgramName, directory));
  return [...files, await bundleNative(directory)];
}

async function buildOne(
  name: ImageName,
  reference: string,
  spec: ImageSpec,
  out: string,
  cache: string,
): Promise<BuiltImage> {
  const archive = join(out, `${name}.tar`);
  const record = `${archive}.json`;
  const key = await contentKey(spec);
  const before: { key?: unknown; digest?: unknown } = await readFile(record, "utf8").then(JSON.parse, () => ({}));
  const exists = await stat(archive).then(
    () => true,
    () => false,
  );
  if (exists && before.key === key && typeof before.digest === "string") {
    return { name, reference, archive, digest: before.digest, changed: false };
  }
  const { digest } = await writeImageArchive(spec, archive, { cacheDirectory: join(cache, "layers") });
  await writeFile(record, JSON.stringify({ key, digest }));
  return { name, reference, archive, digest, changed: true };
}

/** Changes when anything in the image does. */
async function contentKey(spec: ImageSpec): Promise<string> {
  const key = createHash("sha256").update(JSON.stringify([spec.name, spec.config]));
  for (const layer of spec.layers) {
    for (const entry of layer.entries) {
      if (entry.type !== "file") {
        key.update(JSON.stringify(entry));
        continue;
      }
      const { source, ...header } = entry;
      key.update(JSON.stringify(header)).update("bytes" in source ? source.bytes : await digestOf(source.file));
    }
  }
  return key.digest("hex");
}

const digests = new Map<string, Promise<string>>();

/** Digest of a file, once for each of its versions: Node is in three images. */
async function digestOf(file: string): Promise<string> {
  const { size, mtimeMs } = await stat(file);
  const version = `${file} ${size} ${mtimeMs}`;
  const known = digests.get(version) ?? hashFile(file);
  digests.set(version, known);
  return known;
}

async function hashFile(file: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer);
  return hash.digest("hex");
}

function defaultCache(): string {
  return join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "openshell-dev", "images");
}

const usage = `usage: node images/build.ts [--out DIR] [--registry HOST] [--tag TAG] [--bundles DIR] [${imageNames.join("|")}]...

Builds the images (all without names) as OCI archives and prints: reference, digest, archive.
--bundles writes only the programs' bundles, which the Dockerfiles use.
`;

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      out: { type: "string" },
      registry: { type: "string" },
      tag: { type: "string" },
      bundles: { type: "string" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) {
    process.stdout.write(usage);
    return;
  }
  if (values.bundles !== undefined) {
    for (const file of await buildBundles(resolve(values.bundles))) process.stdout.write(`${file}\n`);
    return;
  }
  const names = positionals.map((word): ImageName => {
    const name = imageNames.find((known) => known === word);
    if (name === undefined) {
      throw new OpenShellError("invalid-argument", `there is no image "${word}": ${imageNames.join(", ")}`);
    }
    return name;
  });
  const images = await buildImages({
    ...(names.length > 0 ? { names } : {}),
    ...(values.out === undefined ? {} : { out: values.out }),
    ...(values.registry === undefined ? {} : { registry: values.registry }),
    ...(values.tag === undefined ? {} : { tag: values.tag }),
    note: (line) => process.stderr.write(`${line}\n`),
  });
  for (const { reference, digest, archive } of images) process.stdout.write(`${reference} ${digest} ${archive}\n`);
}

if (import.meta.main) {
  try {
    await main();
  } catch (error) {
    process.stderr.write(`images: ${OpenShellError.from(error).message}\n`);
    process.exitCode = 1;
  }
}
