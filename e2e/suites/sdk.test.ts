import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { referenceOf } from "../../images/references.ts";
import { run } from "../cluster/exec.ts";
import { Conformance } from "../support/conformance.ts";
import { GatewayAccess } from "../support/gateway-access.ts";
import { install, releaseNamed, uninstall } from "../support/release.ts";
import { sdkPython, sdkVersion } from "../support/sdk-python.ts";

const script = fileURLToPath(new URL("../support/published-sdk.py", import.meta.url));

let suite: Conformance;
let python: string;

beforeAll(async () => {
  suite = await Conformance.open();
  python = await sdkPython();
});

afterAll(async () => suite[Symbol.asyncDispose]());

describe(`the published Python SDK ${sdkVersion}`, () => {
  it("runs a sandbox's whole life over mutual TLS", async () => {
    await runSdk(suite.gateway);
  }, 400_000);

  it("runs it over a plaintext development listener", async () => {
    const release = releaseNamed("openshell-dev");
    const { kubeconfig } = suite;
    try {
      await install({ kubeconfig, release, presets: ["conformance", "development"] });
      await using gateway = await GatewayAccess.open(kubeconfig, release, { tls: false });
      await runSdk(gateway);
    } finally {
      await uninstall(kubeconfig, release);
    }
  }, 600_000);
});

/** Runs the script with the configuration directory that `openshell gateway add` would have made. */
async function runSdk(gateway: GatewayAccess): Promise<void> {
  const home = await mkdtemp(join(tmpdir(), "openshell-sdk-"));
  try {
    const directory = join(home, "openshell/gateways/conformance");
    const { certificate, endpoint } = gateway;
    await mkdir(join(directory, "mtls"), { recursive: true });
    const metadata = {
      name: "conformance",
      gateway_endpoint: endpoint,
      is_remote: false,
      gateway_port: Number(new URL(endpoint).port),
      auth_mode: certificate === undefined ? "plaintext" : "mtls",
    };
    await writeFile(join(directory, "metadata.json"), JSON.stringify(metadata));
    await writeFile(join(home, "openshell/active_gateway"), "conformance\n");
    if (certificate !== undefined) {
      await writeFile(join(directory, "mtls/ca.crt"), certificate.ca);
      await writeFile(join(directory, "mtls/tls.crt"), certificate.certificate);
      await writeFile(join(directory, "mtls/tls.key"), certificate.key, { mode: 0o600 });
    }
    const name = `sdk-${randomBytes(4).toString("hex")}`;
    const said = await run(python, [script, referenceOf("busybox"), name], {
      env: { XDG_CONFIG_HOME: home },
      timeoutMs: 380_000,
    });
    const lines = said.trim().split("\n");
    expect(lines.shift()).toMatch(/^health \S+$/);
    expect(lines).toEqual([
      `created ${name}`,
      "ready",
      "exec 3 'out\\nin\\n' 'err\\n'",
      "stopped",
      "exec 0 'kept\\n'",
      "listed True",
      "deleted",
    ]);
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}
