import { access, copyFile, link, mkdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { type LayerEntry, writeImageArchive } from "../../../images/oci.ts";
import { run } from "../exec.ts";
import { type Context, updateState } from "./context.ts";
import { pauseImage } from "./node-config.ts";
import { programPath } from "./programs.ts";

export const busyboxImage = "openshell.local/busybox:dev";
export const corednsImage = "openshell.local/coredns:dev";

/** Writes the archives of the cluster's own images. */
export async function makeBaseImages(context: Context): Promise<void> {
  const program = (path: string, name: Parameters<typeof programPath>[0]): LayerEntry => ({
    type: "file",
    path,
    mode: 0o755,
    source: { file: programPath(name) },
  });
  const images = [
    { name: pauseImage, entries: [program("pause", "pause")], config: { entrypoint: ["/pause"], user: "65535:65535" } },
    { name: busyboxImage, entries: await busyboxEntries(), config: { cmd: ["/bin/sh"] } },
    { name: corednsImage, entries: [program("coredns", "coredns")], config: { entrypoint: ["/coredns"] } },
  ];
  for (const { name, entries, config } of images) {
    const archive = archiveName(name);
    const file = join(context.layout.files.images, archive);
    if (context.state.images[name] !== undefined && (await exists(file))) continue;
    await writeImageArchive({ name, layers: [{ entries }], config }, file);
    await updateState(context, { images: { ...context.state.images, [name]: archive } });
  }
}

/** A system that holds nothing but busybox. */
async function busyboxEntries(): Promise<readonly LayerEntry[]> {
  const applets = (await run("/usr/bin/busybox", ["--list"])).trim().split("\n");
  const text = (path: string, content: string): LayerEntry => ({
    type: "file",
    path,
    source: { bytes: Buffer.from(content) },
  });
  return [
    { type: "file", path: "bin/busybox", mode: 0o755, source: { file: "/usr/bin/busybox" } },
    ...applets
      .filter((name) => name !== "busybox")
      .map((name): LayerEntry => ({ type: "symlink", path: `bin/${name}`, linkname: "busybox" })),
    { type: "directory", path: "tmp", mode: 0o1777 },
    { type: "directory", path: "root", mode: 0o700 },
    text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    text("etc/group", "root:x:0:\nnobody:x:65534:\n"),
  ];
}

/** Keeps an archive with the cluster, so that nodes that are added later have the image too. */
export async function keepArchive(context: Context, archive: string, ref: string): Promise<string> {
  const name = archiveName(ref);
  const kept = join(context.layout.files.images, name);
  const fresh = `${kept}.new`;
  await mkdir(context.layout.files.images, { recursive: true });
  await rm(fresh, { force: true });
  // A hard link would follow a rewrite in place; archives are replaced by rename, so it is safe where the file system allows it.
  await link(archive, fresh).catch(() => copyFile(archive, fresh));
  await rename(fresh, kept);
  await updateState(context, { images: { ...context.state.images, [ref]: name } });
  return kept;
}

/** Puts every image of the cluster on a node that does not have it yet. */
export async function importImages(context: Context, holder: number): Promise<void> {
  const present = new Set((await ctr(holder, ["images", "list", "-q"])).split("\n"));
  for (const [ref, archive] of Object.entries(context.state.images)) {
    if (!present.has(ref)) await importImage(holder, join(context.layout.files.images, archive), ref);
  }
}

/** Imports one archive on one node under `ref`, whatever name the archive gives. */
export async function importImage(holder: number, archive: string, ref: string): Promise<void> {
  // Left to the daemon it takes twice as long, and does not say which names there were.
  const said = await ctr(holder, ["images", "import", "--local", "-"], { file: archive });
  const named = [...said.matchAll(/^unpacking (\S+) \(/gm)]
    .map((match) => match[1])
    .filter((name) => name !== undefined);
  const [first] = named;
  if (named.includes(ref) || first === undefined) return;
  await ctr(holder, ["images", "tag", "--force", first, ref]);
}

async function ctr(holder: number, args: readonly string[], input?: { readonly file: string }): Promise<string> {
  return run(
    "nsenter",
    [`--target=${holder}`, "--mount", "--", programPath("ctr"), "--namespace=k8s.io", ...args],
    input === undefined ? {} : { input },
  );
}

function archiveName(ref: string): string {
  return `${ref.replaceAll(/[^\w.-]/g, "_")}.tar`;
}

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}
