import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { issueAuthority, issueLeaf } from "../pki/certificates.ts";
import { TestGateway } from "./_testing.ts";
import { printFindings, selfTest } from "./selftest.ts";

const day = 86_400_000;
const until = (days: number) => ({
  notBefore: new Date(Date.now() - day),
  notAfter: new Date(Date.now() + days * day),
});

/** A gateway with TLS whose certificate lives so long, and the file of its authority. */
async function gatewayWithTls(days: number, name = "localhost") {
  const folder = mkdtempSync(join(tmpdir(), "openshell-selftest-"));
  const authority = await issueAuthority({ commonName: "test", algorithm: "ecdsa-p256", ...until(365) });
  const leaf = await issueLeaf({
    authority,
    commonName: name,
    dnsNames: [name],
    usages: ["server"],
    ...until(days),
  });
  const files = { cert: join(folder, "tls.crt"), key: join(folder, "tls.key"), clientCa: undefined };
  const ca = join(folder, "ca.crt");
  writeFileSync(files.cert, leaf.certPem);
  writeFileSync(files.key, leaf.keyPem);
  writeFileSync(ca, authority.certPem);
  return { files, ca, [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }) };
}

const problems = async (options: Parameters<typeof selfTest>[0]) =>
  (await selfTest(options)).flatMap(({ problem }) => (problem === undefined ? [] : [problem]));

describe("selftest", () => {
  it("finds a gateway in plain text healthy", async () => {
    await using test = await TestGateway.start();
    const findings = await selfTest({ endpoint: `localhost:${test.gateway.port}` });
    expect(printFindings(findings)).toBe(`ok    health of localhost:${test.gateway.port}, version 1.2.3\n`);
  });

  it("says who does not answer, and goes on", async () => {
    const findings = await selfTest({ endpoint: "localhost:1", fenced: "127.0.0.1:1" });
    expect(findings.map(({ problem }) => problem === undefined)).toEqual([false, true]);
    expect(findings[0]?.problem).toMatch(/ECONNREFUSED/);
  });

  it("says that a connection which should be fenced is open, and that a name which is not found proves nothing", async () => {
    const server = createServer().listen(0, "127.0.0.1");
    try {
      await new Promise((resolve) => server.once("listening", resolve));
      const address = server.address();
      const port = typeof address === "object" ? address?.port : undefined;
      const fenced = async (where: string) =>
        (await selfTest({ endpoint: "localhost:1", fenced: where, timeoutMs: 700 })).at(-1)?.problem;
      expect(await fenced(`127.0.0.1:${port}`)).toContain("does not enforce NetworkPolicy");
      expect(await fenced("does-not-exist.invalid:1")).toContain("nothing is known");
    } finally {
      server.close();
    }
  });

  it("verifies the certificate's chain and name, and says when it ends", async () => {
    using tls = await gatewayWithTls(90);
    await using test = await TestGateway.start({ tls: tls.files });
    const endpoint = `localhost:${test.gateway.port}`;
    const [certificate, ...others] = await selfTest({ endpoint, tls: true, ca: tls.ca });
    expect(certificate).toEqual({
      what: `certificate of ${endpoint} is signed by the authority, names it and lives 89 days`,
    });
    expect(others.map(({ problem }) => problem)).toEqual([undefined]);
    using other = await gatewayWithTls(90);
    expect((await problems({ endpoint, tls: true, ca: other.ca }))[0]).toMatch(/signature|certificate/i);
    expect((await problems({ endpoint, tls: true, ca: join(tls.ca, "none") }))[0]).toMatch(/certificate/i);
  });

  it("refuses a certificate of another name, and one that is about to expire", async () => {
    using wrong = await gatewayWithTls(90, "other.example.com");
    await using named = await TestGateway.start({ tls: wrong.files });
    const [problem] = await problems({ endpoint: `localhost:${named.gateway.port}`, tls: true, ca: wrong.ca });
    expect(problem).toContain("other.example.com");
    const endpoint = `localhost:${named.gateway.port}`;
    const asSupervisors = await selfTest({ endpoint, tls: true, ca: wrong.ca, serverName: "other.example.com" });
    expect(printFindings(asSupervisors)).toMatch(
      /^ok .* names other\.example\.com and lives 89 days\nok .* health of .*\n$/,
    );
    using old = await gatewayWithTls(0.5);
    await using expiring = await TestGateway.start({ tls: old.files });
    expect(await problems({ endpoint: `localhost:${expiring.gateway.port}`, tls: true, ca: old.ca })).toEqual([
      "it is about to expire; run the PKI Job or helm upgrade",
    ]);
  });
});
