/** `npm run package`: writes dist/charts/<chart>-<version>.tgz and, in dist/charts/oci/<chart>, an OCI image layout to push with any tool. */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { synthesize } from "./chart.ts";
import { chartArchive, chartMetadata, ociLayout } from "./oci.ts";
import { synthesizeWorkspace } from "./workspace/chart.ts";

const root = join(import.meta.dirname, "..", "..");
const target = join(root, "dist", "charts");

rmSync(target, { recursive: true, force: true });
for (const files of [synthesize(), synthesizeWorkspace()]) {
  const { name, version } = chartMetadata(files);
  const archive = await chartArchive(files);
  const archivePath = join(target, `${name}-${version}.tgz`);
  const layoutPath = join(target, "oci", name);
  write(archivePath, archive);
  for (const [path, content] of ociLayout(files, archive)) write(join(layoutPath, path), content);
  process.stdout.write(`${relative(root, archivePath)}\n${relative(root, layoutPath)}\n`);
}

function write(path: string, content: Buffer): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
}
