/** `node images/load.ts`: builds every image and puts it on every node of a cluster. */

import { applyObjects, kubectl } from "../e2e/cluster/clients.ts";
import type { ClusterProvider } from "../e2e/cluster/provider.ts";
import { selectProvider } from "../e2e/cluster/select.ts";
import { OpenShellError } from "../src/common/errors.ts";
import { type BuildOptions, type BuiltImage, buildImages } from "./build.ts";

/** Of each image, by name, what was loaded and on which nodes. */
type Loaded = Readonly<Record<string, string>>;

/** Where that is kept: in the cluster itself, so that it goes with the cluster. Tests put their own in its place. */
const inCluster = { read: readRecord, write: writeRecord };

/** Builds images and puts on the nodes what they do not have yet. */
export async function loadImages(
  provider: Pick<ClusterProvider, "name" | "kubeconfig" | "loadImage" | "nodes">,
  options: BuildOptions = {},
  record: typeof inCluster = inCluster,
): Promise<readonly BuiltImage[]> {
  const images = await buildImages(options);
  const kubeconfig = await provider.kubeconfig();
  // Somebody's cluster is not ours to keep notes in, and may lose an image without our knowing.
  const isRecorded = provider.name !== "kubeconfig";
  const nodes = isRecorded ? (await provider.nodes()).map((node) => node.name).sort() : [];
  let loaded = isRecorded ? await record.read(kubeconfig) : {};
  for (const { archive, digest, name, reference } of images) {
    const known = [reference, digest, ...nodes].join(" ");
    if (loaded[name] === known) continue;
    await provider.loadImage(archive, reference);
    options.note?.(`loaded ${reference}`);
    loaded = { ...loaded, [name]: known };
    if (isRecorded) await record.write(kubeconfig, loaded);
  }
  return images;
}

const metadata = { namespace: "kube-system", name: "openshell-loaded-images" };

async function readRecord(kubeconfig: string): Promise<Loaded> {
  const get = ["-n", metadata.namespace, "get", "configmap", metadata.name, "--ignore-not-found", "-o", "json"];
  const text = await kubectl(kubeconfig, get);
  return text === "" ? {} : (JSON.parse(text).data ?? {});
}

async function writeRecord(kubeconfig: string, data: Loaded): Promise<void> {
  await applyObjects(kubeconfig, [{ apiVersion: "v1", kind: "ConfigMap", metadata, data }]);
}

if (import.meta.main) {
  try {
    const provider = await selectProvider(process.env.OPENSHELL_PROVIDER);
    await loadImages(provider, { note: (line) => process.stderr.write(`${line}\n`) });
  } catch (error) {
    process.stderr.write(`images: ${OpenShellError.from(error).message}\n`);
    process.exitCode = 1;
  }
}
