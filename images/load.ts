/** `node images/load.ts`: builds every image and puts it on every node of a cluster. */

import type { ClusterProvider } from "../e2e/cluster/provider.ts";
import { selectProvider } from "../e2e/cluster/select.ts";
import { OpenShellError } from "../src/common/errors.ts";
import { type BuildOptions, type BuiltImage, buildImages } from "./build.ts";

/** Builds and loads images. The provider is asked for each, since a node may have been added since the last time. */
export async function loadImages(
  provider: ClusterProvider,
  options: BuildOptions = {},
): Promise<readonly BuiltImage[]> {
  const images = await buildImages(options);
  for (const { archive, reference } of images) {
    await provider.loadImage(archive, reference);
    options.note?.(`loaded ${reference}`);
  }
  return images;
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
