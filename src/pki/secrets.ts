/** The Secrets that the hook Job keeps, and what is in them. */

/** Marks a Secret as ours to change. A Secret of the same name without it belongs to an operator and is never written. */
export const managedByLabel = "openshell.ai/managed-by";
export const managedByValue = "openshell-pki";

/** Which Secret: its name is `<prefix>-<role>`. */
export const secretRoles = ["ca", "server-tls", "server-client-ca", "client-tls", "jwt-keys", "keys"] as const;
export type SecretRole = (typeof secretRoles)[number];

export function secretName(prefix: string, role: SecretRole): string {
  return `${prefix}-${role}`;
}

/** `kubernetes.io/tls` where Kubernetes has a type for it; a Secret's type can never be changed. */
export const secretTypes: Readonly<Record<SecretRole, "kubernetes.io/tls" | "Opaque">> = {
  ca: "kubernetes.io/tls",
  "server-tls": "kubernetes.io/tls",
  "server-client-ca": "Opaque",
  "client-tls": "kubernetes.io/tls",
  "jwt-keys": "Opaque",
  keys: "Opaque",
};

/** Keys inside the Secrets. */
export const entry = {
  certificate: "tls.crt",
  privateKey: "tls.key",
  /** Authorities to trust, the current one first. */
  bundle: "ca.crt",
  /** The authority that signs after the current one; trusted already, so that nobody is surprised on that day. */
  nextCertificate: "next.crt",
  nextPrivateKey: "next.key",
  /** Authorities that signed before and have not expired. */
  previousCertificates: "previous.crt",
  jwtSigningKey: "signing.pem",
  jwtPublicKey: "public.pem",
  jwtKeyId: "kid",
  masterSecret: "master-secret",
  keyEncryptionKey: "key-encryption-key",
} as const;

/** What is known of one Secret: its text by key. */
export interface SecretState {
  /** Carries our label, so that it may be written. */
  readonly managed: boolean;
  readonly data: Readonly<Record<string, string>>;
}

/** The Secrets that exist, by role. */
export type PkiState = { readonly [role in SecretRole]?: SecretState };

/** Whether anything that may be written is signed by the authority, or is a copy of its certificate. */
export function hangsOnAuthority(state: PkiState): boolean {
  return (["server-tls", "server-client-ca", "client-tls"] as const).some((role) => state[role]?.managed !== false);
}
