/** The command line against a gateway with TLS: certificates as the chart's hook makes them, imported as a user imports them. */
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { type Server, ServerCredentials } from "@grpc/grpc-js";
import { afterEach, beforeEach, expect, it } from "vitest";
import { run } from "../src/cli/program.ts";
import { OpenShellError } from "../src/common/errors.ts";
import { type CertificateAndKey, certificateOf, issueAuthority, issueLeaf } from "../src/pki/index.ts";
import { addService, createServer, type Implementation, openshell } from "../src/wire/index.ts";

const validity = { notBefore: new Date(Date.now() - 3_600_000), notAfter: new Date(Date.now() + 3_600_000) };

let home: string;
let ca: CertificateAndKey;
let server: Server;
let port: number;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "openshell-cli-tls-"));
  ca = await authority();
});
afterEach(async () => {
  server?.forceShutdown();
  await rm(home, { recursive: true });
});

function authority(): Promise<CertificateAndKey> {
  return issueAuthority({ commonName: "OpenShell authority", algorithm: "ecdsa-p256", ...validity });
}

async function listen(options: { dnsNames?: string[]; askForCertificate?: boolean } = {}) {
  const { dnsNames, askForCertificate = true } = options;
  const { certPem, keyPem } = await issueLeaf({
    authority: ca,
    commonName: "openshell-gateway",
    usages: ["server"],
    ...(dnsNames === undefined ? { ipAddresses: ["127.0.0.1"] } : { dnsNames }),
    ...validity,
  });
  server = createServer();
  const implementation: Implementation<typeof openshell.OpenShell, string> = {
    health: async () => ({ status: openshell.ServiceStatus.HEALTHY, version: "0.1.0" }),
    getCurrentUser: async (_request, { principal }) => ({ subject: principal }),
  };
  addService(server, openshell.OpenShell, implementation, ({ peerCertificate, method }) => {
    if (method.localName === "health") return "anyone";
    if (peerCertificate === undefined) throw new OpenShellError("unauthenticated", "no client certificate");
    const pem = Buffer.from(peerCertificate).toString("base64");
    return certificateOf(`-----BEGIN CERTIFICATE-----\n${pem}\n-----END CERTIFICATE-----`).subject;
  });
  const pair = [{ cert_chain: Buffer.from(certPem), private_key: Buffer.from(keyPem) }];
  const credentials = ServerCredentials.createSsl(Buffer.from(ca.certPem), pair, askForCertificate);
  port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", credentials, (error, bound) => (error ? reject(error) : resolve(bound))),
  );
}

/** The client's Secret as `kubectl get secret -o json` prints it. */
async function secretFile(signer = ca, trusted = ca): Promise<string> {
  const client = await issueLeaf({
    authority: signer,
    commonName: "openshell-admin",
    organizationalUnits: ["platform-admin"],
    usages: ["client"],
    ...validity,
  });
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const data = {
    "ca.crt": base64(trusted.certPem),
    "tls.crt": base64(client.certPem),
    "tls.key": base64(client.keyPem),
  };
  const file = join(home, "secret.json");
  await writeFile(file, JSON.stringify({ kind: "Secret", data }));
  return file;
}

async function openshellCommand(...args: string[]) {
  const output = () => {
    const stream = new PassThrough();
    const chunks: Buffer[] = [];
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    return { stream, text: () => Buffer.concat(chunks).toString() };
  };
  const [stdout, stderr] = [output(), output()];
  const terminal = {
    stdin: new PassThrough(),
    stdout: stdout.stream,
    stderr: stderr.stream,
    env: { HOME: home },
    signal: new AbortController().signal,
  };
  const code = await run(args, terminal, "0.1.0");
  await new Promise((resolve) => setImmediate(resolve));
  return { code, stdout: stdout.text(), stderr: stderr.text() };
}

it("imports a client's certificates, keeps them private and is known by them", async () => {
  await listen();
  const secret = await secretFile();
  const added = await openshellCommand(
    "gateway",
    "add",
    "g",
    "--endpoint",
    `https://127.0.0.1:${port}`,
    "--from-secret",
    secret,
  );
  expect(added).toMatchObject({ code: 0, stderr: "" });
  const files = join(home, ".config", "openshell", "gateways", "g", "mtls");
  for (const name of ["ca.crt", "tls.crt", "tls.key"]) expect((await stat(join(files, name))).mode & 0o777).toBe(0o600);
  expect(await readFile(join(files, "ca.crt"), "utf8")).toBe(ca.certPem);
  const { code, stdout } = await openshellCommand("status", "-o", "json");
  expect(code).toBe(0);
  expect(JSON.parse(stdout).user).toBe("OU=platform-admin\nCN=openshell-admin");
});

it("says that the certificates are of another installation", async () => {
  await listen();
  const secret = await secretFile(ca, await authority());
  await openshellCommand("gateway", "add", "g", "--endpoint", `https://127.0.0.1:${port}`, "--from-secret", secret);
  expect(await openshellCommand("status")).toMatchObject({
    code: 5,
    stderr: expect.stringContaining("its certificate was not signed by the stored ca.crt"),
  });
  expect(await openshellCommand("status", "--gateway-insecure")).toMatchObject({ code: 0 });
});

it("says that the certificate is for other names", async () => {
  await listen({ dnsNames: ["elsewhere.example"] });
  const secret = await secretFile();
  await openshellCommand("gateway", "add", "g", "--endpoint", `https://127.0.0.1:${port}`, "--from-secret", secret);
  expect(await openshellCommand("status")).toMatchObject({
    code: 5,
    stderr: expect.stringContaining("its certificate is not for this host"),
  });
});

it("says that a client certificate is needed and how to store one", async () => {
  await listen({ askForCertificate: false });
  const file = join(home, "ca.crt");
  await writeFile(file, ca.certPem);
  await openshellCommand("gateway", "add", "g", "--endpoint", `https://127.0.0.1:${port}`, "--ca", file);
  expect(await openshellCommand("status")).toMatchObject({
    code: 6,
    stderr: expect.stringContaining("wants a client certificate, and none is stored for it"),
  });
});
