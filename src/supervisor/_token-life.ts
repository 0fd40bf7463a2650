import type { Timestamp } from "@bufbuild/protobuf/wkt";

/** Life of a token that does not say how long it lives, in milliseconds. */
const unknownLifeMs = 600_000;

/**
 * How long a token lives, in milliseconds: the time between two moments of the gateway's clock, since this node's may be hours off. Only
 * the gateway verifies a token: here it sets a timer.
 * @param expiration for a JWT without `exp`
 */
export function lifeOf(token: string, expiration?: Timestamp): number {
  const { iat, exp = Number(expiration?.seconds) } = claimsOf(token);
  return typeof iat === "number" && typeof exp === "number" && exp > iat ? (exp - iat) * 1000 : unknownLifeMs;
}

function claimsOf(token: string): { readonly iat?: unknown; readonly exp?: unknown } {
  try {
    const claims: unknown = JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString("utf8"));
    return typeof claims === "object" && claims !== null ? claims : {};
  } catch {
    return {};
  }
}
