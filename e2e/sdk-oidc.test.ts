/** A login that the command line made serves the published SDK, and the other way round: they share the files. Needs no cluster. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { decodeJwt } from "jose";
import { expect, it } from "vitest";
import { run as openshell } from "../src/cli/program.ts";
import { TestGateway } from "../src/gateway/_testing.ts";
import { approveDevice, oidcOf, TestProvider } from "../src/gateway/identity/oidc/_test-provider.ts";
import { run } from "./cluster/exec.ts";
import { sdkPythonOr, sdkVersion } from "./support/sdk-python.ts";

const script = `
from openshell import SandboxClient
client = SandboxClient.from_active_cluster(timeout=20.0)
print(client.health().version, [one.name for one in client.list_all(workspace="default")])
`;

// Beside the other tests without a cluster, which run on machines that may have no Python.
const { python, missing } = await sdkPythonOr();
const because = missing === undefined ? "" : ` (skipped: ${missing})`;

it(`a login of the command line is used and renewed by the published Python SDK ${sdkVersion}, and its own by the command line${because}`, {
  skip: python === "",
  timeout: 120_000,
}, async () => {
  await using provider = await TestProvider.start();
  await using gateway = await TestGateway.start({
    allowUnauthenticatedUsers: false,
    oidc: oidcOf(provider),
  });
  const home = await mkdtemp(join(tmpdir(), "openshell-sdk-oidc-"));
  const env = { XDG_CONFIG_HOME: home, SSL_CERT_FILE: provider.caPath };
  const path = join(home, "openshell/gateways/g/oidc_token.json");
  const stored = async () => JSON.parse(await readFile(path, "utf8"));
  const endSoon = async () => {
    await writeFile(path, JSON.stringify({ ...(await stored()), expires_at: Math.floor(Date.now() / 1000) + 5 }));
  };
  const command = async (line: string) => {
    const stderr = new PassThrough().on("data", (chunk: Buffer) => {
      const [, code] = /confirm the code (\S+)\.\n/.exec(String(chunk)) ?? [];
      if (code !== undefined) void approveDevice(provider, code, "beth");
    });
    const signal = new AbortController().signal;
    const terminal = { stdin: new PassThrough(), stdout: new PassThrough().resume(), stderr, env, signal };
    expect(await openshell(line.split(" "), terminal, "0.1.0")).toBe(0);
  };
  const sdk = () => run(python, ["-c", script], { env, timeoutMs: 60_000 });
  try {
    await command(`gateway add g --endpoint http://127.0.0.1:${gateway.gateway.port} --oidc-issuer ${provider.issuer}`);
    await command("gateway login");
    await command("sandbox create --name shared --detach");
    const first = await stored();
    expect(await sdk()).toContain("1.2.3 ['shared']");
    expect(await stored()).toEqual(first);

    await endSoon();
    expect(await sdk()).toContain("['shared']");
    const second = await stored();
    expect(decodeJwt(second.access_token).jti).not.toBe(decodeJwt(first.access_token).jti);
    await command("sandbox get shared");

    await endSoon();
    await command("sandbox get shared");
    expect(decodeJwt((await stored()).access_token).jti).not.toBe(decodeJwt(second.access_token).jti);
    expect(await sdk()).toContain("['shared']");
  } finally {
    await rm(home, { recursive: true });
  }
});
