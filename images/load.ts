/** `node images/load.ts`: builds every image and puts it on every node of a cluster. */

import { applyObjects, kubectl } from "../e2e/cluster/clients.ts";
import type { ClusterProvider } from "../e2e/cluster/provider.ts";
import { selectProvider } from "../e2e/cluster/select.ts";
import { OpenShellError } from "../src/common/errors.ts";
import { type BuildOptions, type BuiltImage, buildImages } from "./build.ts";

/** In the cluster itself, so that it goes with the cluster: digest of each image that its nodes have, by name. */
const record = { namespace: "kube-system", name: "openshell-loaded-images" };

/** Builds images and puts on the nodes what they do not have yet. */
export async function loadImages(
  provider: ClusterProvider,
  options: BuildOptions = {},
): Promise<readonly BuiltImage[]> {
  const images = await buildImages(options);
  const kubeconfig = await provider.kubeconfig();
  const loaded = await readRecord(kubeconfig);
  for (const { archive, digest, name, reference } of images) {
    const known = `${reference} ${digest}`;
    if (loaded[name] === known) continue;
    await provider.loadImage(archive, reference);
    loaded[name] = known;
    options.note?.(`loaded ${reference}`);
    await applyObjects(kubeconfig, [{ apiVersion: "v1", kind: "ConfigMap", metadata: record, data: loaded }]);
  }
  return images;
}

async function readRecord(kubeconfig: string): Promise<Record<string, string>> {
  const get = ["-n", record.namespace, "get", "configmap", record.name, "--ignore-not-found", "-o", "json"];
  const text = await kubectl(kubeconfig, get);
  return text === "" ? {} : (JSON.parse(text).data ?? {});
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
