import "reflect-metadata";
import { createPublicKey, type KeyObject } from "node:crypto";
import { AsnConvert } from "@peculiar/asn1-schema";
import { Certificate, Extensions } from "@peculiar/asn1-x509";
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  ExtendedKeyUsageExtension,
  type Extension,
  KeyUsageFlags,
  KeyUsagesExtension,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509Certificate,
  X509CertificateGenerator,
} from "@peculiar/x509";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { certificateOf, issueAuthority, issueLeaf, keyPemOf, newPrivateKey } from "./certificates.ts";

const ed25519 = { name: "Ed25519" };
const cryptoKeysOf = (key: KeyObject) => ({
  privateKey: key.toCryptoKey(ed25519, true, ["sign"]),
  publicKey: createPublicKey(key).toCryptoKey(ed25519, true, ["verify"]),
});
const derOf = (pem: string) => certificateOf(pem).raw.toString("hex");

/** What a general library writes. */
async function theirs(options: {
  readonly subject: readonly (readonly ["CN" | "OU", string])[];
  readonly issuer: string;
  readonly notBefore: Date;
  readonly notAfter: Date;
  readonly serialNumber: string;
  readonly key: KeyObject;
  readonly signer: KeyObject;
  readonly extensions: readonly Extension[];
}): Promise<string> {
  const { subject, issuer, notBefore, notAfter, serialNumber, key, signer, extensions } = options;
  const [own, authority] = [cryptoKeysOf(key), cryptoKeysOf(signer)];
  const certificate = await X509CertificateGenerator.create({
    subject: subject.map(([type, value]) => ({ [type]: [value] })),
    issuer: [{ CN: [issuer] }],
    notBefore,
    notAfter,
    serialNumber,
    publicKey: own.publicKey,
    signingKey: authority.privateKey,
    signingAlgorithm: ed25519,
    extensions: [
      ...extensions,
      await SubjectKeyIdentifierExtension.create(own.publicKey),
      await AuthorityKeyIdentifierExtension.create(authority.publicKey),
    ],
  });
  return Buffer.from(certificate.rawData).toString("hex");
}

/** What a certificate says: everything before its extensions, and each extension. */
function partsOf(der: string): { readonly before: string; readonly extensions: readonly string[] } {
  const { tbsCertificate } = AsnConvert.parse(Buffer.from(der, "hex"), Certificate);
  const hex = (value: object) => Buffer.from(AsnConvert.serialize(value)).toString("hex");
  const extensions = [...(tbsCertificate.extensions ?? [])].map(hex);
  tbsCertificate.extensions = new Extensions();
  return { before: hex(tbsCertificate), extensions };
}

const word = fc.string({ unit: fc.constantFrom(..."abcXYZ019 .-'()+,/:=?_@*&ü漢"), minLength: 1, maxLength: 60 });
const validity = fc
  .tuple(
    fc.date({ min: new Date("1950-01-01"), max: new Date("2060-01-01"), noInvalidDate: true }),
    fc.date({ min: new Date("2045-01-01"), max: new Date("9999-12-31T23:59:59Z"), noInvalidDate: true }),
  )
  .map(([notBefore, notAfter]) => ({ notBefore, notAfter }));
const serial = fc.stringMatching(/^0[1-9a-f]([0-9a-f]{2}){0,15}$/);

describe("certificates are what a general library writes, byte for byte", () => {
  const signer = newPrivateKey("ed25519");

  it("as authorities", async () => {
    await fc.assert(
      fc.asyncProperty(word, validity, serial, async (commonName, dates, serialNumber) => {
        const options = { commonName, serialNumber, ...dates };
        const { certPem } = await issueAuthority({ ...options, algorithm: "ed25519", keyPair: signer });
        const extensions = [
          new BasicConstraintsExtension(true, 0, true),
          new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
        ];
        const subject = [["CN", commonName]] as const;
        const names = { subject, issuer: commonName };
        expect(derOf(certPem)).toBe(
          await theirs({ ...names, ...dates, serialNumber, key: signer, signer, extensions }),
        );
      }),
      { numRuns: 20 },
    );
  });

  it("as leaves", async () => {
    const issuer = "generation 0123456789abcdef";
    const authority = await issueAuthority({
      commonName: issuer,
      algorithm: "ed25519",
      keyPair: signer,
      notBefore: new Date("2000-01-01"),
      notAfter: new Date("9999-12-31"),
    });
    const host = fc.domain({ size: "small" }).map((name) => name.toLowerCase());
    const address = fc.oneof(fc.ipV4(), fc.ipV6());
    const asked = fc.record({
      commonName: word,
      organizationalUnits: fc.array(word, { maxLength: 3 }),
      dnsNames: fc.uniqueArray(host, { maxLength: 3 }),
      ipAddresses: fc.array(address, { maxLength: 3 }),
      usages: fc.constantFrom(["server"] as const, ["client"] as const, ["server", "client"] as const),
      serialNumber: serial,
    });
    const key = newPrivateKey("ed25519");
    await fc.assert(
      fc.asyncProperty(asked, validity, async (options, dates) => {
        const { certPem, keyPem } = await issueLeaf({ ...options, ...dates, authority, keyPair: key });
        expect(keyPem).toBe(keyPemOf(key));
        // What is the same address is said once, in its shortest spelling.
        const written = new X509Certificate(certPem).getExtension(SubjectAlternativeNameExtension)?.names.items ?? [];
        const purposes = { server: "1.3.6.1.5.5.7.3.1", client: "1.3.6.1.5.5.7.3.2" };
        const subject = [
          ...options.organizationalUnits.map((unit) => ["OU", unit] as const),
          ["CN", options.commonName] as const,
        ];
        const { serialNumber, dnsNames, ipAddresses } = options;
        const addresses = new Set(
          ipAddresses.map((one) => new URL(`http://${one.includes(":") ? `[${one}]` : one}`).host),
        );
        expect(written).toHaveLength(dnsNames.length + addresses.size);
        const before = [
          new BasicConstraintsExtension(false, undefined, true),
          new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
          new ExtendedKeyUsageExtension(options.usages.map((usage) => purposes[usage])),
        ];
        const all = { subject, issuer, ...dates, serialNumber, key, signer };
        const without = await theirs({ ...all, extensions: before });
        if (written.length === 0) {
          expect(derOf(certPem)).toBe(without);
          return;
        }
        const alternatives = [
          ...dnsNames.map((value) => ({ type: "dns" as const, value })),
          ...[...addresses].map((value) => ({ type: "ip" as const, value: value.replaceAll(/[[\]]/g, "") })),
        ];
        // The names stand last, which `theirs` cannot order; the parts are compared instead.
        const [mine, reference] = [partsOf(derOf(certPem)), partsOf(without)];
        expect(mine.before).toBe(reference.before);
        expect(mine.extensions).toEqual([
          ...reference.extensions,
          Buffer.from(new SubjectAlternativeNameExtension(alternatives).rawData).toString("hex"),
        ]);
      }),
      { numRuns: 25 },
    );
  });
});
