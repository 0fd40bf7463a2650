/** The gateway as a process: settings, flags and variables of OIDC reach what checks the tokens. */
import { type ChildProcess, spawn } from "node:child_process";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { credentials } from "@grpc/grpc-js";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { TestProvider } from "../src/gateway/identity/oidc/_test-provider.ts";
import { createChannel, grpcClient, openshell } from "../src/wire/index.ts";

// A process starts; on a busy machine that takes its time.
vi.setConfig({ testTimeout: 120_000 });

let directory: string;
let provider: TestProvider;
const file = (name: string, text: string) => {
  writeFileSync(join(directory, name), text);
  return join(directory, name);
};

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), "openshell-gateway-oidc-"));
  provider = await TestProvider.start();
  await new Promise<void>((resolve) => cluster.listen(0, "127.0.0.1", resolve));
});
afterAll(async () => {
  await provider[Symbol.asyncDispose]();
  cluster.close();
  cluster.closeAllConnections();
  rmSync(directory, { recursive: true });
});

function settings(): string {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  return file(
    "gateway.toml",
    `[openshell]
version = 2
[openshell.gateway]
bind_address = "127.0.0.1:0"
disable_tls = true
master_secret_path = ${JSON.stringify(file("master", randomBytes(32).toString("base64")))}
[openshell.gateway.oidc]
issuer = ${JSON.stringify(provider.issuer)}
ca_cert_path = ${JSON.stringify(provider.caPath)}
[openshell.gateway.gateway_jwt]
signing_key_path = ${JSON.stringify(file("signing.pem", privateKey.export({ type: "pkcs8", format: "pem" }).toString()))}
public_key_path = ${JSON.stringify(file("public.pem", publicKey.export({ type: "spki", format: "pem" }).toString()))}
kid_path = ${JSON.stringify(file("kid", "k"))}
[openshell.drivers.kubernetes]
grpc_endpoint = "http://127.0.0.1:8080"
`,
  );
}

/** A cluster that takes its time: the gateway serves meanwhile, and says that it is not ready. */
const cluster = createServer(() => {});

function kubeconfig(): string {
  const { port } = cluster.address() as AddressInfo;
  return file(
    "kubeconfig",
    JSON.stringify({
      apiVersion: "v1",
      kind: "Config",
      "current-context": "none",
      clusters: [{ name: "none", cluster: { server: `http://127.0.0.1:${port}` } }],
      contexts: [{ name: "none", context: { cluster: "none", user: "none" } }],
      users: [{ name: "none", user: {} }],
    }),
  );
}

async function serving(args: readonly string[], env: Record<string, string>) {
  const main = join(import.meta.dirname, "..", "src", "gateway", "main.ts");
  const own = ["--config", settings(), "--db-url", "sqlite::memory:", "--kubeconfig", kubeconfig()];
  const child = spawn(process.execPath, [main, "serve", ...own, ...args], {
    env: { PATH: process.env.PATH, ...env },
    stdio: ["ignore", "ignore", "pipe"],
  });
  const port = await portOf(child);
  const channel = createChannel(`127.0.0.1:${port}`, credentials.createInsecure());
  return {
    client: grpcClient(openshell.OpenShell, channel),
    async [Symbol.asyncDispose]() {
      channel.close();
      const ended = once(child, "exit");
      child.kill("SIGTERM");
      await ended;
    },
  };
}

/** The port, once the log names it; the log goes on to be read, since nobody writes into a closed pipe. */
function portOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let said = "";
    child.stderr?.on("data", (chunk: Buffer) => {
      said += chunk;
      const [, port] = /"address":"127\.0\.0\.1:(\d+)"/.exec(said) ?? [];
      if (port !== undefined) resolve(port);
    });
    child.once("exit", () => reject(new Error(`the gateway ended: ${said}`)));
  });
}

const who = async (client: Awaited<ReturnType<typeof serving>>["client"], token: string) =>
  client.getCurrentUser({}, { headers: { authorization: `Bearer ${token}` } });

it("knows users by the file's settings", async () => {
  await using gateway = await serving([], {});
  expect(await who(gateway.client, await provider.token("ann"))).toMatchObject({ subject: "ann", roles: ["user"] });
  await expect(gateway.client.getCurrentUser({})).rejects.toMatchObject({ code: "unauthenticated" });
});

it("knows users by flags and variables over the file's settings", async () => {
  const env = {
    OPENSHELL_OIDC_USER_ROLE: "another",
    OPENSHELL_OIDC_ADMIN_ROLE: "nobody",
    SSL_CERT_FILE: provider.caPath,
  };
  await using gateway = await serving(
    ["--oidc-audience", "urn:other", "--oidc-scopes-claim=scope", "--oidc-ca-cert-path="],
    env,
  );
  const token = await provider.token("ann", { resource: "urn:other", scope: "sandbox:read" });
  expect(await who(gateway.client, token)).toMatchObject({ roles: ["user"], scopes: ["sandbox:read"] });
  await expect(who(gateway.client, await provider.token("ann"))).rejects.toThrow(/not for "urn:other"/);
});
