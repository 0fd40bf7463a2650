/** The content of every Secret after a plan. The only place that makes keys; it reads and writes nothing. */
import { createHash, createPublicKey, randomBytes } from "node:crypto";
import {
  type CertificateAndKey,
  certificateOf,
  issueAuthority,
  issueLeaf,
  keyPemOf,
  newPrivateKey,
  privateKeyOf,
  publicKeyPemOf,
} from "./certificates.ts";
import { type LeafStep, type PkiPlan, type PkiRequest, trustedBundle } from "./plan.ts";
import { entry, hangsOnAuthority, type PkiState, type SecretRole, type SecretState, secretRoles } from "./secrets.ts";

const day = 24 * 60 * 60 * 1000;
/** Only an install or upgrade renews, so a certificate must outlive the longest pause between two upgrades by its last third. */
const leafDays = 3 * 365;
const authorityDays = 10 * 365;
/** A node whose clock is behind must accept what was just issued. */
const clockSkew = 60 * 60 * 1000;

export type Data = Record<string, string>;

/** The content of every Secret after the plan. Secrets of an operator are left out. */
export async function carryOut(
  plan: PkiPlan,
  state: PkiState,
  request: PkiRequest,
  now: Date,
): Promise<{ [role in SecretRole]?: Data }> {
  const ca = await nextAuthority(plan, state.ca?.data ?? {}, now);
  const isOurs = (role: SecretRole) => state[role]?.managed !== false;
  const bundle = hangsOnAuthority(state) ? trustedBundle(ca, now) : "";
  const dataOf = (role: SecretRole) => state[role]?.data ?? {};
  const leaf = (step: LeafStep, role: SecretRole, issue: (signer: CertificateAndKey) => Promise<CertificateAndKey>) =>
    step.action === "keep" ? Promise.resolve(dataOf(role)) : issue(signerOf(ca)).then(tlsData);
  const server = await leaf(plan.server, "server-tls", (authority) =>
    issueLeaf({
      authority,
      commonName: "openshell-gateway",
      dnsNames: request.serverNames.dnsNames,
      ipAddresses: request.serverNames.ipAddresses,
      usages: ["server"],
      ...leafValidity(authority, now),
    }),
  );
  const client = await leaf(plan.client, "client-tls", (authority) =>
    issueLeaf({
      authority,
      commonName: "openshell-admin",
      organizationalUnits: ["platform-admin"],
      usages: ["client"],
      ...leafValidity(authority, now),
    }),
  );
  const all: Record<SecretRole, Data> = {
    ca,
    "server-tls": { ...server, [entry.bundle]: bundle },
    "server-client-ca": { [entry.bundle]: bundle },
    "client-tls": { ...client, [entry.bundle]: bundle },
    "jwt-keys": jwtKeys(plan, isOurs("jwt-keys") ? dataOf("jwt-keys") : {}),
    keys: {
      ...dataOf("keys"),
      ...(plan.masterSecret.action === "keep" ? {} : { [entry.masterSecret]: newSecretKey() }),
      ...(plan.keyEncryptionKey.action === "keep" ? {} : { [entry.keyEncryptionKey]: newSecretKey() }),
    },
  };
  return Object.fromEntries(secretRoles.filter(isOurs).map((role) => [role, all[role]]));
}

async function nextAuthority(plan: PkiPlan, current: SecretState["data"], now: Date): Promise<Data> {
  const make = () =>
    issueAuthority({
      commonName: "OpenShell authority",
      algorithm: "ecdsa-p256",
      notBefore: new Date(now.getTime() - clockSkew),
      notAfter: new Date(now.getTime() + authorityDays * day),
    });
  switch (plan.authority.action) {
    case "keep":
      return { ...current };
    case "create":
      return tlsData(await make());
    case "stage-next": {
      const next = await make();
      return { ...current, [entry.nextCertificate]: next.certPem, [entry.nextPrivateKey]: next.keyPem };
    }
    case "promote":
      return {
        [entry.certificate]: current[entry.nextCertificate] ?? "",
        [entry.privateKey]: current[entry.nextPrivateKey] ?? "",
        [entry.previousCertificates]: `${current[entry.certificate] ?? ""}${current[entry.previousCertificates] ?? ""}`,
      };
  }
}

/** @param ca of which the plan has seen that it can sign */
function signerOf(ca: Data): CertificateAndKey {
  return { certPem: ca[entry.certificate] ?? "", keyPem: ca[entry.privateKey] ?? "" };
}

function leafValidity(authority: CertificateAndKey, now: Date) {
  const authorityEnd = certificateOf(authority.certPem).validToDate.getTime();
  return {
    notBefore: new Date(now.getTime() - clockSkew),
    notAfter: new Date(Math.min(now.getTime() + leafDays * day, authorityEnd)),
  };
}

function tlsData(issued: CertificateAndKey): Data {
  return { [entry.certificate]: issued.certPem, [entry.privateKey]: issued.keyPem };
}

/** The signing key is kept, and so is the name of it that tokens carry; what else follows from it is made anew. */
function jwtKeys(plan: PkiPlan, before: SecretState["data"]): Data {
  const kept = plan.jwtKeys.action === "keep" ? before : {};
  const signing = kept[entry.jwtSigningKey] ?? "";
  const key = signing === "" ? newPrivateKey("ed25519") : privateKeyOf(signing);
  const spki = createPublicKey(key).export({ format: "der", type: "spki" });
  return {
    ...kept,
    [entry.jwtSigningKey]: signing || keyPemOf(key),
    [entry.jwtPublicKey]: publicKeyPemOf(key),
    [entry.jwtKeyId]: kept[entry.jwtKeyId] || createHash("sha256").update(spki).digest("hex").slice(0, 16),
  };
}

/** 256 random bits as base64 text, so that the file can be read, copied and restored as text. */
function newSecretKey(): string {
  return randomBytes(32).toString("base64");
}
