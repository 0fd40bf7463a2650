import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, createServer, type TLSSocket } from "node:tls";
import { promisify } from "node:util";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type CertificateAndKey,
  certificateOf,
  certificatesIn,
  coversNames,
  ed25519FromSeed,
  expiringSoon,
  isIssuedBy,
  isKeyOf,
  issueAuthority,
  issueLeaf,
  type KeyAlgorithm,
  keyPemOf,
  namesOf,
  spkiSha256,
  unlimitedValidity,
} from "./certificates.ts";

const name = "runtime.g1.openshell.internal";

function authority(algorithm: KeyAlgorithm) {
  return issueAuthority({ commonName: "test authority", algorithm, ...unlimitedValidity });
}

async function pair(ca: CertificateAndKey) {
  const leaf = (commonName: string, usage: "server" | "client") =>
    issueLeaf({ authority: ca, commonName, dnsNames: [commonName], usages: [usage], ...unlimitedValidity });
  return { server: await leaf(name, "server"), client: await leaf("supervisor.g1.openshell.internal", "client") };
}

/** What the server learns of a client that speaks TLS 1.3 with `client`'s certificate and trusts `trusted`. */
async function handshake(
  ca: CertificateAndKey,
  server: CertificateAndKey,
  client: CertificateAndKey,
  trusted = ca.certPem,
): Promise<string> {
  const listener = createServer({
    ca: ca.certPem,
    cert: server.certPem,
    key: server.keyPem,
    requestCert: true,
    rejectUnauthorized: true,
    minVersion: "TLSv1.3",
  });
  const outcome = Promise.withResolvers<string>();
  listener.on("secureConnection", (socket: TLSSocket) => {
    const peer = socket.getPeerX509Certificate();
    socket.end(`${socket.getProtocol()} ${peer?.subject}`);
  });
  listener.on("tlsClientError", (error) => outcome.reject(error));
  await new Promise<void>((ready) => listener.listen(0, "127.0.0.1", ready));
  const socket = connect({
    port: (listener.address() as AddressInfo).port,
    host: "127.0.0.1",
    servername: name,
    ca: trusted,
    cert: client.certPem,
    key: client.keyPem,
    minVersion: "TLSv1.3",
  });
  socket.on("data", (data) => outcome.resolve(data.toString()));
  socket.on("error", (error) => outcome.reject(error));
  try {
    return await outcome.promise;
  } finally {
    socket.destroy();
    await new Promise<void>((closed) => listener.close(() => closed()));
  }
}

describe.each(["ed25519", "ecdsa-p256"] as const)("certificates of an %s authority", (algorithm) => {
  it("carry a mutual TLS 1.3 handshake", async () => {
    const ca = await authority(algorithm);
    const { server, client } = await pair(ca);
    expect(await handshake(ca, server, client)).toBe("TLSv1.3 CN=supervisor.g1.openshell.internal");
  });

  it("are refused when the client's come from another authority", async () => {
    const ca = await authority(algorithm);
    const { server } = await pair(ca);
    const { client } = await pair(await authority(algorithm));
    await expect(handshake(ca, server, client)).rejects.toThrow();
  });

  it("are refused by a client that trusts another authority", async () => {
    const ca = await authority(algorithm);
    const { server, client } = await pair(ca);
    const stranger = await authority(algorithm);
    await expect(handshake(ca, server, client, stranger.certPem)).rejects.toThrow();
  });

  it("are refused when a client certificate is used as a server's", async () => {
    const ca = await authority(algorithm);
    const { client } = await pair(ca);
    await expect(handshake(ca, client, client)).rejects.toThrow();
  });

  it("verify with openssl, purpose included", async () => {
    const ca = await authority(algorithm);
    const { server } = await pair(ca);
    const directory = await mkdtemp(join(tmpdir(), "openshell-pki-"));
    try {
      await writeFile(join(directory, "ca.pem"), ca.certPem);
      await writeFile(join(directory, "server.pem"), server.certPem);
      const args = ["verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", name];
      const { stdout } = await promisify(execFile)("openssl", [...args, "-CAfile", "ca.pem", "server.pem"], {
        cwd: directory,
      });
      expect(stdout).toContain("server.pem: OK");
    } finally {
      await rm(directory, { recursive: true });
    }
  });

  it("belong to their key and their authority, and to no other", async () => {
    const [ca, other] = await Promise.all([authority(algorithm), authority(algorithm)]);
    const { server, client } = await pair(ca);
    expect(isIssuedBy(server.certPem, ca.certPem)).toBe(true);
    expect(isIssuedBy(server.certPem, other.certPem)).toBe(false);
    expect(isKeyOf(server.keyPem, server.certPem)).toBe(true);
    expect(isKeyOf(client.keyPem, server.certPem)).toBe(false);
    expect(spkiSha256(server.certPem)).toMatch(/^[0-9a-f]{64}$/);
    expect(spkiSha256(server.certPem)).not.toBe(spkiSha256(client.certPem));
  });
});

describe("an authority derived from a seed", () => {
  const derive = (seed: Uint8Array) =>
    issueAuthority({
      commonName: "generation g1",
      algorithm: "ed25519",
      keyPair: ed25519FromSeed(seed),
      serialNumber: "01",
      ...unlimitedValidity,
    });

  it("is the same, byte for byte, each time", async () => {
    const seed = new Uint8Array(32).fill(7);
    expect(await derive(seed)).toEqual(await derive(seed));
    expect(await derive(new Uint8Array(32).fill(8))).not.toEqual(await derive(seed));
  });

  it("signs leaves that its second derivation verifies", async () => {
    const seed = new Uint8Array(32).fill(9);
    const { server, client } = await pair(await derive(seed));
    expect(await handshake(await derive(seed), server, client)).toContain("TLSv1.3");
  });

  it("holds from 2000 to 9999", async () => {
    const certificate = certificateOf((await derive(new Uint8Array(32))).certPem);
    expect(certificate.validFromDate.toISOString()).toBe("2000-01-01T00:00:00.000Z");
    expect(certificate.validToDate.toISOString()).toBe("9999-12-31T23:59:59.000Z");
  });

  it("is the key of RFC 8032, test 1", () => {
    const seed = Buffer.from("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60", "hex");
    const spki = ed25519FromSeed(seed).export({ format: "jwk" });
    const published = Buffer.from("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "hex");
    expect(spki.x).toBe(published.toString("base64url"));
  });

  it("refuses a seed of another length", () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 64 }).filter((seed) => seed.length !== 32),
        (seed) => {
          expect(() => ed25519FromSeed(seed)).toThrow("32 bytes");
        },
      ),
    );
  });
});

describe("a leaf's names", () => {
  const leaf = async () =>
    issueLeaf({
      authority: await authority("ed25519"),
      commonName: "gateway",
      organizationalUnits: ["platform-admin", "user"],
      dnsNames: ["gateway.openshell.svc", "Localhost"],
      ipAddresses: ["127.0.0.1", "0:0:0:0:0:0:0:1"],
      usages: ["server", "client"],
      ...unlimitedValidity,
    });

  it("are covered whatever their spelling", async () => {
    const { certPem } = await leaf();
    expect(namesOf(certPem)).toEqual({
      dnsNames: ["gateway.openshell.svc", "localhost"],
      ipAddresses: ["127.0.0.1", "::1"],
    });
    expect(coversNames(certPem, { dnsNames: ["GATEWAY.openshell.svc"], ipAddresses: ["::1"] })).toBe(true);
    expect(coversNames(certPem, { dnsNames: ["gateway"], ipAddresses: [] })).toBe(false);
    expect(coversNames(certPem, { dnsNames: [], ipAddresses: ["127.0.0.2"] })).toBe(false);
  });

  it("stand beside its roles in the subject", async () => {
    expect(certificateOf((await leaf()).certPem).subject).toBe("OU=platform-admin\nOU=user\nCN=gateway");
  });

  it.each([
    [{ ipAddresses: ["gateway"] }, '"gateway" is not an IP address'],
    [{ ipAddresses: ["fe80::1%eth0"] }, '"fe80::1%eth0" is not an IP address'],
    [{ dnsNames: ["x,DNS:evil.com"] }, '"x,DNS:evil.com" is not a DNS name'],
    [{ dnsNames: ["b\u00fccher.example"] }, '"b\u00fccher.example" is not a DNS name'],
    [{ dnsNames: ["a.*.example.com"] }, '"a.*.example.com" is not a DNS name'],
    [{ dnsNames: [`${"a".repeat(64)}.example.com`] }, "is not a DNS name"],
    [{ dnsNames: [""] }, '"" is not a DNS name'],
  ])("refuse what cannot be one: %j", async (given, message) => {
    const ca = await authority("ed25519");
    const issue = issueLeaf({ authority: ca, commonName: "x", usages: ["server"], ...unlimitedValidity, ...given });
    await expect(issue).rejects.toMatchObject({ code: "invalid-argument", message: expect.stringContaining(message) });
  });

  it.each(["*.example.com", "os.2026-team", "xn--bcher-kva.example", "a".repeat(63)])("may be %s", async (name) => {
    const ca = await authority("ed25519");
    const own = { commonName: "x", dnsNames: [name], usages: ["server"], ...unlimitedValidity } as const;
    const { certPem } = await issueLeaf({ authority: ca, ...own });
    expect(namesOf(certPem).dnsNames).toEqual([name]);
  });
});

describe("expiry", () => {
  it.each([
    ["2026-01-01", false],
    ["2026-02-28", false],
    ["2026-03-02T00:00:00Z", true],
    ["2027-01-01", true],
  ])("at %s of a quarter that began in January: soon = %s", async (now, soon) => {
    const { certPem } = await issueAuthority({
      commonName: "quarter",
      algorithm: "ed25519",
      notBefore: new Date("2026-01-01"),
      notAfter: new Date("2026-04-01"),
    });
    expect(expiringSoon(certPem, new Date(now))).toBe(soon);
  });
});

it("splits a bundle and refuses what is no certificate", async () => {
  const [first, second] = await Promise.all([authority("ed25519"), authority("ecdsa-p256")]);
  expect(certificatesIn(`# ours\n${first.certPem}\n${second.certPem}`)).toEqual([first.certPem, second.certPem]);
  expect(certificatesIn(keyPemOf(ed25519FromSeed(new Uint8Array(32))))).toEqual([]);
  expect(() => spkiSha256("nonsense")).toThrow("PEM certificate");
});
