import { createHash, hkdfSync, type KeyObject } from "node:crypto";
import { SignJWT } from "jose";
import type { SupervisorSecretFiles, WorkloadSecretFiles } from "../manifests/index.ts";
import { runtimeServerName, supervisorSecretFiles, workloadSecretFiles } from "../manifests/names.ts";
import {
  type CertificateAndKey,
  ed25519FromSeed,
  issueAuthority,
  issueLeaf,
  publicKeyPemOf,
  spkiSha256,
  unlimitedValidity,
} from "../pki/certificates.ts";

/** Names a master secret without giving it away: the first 16 hex digits of its SHA-256. */
export function masterKidOf(masterSecret: Uint8Array): string {
  return createHash("sha256").update(masterSecret).digest("hex").slice(0, 16);
}

/** What a generation signs with. A restarted gateway derives it again; it is written nowhere. */
export interface GenerationIdentity {
  readonly generationId: string;
  readonly key: KeyObject;
  readonly publicKeyPem: string;
  readonly authority: CertificateAndKey;
}

export async function generationIdentity(masterSecret: Uint8Array, generationId: string): Promise<GenerationIdentity> {
  const seed = new Uint8Array(hkdfSync("sha256", masterSecret, generationId, "openshell generation key v1", 32));
  const key = ed25519FromSeed(seed);
  const authority = await issueAuthority({
    ...unlimitedValidity,
    commonName: `generation ${generationId}`,
    algorithm: "ed25519",
    keyPair: key,
    // With an Ed25519 key and fixed dates this makes the certificate the same at every derivation.
    serialNumber: `01${generationId.slice(0, 30)}`,
  });
  return { generationId, key, publicKeyPem: publicKeyPemOf(key), authority };
}

export interface PodIdentity {
  readonly sandboxId: string;
  readonly podUid: string;
}

/** The runtime's own key pair and what it needs in order to recognise its supervisors. */
export async function workloadFiles(identity: GenerationIdentity, pod: PodIdentity): Promise<WorkloadSecretFiles> {
  const name = runtimeServerName(identity.generationId);
  const leaf = await issueLeaf({
    ...unlimitedValidity,
    authority: identity.authority,
    commonName: name,
    dnsNames: [name],
    usages: ["server"],
  });
  return {
    [workloadSecretFiles.certificate]: leaf.certPem,
    [workloadSecretFiles.key]: leaf.keyPem,
    [workloadSecretFiles.generationPublicKey]: identity.publicKeyPem,
    [workloadSecretFiles.boundaryCa]: identity.authority.certPem,
    [workloadSecretFiles.identity]: JSON.stringify({
      sandboxId: pod.sandboxId,
      generationId: identity.generationId,
      podUid: pod.podUid,
    }),
  };
}

/** One supervisor Pod's key pair, and the grant that binds it to a session. */
export async function supervisorFiles(
  identity: GenerationIdentity,
  pod: PodIdentity & { readonly session: number },
  gatewayCaPem: string | undefined,
): Promise<SupervisorSecretFiles> {
  const name = `supervisor.${identity.generationId}.openshell.internal`;
  const leaf = await issueLeaf({
    ...unlimitedValidity,
    authority: identity.authority,
    commonName: name,
    dnsNames: [name],
    usages: ["client"],
  });
  const grant = await new SignJWT({
    sandbox: pod.sandboxId,
    generation: identity.generationId,
    session: pod.session,
    pod: pod.podUid,
    tls: spkiSha256(leaf.certPem),
  })
    .setProtectedHeader({ alg: "EdDSA", typ: "openshell-grant+jwt", kid: identity.generationId })
    .sign(identity.key);
  return {
    [supervisorSecretFiles.grant]: grant,
    [supervisorSecretFiles.certificate]: leaf.certPem,
    [supervisorSecretFiles.key]: leaf.keyPem,
    [supervisorSecretFiles.boundaryCa]: identity.authority.certPem,
    ...(gatewayCaPem === undefined ? {} : { [supervisorSecretFiles.gatewayCa]: gatewayCaPem }),
  };
}
