import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { buildImages, checkBuildMachine } from "./build.ts";
import { bundle } from "./bundles.ts";
import { referenceOf, shippedImages } from "./references.ts";

let directory: string;

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), "images-"));
});

afterAll(() => rmSync(directory, { recursive: true }));

describe("the image build", () => {
  it("gives equal digests for equal input, whatever was cached", async () => {
    const names = ["busybox", "noshell"] as const;
    const first = await buildImages({ names, out: join(directory, "a"), cache: join(directory, "cache-a") });
    const second = await buildImages({ names, out: join(directory, "b"), cache: join(directory, "cache-b") });
    expect(second.map((image) => image.digest)).toEqual(first.map((image) => image.digest));
    expect(readFileSync(join(directory, "a", "noshell.tar"))).toEqual(
      readFileSync(join(directory, "b", "noshell.tar")),
    );
  }, 60_000);

  it("leaves an archive that is still right, and writes it again under another reference", async () => {
    const options = { names: ["busybox"], out: join(directory, "c"), cache: join(directory, "cache-a") } as const;
    const changes = [];
    for (const tag of ["dev", "dev", "next"]) changes.push((await buildImages({ ...options, tag }))[0]?.changed);
    expect(changes).toEqual([true, false, true]);
  }, 60_000);

  it("names images by group, in the registry that the test cluster's nodes get them from", () => {
    vi.stubEnv("OPENSHELL_TEST_REGISTRY", "");
    expect(referenceOf("gateway")).toBe("openshell.local/openshell/gateway:dev");
    vi.stubEnv("OPENSHELL_TEST_REGISTRY", "r.example/team");
    expect(referenceOf("gateway")).toBe("r.example/team/openshell/gateway:dev");
    vi.unstubAllEnvs();
    expect(referenceOf("busybox", { registry: "r.example", tag: "1" })).toBe("r.example/workload/busybox:1");
  });

  it.each([
    ["darwin", "arm64"],
    ["linux", "arm64"],
  ] as const)("is refused on %s/%s, whose programs no node of a test cluster runs", (platform, arch) => {
    expect(() => checkBuildMachine({ platform, arch })).toThrow(
      `for linux/amd64, and this is ${platform}/${arch}: use`,
    );
  });

  it("keeps the Kubernetes client and schema checks out of the supervisor", async () => {
    const text = readFileSync(await bundle("supervisor", join(directory, "bundles")), "utf8");
    expect(text.length).toBeLessThan(1_000_000);
    expect(text).not.toMatch(/ZodObject|KubeConfig/);
  }, 60_000);

  it("makes bundles that start: without settings the supervisor says what is missing and exits 2", async () => {
    const script = await bundle("supervisor", join(directory, "bundles"));
    const node = fileURLToPath(new URL("../node_modules/node/bin/node", import.meta.url));
    const outcome = (() => {
      try {
        return { status: 0, stderr: execFileSync(node, [script], { env: {}, stdio: "pipe" }).toString() };
      } catch (error) {
        return error as { status: number; stderr: Buffer };
      }
    })();
    expect(outcome.status).toBe(2);
    expect(outcome.stderr.toString()).toMatch(/OPENSHELL_GATEWAY_ENDPOINT is not set/);
  }, 60_000);

  it("has a Dockerfile for each shipped image that copies the same bundle and starts the same way", () => {
    for (const name of shippedImages) {
      const text = readFileSync(new URL(`${name}/Dockerfile`, import.meta.url), "utf8");
      expect(text).toMatch(/COPY .*dist\/bundles\//);
      expect(text).toMatch(/^ENTRYPOINT \[/m);
      expect(text).toMatch(/^USER 65532:65532$/m);
    }
  });
});
