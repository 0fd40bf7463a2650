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
  privateKeyOf,
} from "./certificates.ts";
import { entry, hangsOnAuthority, type PkiState, type SecretState, secretName } from "./secrets.ts";

export interface PkiRequest {
  /** Names under which clients reach the gateway. */
  readonly serverNames: Names;
  /** Begins the name of every Secret, for what is said of one. */
  readonly prefix: string;
}

/**
 * What happens to the authority. It is renewed with overlap: in the last third of its life a next one is made and trusted beside it
 * (`stage-next`); in the last sixth the next one begins to sign (`promote`), and the old certificate stays trusted until it expires.
 */
export type AuthorityStep =
  | { readonly action: "keep"; readonly warning?: string }
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
 * @throws failed-precondition when a Secret holds something that must not be replaced and cannot be used either, or an operator's authority
 * cannot sign
 */
export function planPki(state: PkiState, request: PkiRequest, now: Date): PkiPlan {
  const authority = planAuthority(state, request, now);
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

function planAuthority(state: PkiState, { prefix }: PkiRequest, now: Date): AuthorityStep {
  const secret = state.ca;
  if (secret?.managed === false) {
    return hangsOnAuthority(state) ? planOperatorsAuthority(secret, secretName(prefix, "ca"), now) : keep;
  }
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
  const next = secret?.data[entry.nextCertificate] ?? "";
  const hasNext = isPair(next, secret?.data[entry.nextPrivateKey] ?? "");
  // Nothing that either signs would hold, and there is nobody left who trusts them.
  if (left <= 0 && !(hasNext && !hasEnded(next, now))) return { action: "create", reason: "the authority has ended" };
  if (hasNext && left <= life / 6)
    return { action: "promote", reason: "the authority is in the last sixth of its life" };
  if (!hasNext && left <= life / 3) {
    return { action: "stage-next", reason: "the authority is in the last third of its life" };
  }
  return keep;
}

/** It is used as it is, or not at all. */
function planOperatorsAuthority({ data }: SecretState, name: string, now: Date): AuthorityStep {
  const certificate = data[entry.certificate] ?? "";
  const why = whyNoSigner(certificate, data[entry.privateKey] ?? "", now);
  if (why !== undefined) {
    throw new OpenShellError(
      "failed-precondition",
      `the operator's authority, Secret ${name}, ${why}: give one that can sign, or give the Secrets with the certificates themselves`,
    );
  }
  if (!expiringSoon(certificate, now)) return keep;
  const warning = `the operator's authority, Secret ${name}, ends on ${endOf(certificate)} and is not renewed here: put a next one into the Secret before`;
  return { action: "keep", warning };
}

function whyNoSigner(certificate: string, key: string, now: Date): string | undefined {
  const places = [entry.certificate, entry.privateKey] as const;
  if (certificate === "" || key === "") return `lacks ${places.join(" or ")}`;
  if (!isPair(certificate, key)) return `holds no PEM certificate with its key in ${places.join(" and ")}`;
  if (!certificateOf(certificate).ca) return "holds a certificate that may not sign others";
  return hasEnded(certificate, now) ? `ended on ${endOf(certificate)}` : undefined;
}

function endOf(certificate: string): string {
  return certificateOf(certificate).validToDate.toISOString().slice(0, 10);
}

function hasEnded(certificate: string, now: Date): boolean {
  return certificateOf(certificate).validToDate <= now;
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
  return certificates.filter((pem) => pem !== "" && !hasEnded(pem, now)).join("");
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
  try {
    return privateKeyOf(pem).type === "private";
  } catch {
    // Not PEM at all, as above.
    return false;
  }
}

function isKeyOf32Bytes(text: string): boolean {
  return Buffer.from(text, "base64").length === 32;
}
