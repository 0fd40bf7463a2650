/** For tests: a generation's certificates. The runtime may not import src/pki, whose work this is outside of tests. */

import "reflect-metadata";
import { webcrypto } from "node:crypto";
import * as x509 from "@peculiar/x509";

/** Both PEM. */
export interface CertificateAndKey {
  readonly certPem: string;
  readonly keyPem: string;
}

export interface TestAuthority extends CertificateAndKey {
  issue(name: string): Promise<CertificateAndKey>;
}

const algorithm = { name: "Ed25519" };
const validity = { notBefore: new Date("2000-01-01T00:00:00Z"), notAfter: new Date("9999-12-31T23:59:59Z") };

export async function createAuthority(name: string): Promise<TestAuthority> {
  x509.cryptoProvider.set(webcrypto as never);
  const keys = await newKeys();
  const authority = await x509.X509CertificateGenerator.createSelfSigned({
    name: `CN=${name}`,
    ...validity,
    signingAlgorithm: algorithm,
    keys: keys.pair,
    extensions: [new x509.BasicConstraintsExtension(true, 0, true)],
  });
  return {
    certPem: authority.toString("pem"),
    keyPem: keys.pem,
    async issue(leafName) {
      const leaf = await newKeys();
      const certificate = await x509.X509CertificateGenerator.create({
        subject: `CN=${leafName}`,
        issuer: authority.subject,
        ...validity,
        signingAlgorithm: algorithm,
        publicKey: leaf.pair.publicKey,
        signingKey: keys.pair.privateKey,
        extensions: [new x509.SubjectAlternativeNameExtension([{ type: "dns", value: leafName }])],
      });
      return { certPem: certificate.toString("pem"), keyPem: leaf.pem };
    },
  };
}

async function newKeys(): Promise<{ readonly pair: webcrypto.CryptoKeyPair; readonly pem: string }> {
  const pair = (await webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"])) as webcrypto.CryptoKeyPair;
  const pkcs8 = await webcrypto.subtle.exportKey("pkcs8", pair.privateKey);
  return { pair, pem: x509.PemConverter.encode(pkcs8, "PRIVATE KEY") };
}
