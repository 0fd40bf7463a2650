import { createHash, createPublicKey, type KeyObject, randomBytes, sign } from "node:crypto";
import { AsnConvert, OctetString } from "@peculiar/asn1-schema";
import {
  AlgorithmIdentifier,
  AttributeTypeAndValue,
  AttributeValue,
  AuthorityKeyIdentifier,
  BasicConstraints,
  Certificate,
  ExtendedKeyUsage,
  Extension,
  Extensions,
  GeneralName,
  id_ce_authorityKeyIdentifier,
  id_ce_basicConstraints,
  id_ce_extKeyUsage,
  id_ce_keyUsage,
  id_ce_subjectAltName,
  id_ce_subjectKeyIdentifier,
  KeyIdentifier,
  KeyUsage,
  KeyUsageFlags,
  Name,
  RelativeDistinguishedName,
  SubjectAlternativeName,
  SubjectKeyIdentifier,
  SubjectPublicKeyInfo,
  TBSCertificate,
  Validity,
  Version,
} from "@peculiar/asn1-x509";

/** One certificate (RFC 5280), before it is signed. */
export interface CertificateContents {
  /** Hexadecimal. @default random */
  readonly serialNumber?: string;
  readonly issuer: Name;
  readonly subject: Name;
  readonly notBefore: Date;
  readonly notAfter: Date;
  readonly publicKey: SubjectPublicKeyInfo;
  readonly extensions: readonly Extension[];
}

/** The certificate in DER, signed with an Ed25519 or ECDSA P-256 key. */
export function signed(contents: CertificateContents, key: KeyObject): Buffer {
  const isEd25519 = key.asymmetricKeyType === "ed25519";
  const signatureAlgorithm = new AlgorithmIdentifier({ algorithm: isEd25519 ? "1.3.101.112" : "1.2.840.10045.4.3.2" });
  const { serialNumber, issuer, subject, notBefore, notAfter, publicKey, extensions } = contents;
  const tbsCertificate = new TBSCertificate({
    version: Version.v3,
    serialNumber: serialNumber === undefined ? randomSerial() : exact(Buffer.from(serialNumber, "hex")),
    signature: signatureAlgorithm,
    issuer,
    validity: new Validity({ notBefore, notAfter }),
    subject,
    subjectPublicKeyInfo: publicKey,
    extensions: new Extensions([...extensions]),
  });
  const body = Buffer.from(AsnConvert.serialize(tbsCertificate));
  const signatureValue = exact(sign(isEd25519 ? null : "sha256", body, key));
  return Buffer.from(AsnConvert.serialize(new Certificate({ tbsCertificate, signatureAlgorithm, signatureValue })));
}

/** Positive and never zero, as every verifier wants it. */
function randomSerial(): ArrayBuffer {
  return exact(Buffer.concat([Buffer.from([0x01]), randomBytes(15)]));
}

/** The library takes the buffer under a view for its bytes. */
function exact(view: Uint8Array): ArrayBuffer {
  return new Uint8Array(view).buffer;
}

const attributes = { CN: "2.5.4.3", OU: "2.5.4.11" } as const;

/** A Name of these attributes, in order. */
export function nameOf(parts: readonly (readonly [keyof typeof attributes, string])[]): Name {
  return new Name(
    parts.map(([type, text]) => {
      const value = new AttributeValue(isPrintable(text) ? { printableString: text } : { utf8String: text });
      return new RelativeDistinguishedName([new AttributeTypeAndValue({ type: attributes[type], value })]);
    }),
  );
}

/** PrintableString has few characters; UTF8String is for the others. */
function isPrintable(text: string): boolean {
  return /^[A-Za-z0-9 '()+,./:=?-]*$/.test(text);
}

/** The public half of a private key. */
export function publicKeyOf(key: KeyObject): SubjectPublicKeyInfo {
  return AsnConvert.parse(createPublicKey(key).export({ format: "der", type: "spki" }) as Buffer, SubjectPublicKeyInfo);
}

/** The subject of a certificate in DER. */
export function subjectOf(certificate: Buffer): Name {
  return AsnConvert.parse(certificate, Certificate).tbsCertificate.subject;
}

function extension(extnID: string, critical: boolean, value: object): Extension {
  return new Extension({ extnID, critical, extnValue: new OctetString(AsnConvert.serialize(value)) });
}

/** @param authority may sign leaves, and no further authorities */
export function basicConstraints(authority: boolean): Extension {
  const value = new BasicConstraints(authority ? { cA: true, pathLenConstraint: 0 } : {});
  return extension(id_ce_basicConstraints, true, value);
}

/** An authority signs certificates and revocation lists, a leaf handshakes. */
export function keyUsage(authority: boolean): Extension {
  const flags = authority ? KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign : KeyUsageFlags.digitalSignature;
  return extension(id_ce_keyUsage, true, new KeyUsage(flags));
}

export function extendedKeyUsage(purposes: readonly string[]): Extension {
  return extension(id_ce_extKeyUsage, false, new ExtendedKeyUsage([...purposes]));
}

export function subjectKeyIdentifier(publicKey: SubjectPublicKeyInfo): Extension {
  return extension(id_ce_subjectKeyIdentifier, false, new SubjectKeyIdentifier(keyIdentifier(publicKey)));
}

export function authorityKeyIdentifier(publicKey: SubjectPublicKeyInfo): Extension {
  const value = new AuthorityKeyIdentifier({ keyIdentifier: new KeyIdentifier(keyIdentifier(publicKey)) });
  return extension(id_ce_authorityKeyIdentifier, false, value);
}

/** SHA-1 of the key's bits (RFC 5280, 4.2.1.2, method 1): a name, not a safeguard. */
function keyIdentifier(publicKey: SubjectPublicKeyInfo): ArrayBuffer {
  return exact(createHash("sha1").update(Buffer.from(publicKey.subjectPublicKey)).digest());
}

/** @param addresses IPv4 and IPv6 literals */
export function alternativeNames(dnsNames: readonly string[], addresses: readonly string[]): Extension {
  return extension(
    id_ce_subjectAltName,
    false,
    new SubjectAlternativeName([
      ...dnsNames.map((dNSName) => new GeneralName({ dNSName })),
      ...addresses.map((iPAddress) => new GeneralName({ iPAddress })),
    ]),
  );
}
