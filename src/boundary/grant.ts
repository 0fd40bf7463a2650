import { createHash, X509Certificate } from "node:crypto";
import { compactVerify, importSPKI } from "jose";
import * as z from "zod/mini";
import { OpenShellError } from "../common/errors.ts";

/**
 * What a session grant says: this supervisor Pod, holding this TLS key, has this session of this generation. Signed with EdDSA by the
 * generation key; it does not expire, since the boundary lives as long as the generation.
 */
export const sessionGrantClaims = z.object({
  /** Sandbox id. */
  sandbox: z.string().check(z.minLength(1)),
  /** Generation id. */
  generation: z.string().check(z.minLength(1)),
  /** 1 for the first supervisor of a generation, one more for each replacement. */
  session: z.int().check(z.minimum(1)),
  /** UID of the supervisor Pod. */
  pod: z.string().check(z.minLength(1)),
  /** SHA-256 of the supervisor certificate's SubjectPublicKeyInfo, in hex. */
  tls: z.string().check(z.regex(/^[0-9a-f]{64}$/)),
});

export type SessionGrant = z.infer<typeof sessionGrantClaims>;

/**
 * The claims of a grant whose signature is the generation's.
 * @param publicKeyPem the generation's Ed25519 key as SPKI PEM
 * @throws permission-denied when it is no grant of this key
 */
export async function verifySessionGrant(jws: string, publicKeyPem: string): Promise<SessionGrant> {
  try {
    const key = await importSPKI(publicKeyPem, "EdDSA");
    const { payload } = await compactVerify(jws, key, { algorithms: ["EdDSA"] });
    return sessionGrantClaims.parse(JSON.parse(new TextDecoder().decode(payload)));
  } catch (cause) {
    throw new OpenShellError("permission-denied", "the session grant is not one of this generation", {
      reason: "BadGrant",
      cause,
    });
  }
}

/** SHA-256 of a certificate's public key (SPKI, DER) in hex, as a grant's `tls` has it. */
export function tlsKeyHash(certificate: Uint8Array | string): string {
  const spki = new X509Certificate(certificate).publicKey.export({ type: "spki", format: "der" });
  return createHash("sha256").update(spki).digest("hex");
}
