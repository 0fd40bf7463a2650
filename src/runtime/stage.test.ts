import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createLogger } from "../common/log.ts";
import { stage } from "./stage.ts";

const log = createLogger({ name: "test", level: "error" });
let directory: string;
let environment: Record<string, string>;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "openshell-stage-"));
  environment = {
    OPENSHELL_BUNDLE_SOURCE: join(directory, "image"),
    OPENSHELL_BUNDLE_TARGET: join(directory, "bundle"),
    OPENSHELL_IDENTITY_SOURCE: join(directory, "secret"),
    OPENSHELL_IDENTITY_TARGET: join(directory, "identity"),
  };
  mkdirSync(join(directory, "image/bin"), { recursive: true });
  mkdirSync(join(directory, "bundle"));
  writeFileSync(join(directory, "image/bin/node"), "node", { mode: 0o755 });
  symlinkSync("bin/node", join(directory, "image/short"));
  // As the kubelet lays out a Secret.
  mkdirSync(join(directory, "secret/..data"), { recursive: true });
  for (const name of ["tls.crt", "tls.key", "generation.pub", "boundary-ca.crt", "identity.json"]) {
    writeFileSync(join(directory, "secret/..data", name), `content of ${name}`, { mode: 0o440 });
    symlinkSync(`..data/${name}`, join(directory, "secret", name));
  }
});
afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

describe("staging", () => {
  it("copies bundle and identity, which only its user can read, and may be repeated", async () => {
    await stage(environment, log);
    expect(await stage(environment, log)).toBe(0);
    expect(statSync(join(directory, "bundle/bin/node")).mode & 0o777).toBe(0o755);
    expect(readFileSync(join(directory, "bundle/short"), "utf8")).toBe("node");
    expect(readFileSync(join(directory, "identity/tls.key"), "utf8")).toBe("content of tls.key");
    expect(statSync(join(directory, "identity/tls.key")).mode & 0o777).toBe(0o600);
    expect(readFileSync(join(directory, "bundle/etc/passwd"), "utf8")).toContain(`sandbox:x:${process.getuid?.()}:`);
  });

  it("leaves the bundle to an image volume when told to", async () => {
    rmSync(join(directory, "bundle"), { recursive: true });
    await stage({ ...environment, OPENSHELL_STAGE: "identity" }, log);
    expect(() => statSync(join(directory, "bundle"))).toThrow("ENOENT");
  });

  it("names what is missing", async () => {
    rmSync(join(directory, "secret/tls.key"));
    await expect(stage(environment, log)).rejects.toMatchObject({
      code: "failed-precondition",
      message: expect.stringMatching(/the identity cannot be copied .*tls\.key/),
    });
  });
});
