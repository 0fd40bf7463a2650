import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import { helm, helmPrograms, template } from "./_helm.ts";
import { synthesize } from "./chart.ts";
import { chartArchive, ociLayout } from "./oci.ts";

vi.setConfig({ testTimeout: 120_000 });

const files = synthesize();
const archive = await chartArchive(files);

describe("the package", () => {
  it("is the same bytes from the same sources", async () => {
    expect((await chartArchive(new Map([...files].reverse()))).equals(archive)).toBe(true);
  });

  it.skipIf(helmPrograms.length === 0)(
    "is what Helm takes for this version, and renders as the committed chart",
    () => {
      const [program = ""] = helmPrograms;
      const folder = mkdtempSync(join(tmpdir(), "openshell-package-"));
      try {
        const path = join(folder, "chart.tgz");
        writeFileSync(path, archive);
        expect(helm(program, "show", "chart", path).stdout).toContain(`version: ${packageJson.version}`);
        expect(template(program, { chart: path })).toBe(template(program));
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    },
  );
});

describe("the OCI layout", () => {
  const layout = ociLayout(files, archive);
  const blob = (digest: string) => layout.get(`blobs/${digest.replace(":", "/")}`) ?? Buffer.alloc(0);
  const read = (content: Buffer | undefined) => JSON.parse(String(content));

  it("names every blob by its content", () => {
    for (const [path, content] of layout) {
      if (path.startsWith("blobs/"))
        expect(path).toBe(`blobs/sha256/${createHash("sha256").update(content).digest("hex")}`);
    }
  });

  it("has one manifest, of Helm's types, under the version", () => {
    const [entry, ...others] = read(layout.get("index.json")).manifests;
    expect(others).toEqual([]);
    expect(entry.annotations).toEqual({ "org.opencontainers.image.ref.name": packageJson.version });
    const manifest = read(blob(entry.digest));
    expect(entry.size).toBe(blob(entry.digest).length);
    expect(manifest.config.mediaType).toBe("application/vnd.cncf.helm.config.v1+json");
    expect(manifest.layers).toHaveLength(1);
    expect(manifest.layers[0].mediaType).toBe("application/vnd.cncf.helm.chart.content.v1.tar+gzip");
    expect(blob(manifest.layers[0].digest).equals(archive)).toBe(true);
    expect(read(blob(manifest.config.digest))).toMatchObject({
      name: "openshell",
      version: packageJson.version,
      appVersion: packageJson.version,
    });
  });
});
