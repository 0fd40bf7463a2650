import "reflect-metadata";
import { generateKeyPairSync, webcrypto } from "node:crypto";
import * as x509 from "@peculiar/x509";

/** A certificate and its key as PEM. */
export interface Pair {
  readonly certificate: Buffer;
  readonly key: Buffer;
}

export interface Authority extends Pair {
  issue(name: string): Promise<Pair>;
}

const algorithm = { name: "Ed25519" };
const validity = { notBefore: new Date("2000-01-01T00:00:00Z"), notAfter: new Date("2099-01-01T00:00:00Z") };

/** A certificate authority for one test, Ed25519 like the real ones. */
export async function testAuthority(): Promise<Authority> {
  x509.cryptoProvider.set(webcrypto as never);
  const keys = await newKeys();
  const ca = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: "01",
    name: "CN=test authority",
    ...validity,
    signingAlgorithm: algorithm,
    keys: keys.pair,
    extensions: [new x509.BasicConstraintsExtension(true, 1, true)],
  });
  return {
    certificate: Buffer.from(ca.toString("pem")),
    key: keys.pem,
    async issue(name) {
      const leaf = await newKeys();
      const certificate = await x509.X509CertificateGenerator.create({
        serialNumber: "02",
        subject: `CN=${name}`,
        issuer: ca.subject,
        ...validity,
        signingAlgorithm: algorithm,
        publicKey: leaf.pair.publicKey,
        signingKey: keys.pair.privateKey,
        extensions: [new x509.SubjectAlternativeNameExtension([{ type: "dns", value: name }])],
      });
      return { certificate: Buffer.from(certificate.toString("pem")), key: leaf.pem };
    },
  };
}

async function newKeys(): Promise<{ pair: webcrypto.CryptoKeyPair; pem: Buffer }> {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const subtle = webcrypto.subtle;
  const pair = {
    privateKey: await subtle.importKey("pkcs8", privateKey.export({ type: "pkcs8", format: "der" }), algorithm, true, [
      "sign",
    ]),
    publicKey: await subtle.importKey("spki", publicKey.export({ type: "spki", format: "der" }), algorithm, true, [
      "verify",
    ]),
  };
  return {
    pair: pair as webcrypto.CryptoKeyPair,
    pem: Buffer.from(privateKey.export({ type: "pkcs8", format: "pem" })),
  };
}
