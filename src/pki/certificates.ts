/**
 * X.509 certificates and the keys under them. Pure: dates and serial numbers are passed in or come from the platform's cryptographic
 * randomness; nothing here reads a file, a clock or a cluster.
 */
import "reflect-metadata";
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  X509Certificate,
} from "node:crypto";
import { isIP } from "node:net";
import { X509Certificate as ParsedCertificate, SubjectAlternativeNameExtension } from "@peculiar/x509";
import { OpenShellError } from "../common/errors.ts";
import {
  alternativeNames,
  authorityKeyIdentifier,
  basicConstraints,
  extendedKeyUsage,
  keyUsage,
  nameOf,
  publicKeyOf,
  signed,
  subjectKeyIdentifier,
  subjectOf,
} from "./_certificate.ts";

/** `ed25519` between our own processes; `ecdsa-p256` where clients with old TLS libraries connect. */
export type KeyAlgorithm = "ed25519" | "ecdsa-p256";

/** A certificate and its private key, both PEM (the key as PKCS #8). */
export interface CertificateAndKey {
  readonly certPem: string;
  readonly keyPem: string;
}

/** First and last instant at which a certificate holds. */
export interface Validity {
  readonly notBefore: Date;
  readonly notAfter: Date;
}

/** For identities that live and die with a generation: no clock, however skewed, makes these certificates invalid. */
export const unlimitedValidity: Validity = {
  notBefore: new Date("2000-01-01T00:00:00Z"),
  notAfter: new Date("9999-12-31T23:59:59Z"),
};

export interface AuthorityOptions extends Validity {
  readonly commonName: string;
  readonly algorithm: KeyAlgorithm;
  /** Private key of the authority. @default a new one */
  readonly keyPair?: KeyObject;
  /**
   * Serial number in hexadecimal. With it, an Ed25519 key and fixed dates the certificate is the same, byte for byte, at every call.
   * @default random
   */
  readonly serialNumber?: string;
}

/** A self-signed certificate authority that may sign leaves only. */
export async function issueAuthority(options: AuthorityOptions): Promise<CertificateAndKey> {
  const key = options.keyPair ?? newPrivateKey(options.algorithm);
  const publicKey = publicKeyOf(key);
  const name = nameOf([["CN", options.commonName]]);
  const certificate = signed(
    {
      issuer: name,
      subject: name,
      notBefore: options.notBefore,
      notAfter: options.notAfter,
      publicKey,
      ...(options.serialNumber === undefined ? {} : { serialNumber: options.serialNumber }),
      extensions: [
        basicConstraints(true),
        keyUsage(true),
        subjectKeyIdentifier(publicKey),
        authorityKeyIdentifier(publicKey),
      ],
    },
    key,
  );
  return { certPem: pemOf(certificate), keyPem: keyPemOf(key) };
}

export interface LeafOptions extends Validity {
  readonly authority: CertificateAndKey;
  readonly commonName: string;
  /** OU attributes, in order; a user's roles. @default none */
  readonly organizationalUnits?: readonly string[];
  /** Host names, or `*.` and one. @default none */
  readonly dnsNames?: readonly string[];
  /** IPv4 and IPv6 literals. @default none */
  readonly ipAddresses?: readonly string[];
  /** What the holder may do in a TLS handshake. */
  readonly usages: readonly ("server" | "client")[];
  /** @default the authority's */
  readonly algorithm?: KeyAlgorithm;
  /** Private key of the leaf. @default a new one */
  readonly keyPair?: KeyObject;
  /** Serial number in hexadecimal. @default random */
  readonly serialNumber?: string;
}

/**
 * A certificate for one TLS server, client or both, signed by `authority`.
 * @throws invalid-argument for what is no name or address, and for an authority that is none
 */
export async function issueLeaf(options: LeafOptions): Promise<CertificateAndKey> {
  const authority = certificateOf(options.authority.certPem);
  const authorityKey = privateKeyOf(options.authority.keyPem);
  const authorityAlgorithm = algorithmOf(authorityKey);
  const key = options.keyPair ?? newPrivateKey(options.algorithm ?? authorityAlgorithm);
  const publicKey = publicKeyOf(key);
  const dnsNames = [...new Set((options.dnsNames ?? []).map(canonicalName))];
  const addresses = [...new Set((options.ipAddresses ?? []).map(canonicalAddress))];
  const units = (options.organizationalUnits ?? []).map((unit) => ["OU", unit] as const);
  const certificate = signed(
    {
      issuer: subjectOf(authority.raw),
      subject: nameOf([...units, ["CN", options.commonName]]),
      notBefore: options.notBefore,
      notAfter: options.notAfter,
      publicKey,
      ...(options.serialNumber === undefined ? {} : { serialNumber: options.serialNumber }),
      extensions: [
        basicConstraints(false),
        keyUsage(false),
        extendedKeyUsage(options.usages.map((usage) => purposes[usage])),
        subjectKeyIdentifier(publicKey),
        authorityKeyIdentifier(publicKeyOf(authorityKey)),
        ...(dnsNames.length + addresses.length > 0 ? [alternativeNames(dnsNames, addresses)] : []),
      ],
    },
    authorityKey,
  );
  return { certPem: pemOf(certificate), keyPem: keyPemOf(key) };
}

/**
 * The Ed25519 private key whose seed (RFC 8032, section 5.1.5) is `seed`, so that a derived secret is a signing key.
 * @throws invalid-argument when `seed` is not 32 bytes
 */
export function ed25519FromSeed(seed: Uint8Array): KeyObject {
  if (seed.length !== 32) {
    throw new OpenShellError("invalid-argument", `an Ed25519 seed has 32 bytes, this one has ${seed.length}`);
  }
  return createPrivateKey({ key: Buffer.concat([pkcs8Ed25519Prefix, seed]), format: "der", type: "pkcs8" });
}

/** A new private key from the platform's cryptographic randomness. */
export function newPrivateKey(algorithm: KeyAlgorithm): KeyObject {
  return algorithm === "ed25519"
    ? generateKeyPairSync("ed25519").privateKey
    : generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
}

/** PKCS #8 PEM of a private key. */
export function keyPemOf(key: KeyObject): string {
  return key.export({ format: "pem", type: "pkcs8" }) as string;
}

/** SPKI PEM of the public half of a private key. */
export function publicKeyPemOf(key: KeyObject): string {
  return createPublicKey(key).export({ format: "pem", type: "spki" }) as string;
}

/** SHA-256 of the certificate's SubjectPublicKeyInfo in DER, as lower-case hexadecimal: what a session grant pins. */
export function spkiSha256(certPem: string): string {
  const spki = certificateOf(certPem).publicKey.export({ format: "der", type: "spki" });
  return createHash("sha256").update(spki).digest("hex");
}

/** True in the last third of the certificate's life, and after it. */
export function expiringSoon(certPem: string, now: Date): boolean {
  const certificate = certificateOf(certPem);
  const from = certificate.validFromDate.getTime();
  const to = certificate.validToDate.getTime();
  return now.getTime() >= to - (to - from) / 3;
}

/** Names a certificate is for. Addresses are in their canonical form. */
export interface Names {
  readonly dnsNames: readonly string[];
  readonly ipAddresses: readonly string[];
}

/** The subject alternative names of a certificate, in its order. */
export function namesOf(certPem: string): Names {
  const entries = new ParsedCertificate(certPem).getExtension(SubjectAlternativeNameExtension)?.names.items ?? [];
  return {
    dnsNames: entries.filter((entry) => entry.type === "dns").map((entry) => entry.value.toLowerCase()),
    ipAddresses: entries.filter((entry) => entry.type === "ip").map((entry) => canonicalAddress(entry.value)),
  };
}

/** True when the certificate is good for every one of `wanted` (it may have more). Wildcards are not expanded. */
export function coversNames(certPem: string, wanted: Names): boolean {
  const has = namesOf(certPem);
  return (
    wanted.dnsNames.every((name) => has.dnsNames.includes(name.toLowerCase())) &&
    wanted.ipAddresses.every((address) => has.ipAddresses.includes(canonicalAddress(address)))
  );
}

/** True when the certificate is good for `wanted` and for nothing else. */
export function hasExactlyNames(certPem: string, wanted: Names): boolean {
  const has = namesOf(certPem);
  return (
    coversNames(certPem, wanted) &&
    has.dnsNames.length === new Set(wanted.dnsNames.map((name) => name.toLowerCase())).size &&
    has.ipAddresses.length === new Set(wanted.ipAddresses.map(canonicalAddress)).size
  );
}

/** True when `leafPem` carries a signature of the authority's key. Dates are not looked at. */
export function isIssuedBy(leafPem: string, authorityPem: string): boolean {
  return certificateOf(leafPem).verify(certificateOf(authorityPem).publicKey);
}

/** True when the key belongs to the certificate. */
export function isKeyOf(keyPem: string, certPem: string): boolean {
  return certificateOf(certPem).checkPrivateKey(privateKeyOf(keyPem));
}

/** Each certificate of a PEM bundle, in order. Empty when there is none. */
export function certificatesIn(bundlePem: string): string[] {
  return (bundlePem.match(/-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g) ?? []).map(
    (pem) => `${pem}\n`,
  );
}

/**
 * @throws invalid-argument when `certPem` holds no certificate
 */
export function certificateOf(certPem: string): X509Certificate {
  try {
    return new X509Certificate(certPem);
  } catch (cause) {
    throw new OpenShellError("invalid-argument", "expected a PEM certificate (-----BEGIN CERTIFICATE-----)", { cause });
  }
}

/**
 * @throws invalid-argument when `keyPem` holds no private key
 */
export function privateKeyOf(keyPem: string): KeyObject {
  try {
    return createPrivateKey(keyPem);
  } catch (cause) {
    throw new OpenShellError("invalid-argument", "expected a PEM private key (-----BEGIN PRIVATE KEY-----)", { cause });
  }
}

const pkcs8Ed25519Prefix = Buffer.from("302e020100300506032b657004220420", "hex");
const purposes = { server: "1.3.6.1.5.5.7.3.1", client: "1.3.6.1.5.5.7.3.2" } as const;

function algorithmOf(key: KeyObject): KeyAlgorithm {
  if (key.asymmetricKeyType === "ed25519") return "ed25519";
  if (key.asymmetricKeyType === "ec" && key.asymmetricKeyDetails?.namedCurve === "prime256v1") return "ecdsa-p256";
  throw new OpenShellError(
    "invalid-argument",
    `an authority's key must be Ed25519 or ECDSA P-256, this one is ${key.asymmetricKeyType}`,
  );
}

const dnsLabel = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?";
const dnsName = new RegExp(`^(\\*\\.)?${dnsLabel}(\\.${dnsLabel})*$`);

/** A host name in lower case, or all directly below one. Other text might pass for several names where they are listed. */
function canonicalName(name: string): string {
  const canonical = name.toLowerCase();
  if (canonical.length <= 253 && dnsName.test(canonical)) return canonical;
  throw new OpenShellError("invalid-argument", `${JSON.stringify(name)} is not a DNS name`);
}

/** IPv6 as RFC 5952 writes it, so that two spellings of one address are equal. */
function canonicalAddress(address: string): string {
  const family = isIP(address);
  // Node takes an address with a zone for one, which no certificate can name.
  if (family === 0 || address.includes("%")) {
    throw new OpenShellError("invalid-argument", `${JSON.stringify(address)} is not an IP address`);
  }
  return family === 4 ? address : new URL(`http://[${address}]`).hostname.slice(1, -1);
}

function pemOf(certificate: Buffer): string {
  const lines = certificate.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}
