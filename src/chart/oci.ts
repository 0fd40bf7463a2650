/** The chart as a package: what `helm install` takes from a file or from a registry. Equal sources give equal bytes. */
import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";
import { pack } from "tar-stream";
import { parse } from "yaml";

/** Files by path, as `synthesize()` gives them. */
export type ChartFiles = ReadonlyMap<string, string>;

/** The .tgz that Helm reads: everything below a folder with the chart's name, Chart.yaml first. */
export async function chartArchive(files: ChartFiles): Promise<Buffer> {
  const { name } = chartMetadata(files);
  const archive = pack();
  const paths = [...files.keys()].sort((one, other) => order(one) - order(other) || (one < other ? -1 : 1));
  for (const path of paths) {
    archive.entry({ name: `${name}/${path}`, mode: 0o644, mtime: new Date(0) }, files.get(path) ?? "");
  }
  archive.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of archive) chunks.push(chunk as Buffer);
  return gzipSync(Buffer.concat(chunks), { level: 9 });
}

const order = (path: string) => ["Chart.yaml", "values.yaml", "values.schema.json"].indexOf(path) >>> 0;

/** What Chart.yaml says. */
export function chartMetadata(files: ChartFiles): { readonly name: string; readonly version: string } {
  return parse(files.get("Chart.yaml") ?? "");
}

const mediaTypes = {
  manifest: "application/vnd.oci.image.manifest.v1+json",
  config: "application/vnd.cncf.helm.config.v1+json",
  content: "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
} as const;

/** An OCI image layout with the chart under its version: files by path. It has no time in it. */
export function ociLayout(files: ChartFiles, archive: Buffer): ReadonlyMap<string, Buffer> {
  const metadata = chartMetadata(files);
  const layout = new Map<string, Buffer>([["oci-layout", json({ imageLayoutVersion: "1.0.0" })]]);
  const add = (mediaType: string, content: Buffer) => {
    const hash = createHash("sha256").update(content).digest("hex");
    layout.set(`blobs/sha256/${hash}`, content);
    return { mediaType, digest: `sha256:${hash}`, size: content.length };
  };
  const { name, version } = metadata;
  const manifest = add(
    mediaTypes.manifest,
    json({
      schemaVersion: 2,
      mediaType: mediaTypes.manifest,
      config: add(mediaTypes.config, json(metadata)),
      layers: [add(mediaTypes.content, archive)],
      annotations: { "org.opencontainers.image.title": name, "org.opencontainers.image.version": version },
    }),
  );
  // A tag may not have the + of a version.
  const tag = version.replaceAll("+", "_");
  layout.set(
    "index.json",
    json({
      schemaVersion: 2,
      mediaType: "application/vnd.oci.image.index.v1+json",
      manifests: [{ ...manifest, annotations: { "org.opencontainers.image.ref.name": tag } }],
    }),
  );
  return layout;
}

const json = (value: unknown) => Buffer.from(JSON.stringify(value));
