import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { referenceOf } from "../../images/references.ts";
import { labels } from "../../src/manifests/names.ts";
import { run } from "../cluster/exec.ts";
import { Conformance } from "../support/conformance.ts";
import { GatewayAccess } from "../support/gateway-access.ts";
import { install, type Release, releaseNamed, uninstall } from "../support/release.ts";
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

  it("runs it over a plaintext development listener, under production's quota and label guard", async () => {
    const release = releaseNamed("openshell-dev");
    const { kubeconfig } = suite;
    try {
      const values = await agentSandboxUsers();
      await install({ kubeconfig, release, presets: ["production", "conformance", "development"], values });
      await using gateway = await GatewayAccess.open(kubeconfig, release, { tls: false });
      await Promise.all([runSdk(gateway), seeProductionsBounds(release)]);
    } finally {
      await uninstall(kubeconfig, release);
    }
  }, 600_000);
});

/** Who makes workload Pods, where that is not the published controller that production.yaml lets through: a program with an administrator's name. */
async function agentSandboxUsers(): Promise<object> {
  if (suite.provider.name !== "local") return {};
  const name = await suite.kubectl(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]);
  return { admissionPolicy: { agentSandboxUsers: [name] } };
}

/** Waits for the pair of a release that has one sandbox, and sees that the quota counts it and the guard refuses a stranger's hand on it. */
async function seeProductionsBounds({ name, sandboxNamespace }: Release): Promise<void> {
  const there = ["-n", sandboxNamespace];
  const quota = `resourcequota/${name}-sandboxes`;
  await suite.kubectl([...there, "wait", quota, "--for=jsonpath={.status.used.pods}=2", "--timeout=90s"]);
  expect(await suite.kubectl([...there, "get", quota, "-o", "jsonpath={.status.hard}"])).toBe('{"pods":"200"}');
  const stranger = ["--as=stranger", "--as-group=system:masters"];
  const role = `${labels.boundaryRole}=supervisor`;
  const pods = ["label", "pods", "--selector", `${labels.boundaryRole}=workload`, role, "--overwrite"];
  const { code, stderr } = await suite.kubectlAttempt([...there, ...stranger, ...pods, "--dry-run=server"]);
  expect({ code, stderr }).toEqual({
    code: 1,
    stderr: expect.stringContaining("are written by OpenShell's gateway and Agent Sandbox only"),
  });
}

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
