import { createHash, X509Certificate } from "node:crypto";
import { OpenShellError } from "../../common/errors.ts";
import { type UserPrincipal, type UserRole, userRoles } from "./principal.ts";

const clientAuthUsage = "1.3.6.1.5.5.7.3.2";
const remembered = 1024;

interface Known {
  readonly user: UserPrincipal;
  readonly notBefore: number;
  readonly notAfter: number;
}

/**
 * Knows users by their client certificates. TLS has proved that the peer holds the key; whether the certificate counts is decided here:
 * issued and signed by one of our client CAs, both within their dates, and meant for clients.
 */
export class ClientCertificates {
  #authorities: readonly X509Certificate[] = [];
  #known = new Map<string, Known>();

  /** @param bundle one or more CA certificates as PEM; replaces the ones before */
  trust(bundle: string): void {
    const blocks = bundle.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
    if (blocks.length === 0) {
      throw new OpenShellError("invalid-argument", "the client CA file holds no PEM certificate");
    }
    this.#authorities = blocks.map((block) => new X509Certificate(block));
    this.#known = new Map();
  }

  /**
   * The user a certificate names.
   * @param der the certificate as the peer sent it
   * @throws unauthenticated with the reason it does not count
   */
  identify(der: Uint8Array, nowMs: number): UserPrincipal {
    const key = createHash("sha256").update(der).digest("base64");
    const known = this.#known.get(key) ?? this.#check(der, nowMs);
    if (nowMs < known.notBefore || nowMs > known.notAfter) throw refused("is expired or not valid yet");
    if (this.#known.size >= remembered) this.#known.clear();
    this.#known.set(key, known);
    return known.user;
  }

  #check(der: Uint8Array, nowMs: number): Known {
    const certificate = parse(der);
    const issuer = this.#authorities.find(
      (authority) => authority.ca && certificate.checkIssued(authority) && certificate.verify(authority.publicKey),
    );
    if (issuer === undefined) throw refused("was not issued by this gateway's client CA");
    const notBefore = Math.max(certificate.validFromDate.getTime(), issuer.validFromDate.getTime());
    const notAfter = Math.min(certificate.validToDate.getTime(), issuer.validToDate.getTime());
    if (nowMs < notBefore || nowMs > notAfter) throw refused("is expired or not valid yet");
    const usages = certificate.keyUsage as readonly string[] | undefined;
    if (usages !== undefined && usages.length > 0 && !usages.includes(clientAuthUsage)) {
      throw refused("is not meant for clients (extended key usage)");
    }
    return { user: userOf(certificate), notBefore, notAfter };
  }
}

function parse(der: Uint8Array): X509Certificate {
  try {
    return new X509Certificate(der);
  } catch (cause) {
    throw new OpenShellError("unauthenticated", "the client certificate cannot be read", { cause });
  }
}

function userOf(certificate: X509Certificate): UserPrincipal {
  const subject = certificate.toLegacyObject().subject as unknown as Record<string, string | string[] | undefined>;
  const [name] = listOf(subject.CN);
  if (name === undefined || name.trim() === "") throw refused("has no common name");
  const units = listOf(subject.OU);
  const roles = userRoles.filter((role): role is UserRole => units.includes(role));
  return { kind: "user", subject: name, roles, provider: "mtls" };
}

function listOf(value: string | string[] | undefined): readonly string[] {
  if (value === undefined) return [];
  return Array.isArray(value) ? value : [value];
}

function refused(why: string): OpenShellError {
  return new OpenShellError("unauthenticated", `the client certificate ${why}`, { reason: "ClientCertificateRefused" });
}
