import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { readSettings } from "./settings.ts";

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "supervisor-"));
});

afterEach(() => rmSync(directory, { recursive: true }));

const env = () => ({
  OPENSHELL_GATEWAY_ENDPOINT: "https://gateway.openshell.svc:8080",
  OPENSHELL_SANDBOX_ID: "sb-1",
  OPENSHELL_GENERATION_ID: "g1",
  OPENSHELL_BOUNDARY_ENDPOINT: "sb-1-boundary:5500",
  OPENSHELL_POD_UID: "uid-1",
  OPENSHELL_SUPERVISOR_DIR: directory,
});

function writeSecret(): void {
  for (const name of ["grant.jwt", "tls.crt", "tls.key", "boundary-ca.crt"]) writeFileSync(join(directory, name), name);
}

describe("the supervisor's settings", () => {
  it("come from environment and Secret files", () => {
    writeSecret();
    const settings = readSettings(env());
    expect(settings.gateway).toMatchObject({ target: "gateway.openshell.svc:8080", tls: true });
    expect(settings.gateway.ca).toBeUndefined();
    expect(settings.boundary).toMatchObject({
      target: "sb-1-boundary:5500",
      serverName: "runtime.g1.openshell.internal",
      grant: "grant.jwt",
    });
  });

  it("take the gateway's CA when the Secret has one", () => {
    writeSecret();
    writeFileSync(join(directory, "gateway-ca.crt"), "pem");
    expect(readSettings(env()).gateway.ca?.toString()).toBe("pem");
  });

  it("name everything that is missing or malformed at once", () => {
    writeFileSync(join(directory, "grant.jwt"), "x");
    const broken = {
      ...env(),
      OPENSHELL_POD_UID: "",
      OPENSHELL_GATEWAY_ENDPOINT: "gateway",
      OPENSHELL_LOG_LEVEL: "loud",
    };
    expect(() => readSettings(broken)).toThrow(
      /OPENSHELL_GATEWAY_ENDPOINT is "gateway".*OPENSHELL_LOG_LEVEL is "loud".*OPENSHELL_POD_UID is not set.*boundary-ca\.crt cannot be read \(ENOENT\)/,
    );
  });
});
