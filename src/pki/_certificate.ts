import { createHash, createPublicKey, type KeyObject, randomBytes, sign } from "node:crypto";
import { isIPv4 } from "node:net";
import {
  bits,
  elementsIn,
  identifier,
  integer,
  octets,
  sequence,
  setOf,
  tagged,
  taggedPrimitive,
  text,
  time,
  yes,
} from "./_der.ts";

/** One certificate (RFC 5280), before it is signed. */
export interface CertificateContents {
  /** Hexadecimal. @default random */
  readonly serialNumber?: string;
  /** DER of a Name. */
  readonly issuer: Buffer;
  readonly subject: Buffer;
  readonly notBefore: Date;
  readonly notAfter: Date;
  /** DER of a SubjectPublicKeyInfo. */
  readonly publicKey: Buffer;
  readonly extensions: readonly Buffer[];
}

/** The certificate in DER, signed with an Ed25519 or ECDSA P-256 key. */
export function signed(contents: CertificateContents, key: KeyObject): Buffer {
  const isEd25519 = key.asymmetricKeyType === "ed25519";
  const algorithm = sequence(identifier(isEd25519 ? "1.3.101.112" : "1.2.840.10045.4.3.2"));
  const { serialNumber, issuer, subject, notBefore, notAfter, publicKey, extensions } = contents;
  const body = sequence(
    tagged(0, integer(Buffer.from([2]))),
    integer(serialNumber === undefined ? randomSerial() : hex(serialNumber)),
    algorithm,
    issuer,
    sequence(time(notBefore), time(notAfter)),
    subject,
    publicKey,
    tagged(3, sequence(...extensions)),
  );
  return sequence(body, algorithm, bits(sign(isEd25519 ? null : "sha256", body, key)));
}

/** Positive and never zero, as every verifier wants it. */
function randomSerial(): Buffer {
  return Buffer.concat([Buffer.from([0x01]), randomBytes(15)]);
}

function hex(digits: string): Buffer {
  return Buffer.from(digits.padStart(digits.length + (digits.length % 2), "0"), "hex");
}

const attributes = { CN: "2.5.4.3", OU: "2.5.4.11" } as const;

/** A Name of these attributes, in order. */
export function nameOf(parts: readonly (readonly [keyof typeof attributes, string])[]): Buffer {
  return sequence(...parts.map(([type, value]) => setOf(sequence(identifier(attributes[type]), text(value)))));
}

/** DER of the public half of a private key. */
export function publicKeyOf(key: KeyObject): Buffer {
  return createPublicKey(key).export({ format: "der", type: "spki" }) as Buffer;
}

/** The subject of a certificate as it stands there, byte for byte: verifiers compare issuer and subject so. */
export function subjectOf(certificate: Buffer): Buffer {
  const [whole] = elementsIn(certificate);
  const [body] = elementsIn(whole?.content ?? Buffer.alloc(0));
  const parts = elementsIn(body?.content ?? Buffer.alloc(0));
  // Version (tagged, in every certificate with extensions), serial number, algorithm, issuer, validity, subject.
  const subject = parts[5]?.whole;
  if (subject === undefined) throw new RangeError("the certificate has no subject");
  return subject;
}

function extension(dotted: string, critical: boolean, value: Buffer): Buffer {
  return sequence(identifier(dotted), ...(critical ? [yes] : []), octets(value));
}

/** @param authority may sign leaves, and no further authorities */
export function basicConstraints(authority: boolean): Buffer {
  return extension("2.5.29.19", true, authority ? sequence(yes, integer(Buffer.from([0]))) : sequence());
}

/** An authority signs certificates and revocation lists, a leaf handshakes. */
export function keyUsage(authority: boolean): Buffer {
  return extension("2.5.29.15", true, authority ? bits(Buffer.from([0x06]), 1) : bits(Buffer.from([0x80]), 7));
}

export function extendedKeyUsage(purposes: readonly string[]): Buffer {
  return extension("2.5.29.37", false, sequence(...purposes.map(identifier)));
}

export function subjectKeyIdentifier(publicKey: Buffer): Buffer {
  return extension("2.5.29.14", false, octets(keyIdentifier(publicKey)));
}

export function authorityKeyIdentifier(publicKey: Buffer): Buffer {
  return extension("2.5.29.35", false, sequence(taggedPrimitive(0, keyIdentifier(publicKey))));
}

/** SHA-1 of the key's bits (RFC 5280, 4.2.1.2, method 1): a name, not a safeguard. */
function keyIdentifier(publicKey: Buffer): Buffer {
  const [whole] = elementsIn(publicKey);
  const [, key] = elementsIn(whole?.content ?? Buffer.alloc(0));
  return createHash("sha1")
    .update(key?.content.subarray(1) ?? "")
    .digest();
}

export function alternativeNames(dnsNames: readonly string[], addresses: readonly string[]): Buffer {
  return extension(
    "2.5.29.17",
    false,
    sequence(
      ...dnsNames.map((name) => taggedPrimitive(2, Buffer.from(name, "latin1"))),
      ...addresses.map((address) => taggedPrimitive(7, addressBytes(address))),
    ),
  );
}

/** @param address IPv4, or IPv6 as RFC 5952 writes it */
function addressBytes(address: string): Buffer {
  if (isIPv4(address)) return Buffer.from(address.split(".").map(Number));
  const [head = "", tail] = address.split("::");
  const groupsOf = (part: string) => (part === "" ? [] : part.split(":"));
  const [before, after] = [groupsOf(head), groupsOf(tail ?? "")];
  const groups = [...before, ...Array<string>(8 - before.length - after.length).fill("0"), ...after];
  return Buffer.from(groups.map((group) => group.padStart(4, "0")).join(""), "hex");
}
