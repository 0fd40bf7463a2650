/** What has to change so that every Secret is there, names what it should and outlives the next upgrade. Pure. */
import { OpenShellError } from "../common/errors.ts";
import {
  certificateOf,
  certificatesIn,
  expiringSoon,
  hasExactlyNames,
  isIssuedBy,
  isKeyOf,
  type Names,
} from "./certificates.ts";
import { entry, type PkiState, type SecretState } from "./secrets.ts";

export interface PkiRequest {
  /** Names under which clients reach the gateway. */
  readonly serverNames: Names;
}

/**
 * What happens to the authority. It is renewed with overlap: in the last third of its life a next one is made and trusted beside it
 * (`stage-next`); in the last sixth the next one begins to sign (`promote`), and the old certificate stays trusted until it expires.
 */
export type AuthorityStep =
  | { readonly action: "keep" }
  | { readonly action: "create" | "stage-next" | "promote"; readonly reason: string };

/** What happens to a certificate under the authority. */
export type LeafStep = { readonly action: "keep" } | { readonly action: "issue"; readonly reason: string };

/** What happens to a key that other things depend on: made once, never replaced. */
export type KeyStep = { readonly action: "keep" } | { readonly action: "create"; readonly reason: string };

export interface PkiPlan {
  readonly authority: AuthorityStep;
  readonly server: LeafStep;
  readonly client: LeafStep;
  readonly jwtKeys: KeyStep;
  readonly masterSecret: KeyStep;
  readonly keyEncryptionKey: KeyStep;
}

const keep = { action: "keep" } as const;

/**
 * @throws failed-precondition when a Secret holds something that must not be replaced and cannot be used either
 */
export function planPki(state: PkiState, request: PkiRequest, now: Date): PkiPlan {
  const authority = planAuthority(state.ca, now);
  const signer = signerAfter(authority, state.ca);
  return {
    authority,
    server: planLeaf(state["server-tls"], signer, now, request.serverNames),
    client: planLeaf(state["client-tls"], signer, now),
    jwtKeys: planKey(state["jwt-keys"], entry.jwtSigningKey, isJwtKey),
    masterSecret: planKey(state.keys, entry.masterSecret, isKeyOf32Bytes),
    keyEncryptionKey: planKey(state.keys, entry.keyEncryptionKey, isKeyOf32Bytes),
  };
}

function planAuthority(secret: SecretState | undefined, now: Date): AuthorityStep {
  if (secret !== undefined && !secret.managed) return keep;
  const current = secret?.data[entry.certificate] ?? "";
  const key = secret?.data[entry.privateKey] ?? "";
  if (current === "" && key === "") return { action: "create", reason: "there is none yet" };
  if (!isPair(current, key)) {
    throw new OpenShellError(
      "failed-precondition",
      "the authority's Secret holds no certificate with its key; restore it from a backup, or delete it to begin with a new authority (every client must then be given the new ca.crt)",
    );
  }
  const { validFromDate, validToDate } = certificateOf(current);
  const left = validToDate.getTime() - now.getTime();
  const life = validToDate.getTime() - validFromDate.getTime();
  const hasNext = isPair(secret?.data[entry.nextCertificate] ?? "", secret?.data[entry.nextPrivateKey] ?? "");
  if (hasNext && left <= life / 6)
    return { action: "promote", reason: "the authority is in the last sixth of its life" };
  if (!hasNext && left <= life / 3) {
    return { action: "stage-next", reason: "the authority is in the last third of its life" };
  }
  return keep;
}

/** The certificate that signs after `step`, when it exists already. */
function signerAfter(step: AuthorityStep, secret: SecretState | undefined): string | undefined {
  if (step.action === "create") return undefined;
  return secret?.data[step.action === "promote" ? entry.nextCertificate : entry.certificate];
}

function planLeaf(secret: SecretState | undefined, signer: string | undefined, now: Date, names?: Names): LeafStep {
  if (secret !== undefined && !secret.managed) return keep;
  const certificate = secret?.data[entry.certificate] ?? "";
  if (certificate === "") return { action: "issue", reason: "there is none yet" };
  if (!isPair(certificate, secret?.data[entry.privateKey] ?? "")) {
    return { action: "issue", reason: "the Secret holds no certificate with its key" };
  }
  if (signer === undefined || !isIssuedBy(certificate, signer)) {
    return { action: "issue", reason: "another authority signed it" };
  }
  if (names !== undefined && !hasExactlyNames(certificate, names)) {
    return { action: "issue", reason: "its names changed" };
  }
  if (expiringSoon(certificate, now)) return { action: "issue", reason: "it is in the last third of its life" };
  return keep;
}

function planKey(secret: SecretState | undefined, key: string, isUsable: (text: string) => boolean): KeyStep {
  if (secret !== undefined && !secret.managed) return keep;
  const value = secret?.data[key] ?? "";
  if (value === "") return { action: "create", reason: "there is none yet" };
  if (isUsable(value)) return keep;
  throw new OpenShellError(
    "failed-precondition",
    `${key} exists and is not usable; it is never replaced, because what it protects would be lost: restore the Secret from a backup`,
  );
}

/** Authorities to trust at `now`: the one that signs, the next one, and former ones that have not expired. */
export function trustedBundle(ca: SecretState["data"], now: Date): string {
  const certificates = [
    ca[entry.certificate] ?? "",
    ca[entry.nextCertificate] ?? "",
    ...certificatesIn(ca[entry.previousCertificates] ?? ""),
  ];
  return certificates.filter((pem) => pem !== "" && certificateOf(pem).validToDate > now).join("");
}

function isPair(certPem: string, keyPem: string): boolean {
  try {
    return isKeyOf(keyPem, certPem);
  } catch {
    // Not PEM at all: the caller says what that means for this Secret.
    return false;
  }
}

function isJwtKey(pem: string): boolean {
  return pem.includes("-----BEGIN PRIVATE KEY-----");
}

function isKeyOf32Bytes(text: string): boolean {
  return Buffer.from(text, "base64").length === 32;
}
