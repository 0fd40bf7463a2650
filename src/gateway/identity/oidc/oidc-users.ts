import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { decodeJwt, errors, type JWTPayload, jwtVerify } from "jose";
import { OpenShellError } from "../../../common/errors.ts";
import type { Logger } from "../../../common/log.ts";
import { sameIssuer } from "../../../common/oidc-discovery.ts";
import type { UserPrincipal } from "../principal.ts";
import { type ClaimRules, displayNameOf, rolesOf, scopesOf } from "./claims.ts";
import { ProviderKeys } from "./provider-keys.ts";

export interface OidcOptions extends ClaimRules {
  readonly issuer: string;
  readonly audience: string;
  readonly jwksTtlSeconds: number;
  readonly jwksAllowedOrigins: readonly string[];
  readonly allowInsecureHttp: boolean;
  /** File with authorities of the provider's certificate, PEM. */
  readonly caPath?: string;
  /** Milliseconds since 1970. @default Date.now */
  readonly now?: () => number;
  /** See ProviderKeysOptions. */
  readonly cooldownMs?: number;
}

interface Checked {
  readonly user: UserPrincipal;
  readonly endsMs: number;
}

/** How many tokens are remembered before all are forgotten. */
const remembered = 1024;

/** How far the provider's clock and ours may differ, in seconds. */
const skewSeconds = 60;

/** What a provider may sign with: public-key algorithms only, so that no public key can serve as a shared secret. */
const algorithms = [
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
  ...["ES256", "ES384", "ES512", "EdDSA", "Ed25519"],
];

/** Kinds of JWT that say who calls; others, such as logout tokens, are signed with the same keys. */
const types = [undefined, "jwt", "at+jwt", "application/jwt", "application/at+jwt"];

/** Knows users by the tokens of an OpenID provider: JWT access tokens (RFC 9068, or older habits) for our audience. */
export class OidcUsers {
  readonly keys: ProviderKeys;
  readonly #options: OidcOptions;
  /** Tokens that held, by digest, as long as the keys are those they were checked with: clients show one for every call. */
  #checked = new Map<string, Checked>();
  /** Which fetch of the keys. */
  #checkedWith = 0;

  constructor(options: OidcOptions, log: Logger) {
    this.#options = options;
    if (options.adminRole === "" && options.userRole === "") {
      log.warn(
        `oidc.admin_role and oidc.user_role are empty: whoever has a token of ${options.issuer} for "${options.audience}" is a platform administrator`,
      );
    }
    const { issuer, jwksTtlSeconds, jwksAllowedOrigins, allowInsecureHttp, caPath, now, cooldownMs } = options;
    this.keys = new ProviderKeys({
      issuer,
      ttlMs: jwksTtlSeconds * 1000,
      allowedOrigins: jwksAllowedOrigins,
      allowInsecureHttp,
      ca: () => authorities(caPath),
      log,
      ...(now === undefined ? {} : { now }),
      ...(cooldownMs === undefined ? {} : { cooldownMs }),
    });
  }

  get issuer(): string {
    return this.#options.issuer;
  }

  /** Whether a token says it is of this provider, without looking whether that is true. */
  claims(issuer: unknown): boolean {
    return typeof issuer === "string" && sameIssuer(issuer, this.issuer);
  }

  /**
   * The user of a token.
   * @param signal of the call that shows it
   * @throws unauthenticated with the reason it does not count, unavailable while it cannot be checked
   */
  async identify(token: string, signal: AbortSignal): Promise<UserPrincipal> {
    if (this.keys.fetches.ok !== this.#checkedWith || this.#checked.size >= remembered) {
      this.#checked = new Map();
      this.#checkedWith = this.keys.fetches.ok;
    }
    const name = createHash("sha256").update(token).digest("base64");
    const checked = this.#checked.get(name);
    if (checked !== undefined && this.keys.usable && this.#nowMs() < checked.endsMs) return checked.user;
    const before = this.#checkedWith;
    const { user, endsMs } = await this.#check(token, signal);
    // Not when other keys came meanwhile: the token may have held by one that is gone.
    if (this.keys.fetches.ok === before) this.#checked.set(name, { user, endsMs });
    return user;
  }

  async #check(token: string, signal: AbortSignal): Promise<Checked> {
    const { issuer, audience } = this.#options;
    const bare = issuer.replace(/\/$/, "");
    try {
      // Before a key is looked for: somebody else's token is no reason to ask the provider for one.
      const { iss } = decodeJwt(token);
      if (!this.claims(iss)) throw refused("TokenIssuer", `is of ${JSON.stringify(iss) ?? "nobody"}, not of ${issuer}`);
      const { payload, protectedHeader } = await jwtVerify(token, (header, jws) => this.keys.key(header, jws, signal), {
        issuer: [bare, `${bare}/`],
        audience,
        algorithms,
        clockTolerance: skewSeconds,
        currentDate: new Date(this.#nowMs()),
        requiredClaims: ["exp", "sub"],
      });
      if (!types.includes(protectedHeader.typ?.toLowerCase())) {
        throw refused("TokenKind", `is a ${protectedHeader.typ}, not an access token`);
      }
      requireNoOther(payload);
      return { user: this.#userOf(payload), endsMs: ((payload.exp ?? 0) + skewSeconds) * 1000 };
    } catch (error) {
      throw error instanceof OpenShellError ? error : this.#explained(error);
    }
  }

  #nowMs(): number {
    return (this.#options.now ?? Date.now)();
  }

  #userOf(payload: JWTPayload): UserPrincipal {
    if (payload.sub?.trim() === "") throw refused("TokenClaims", "names no user: its sub claim is empty");
    const displayName = displayNameOf(payload);
    const scopes = scopesOf(payload, this.#options);
    return {
      kind: "user",
      subject: payload.sub ?? "",
      roles: rolesOf(payload, this.#options),
      provider: "oidc",
      ...(displayName === undefined ? {} : { displayName }),
      ...(scopes === undefined ? {} : { scopes }),
    };
  }

  /** A failure of the check in the words of someone who has to get a better token. */
  #explained(error: unknown): OpenShellError {
    if (error instanceof errors.JWTExpired) return refused("TokenExpired", "has expired: get a new one", error);
    if (error instanceof errors.JWTClaimValidationFailed) {
      const { claim, payload } = error;
      const said = JSON.stringify(payload[claim])?.slice(0, 200) ?? "nothing";
      if (claim === "aud")
        return refused("TokenAudience", `is for ${said}, not for "${this.#options.audience}"`, error);
      if (claim === "nbf")
        return refused("TokenNotYetValid", "does not count yet: its nbf claim is in the future", error);
      return refused("TokenClaims", `has no usable ${claim} claim`, error);
    }
    if (error instanceof errors.JWSSignatureVerificationFailed) {
      return refused("TokenSignature", `was not signed by ${this.#options.issuer}`, error);
    }
    if (error instanceof errors.JWKSMultipleMatchingKeys) {
      return refused("TokenKeyUnknown", "does not say with which of the provider's keys it was signed (kid)", error);
    }
    if (error instanceof errors.JOSEAlgNotAllowed) {
      return refused("TokenAlgorithm", "is not signed with a public-key algorithm", error);
    }
    return refused("TokenMalformed", "is no signed JWT", error);
  }
}

/**
 * Refuses what is marked as something else in its claims: events such as a logout (RFC 8417), and Keycloak's ID tokens. That is all there is to
 * go by: an ID token need not hold a nonce or at_hash, and Dex's access tokens hold both, being ID tokens.
 */
function requireNoOther(payload: JWTPayload): void {
  if (payload.typ === "ID") {
    throw refused("TokenKind", "is an ID token: show the access_token of the provider's answer, not its id_token");
  }
  if (payload.events !== undefined) throw refused("TokenKind", "tells of an event and is no access token");
}

function refused(reason: string, why: string, cause?: unknown): OpenShellError {
  return new OpenShellError("unauthenticated", `the bearer token ${why}`, { reason, cause });
}

function authorities(path: string | undefined): string | undefined {
  if (path === undefined) return undefined;
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new OpenShellError("failed-precondition", `oidc.ca_cert_path: ${(cause as Error).message}`, { cause });
  }
}

/** The file of authorities: the setting's, else the one that the environment names for every program (OpenSSL's habit). */
export function authoritiesPath(
  setting: string,
  env: Readonly<Record<string, string | undefined>>,
): string | undefined {
  if (setting !== "") return setting;
  const named = env.SSL_CERT_FILE;
  return named !== undefined && named !== "" && existsSync(named) ? named : undefined;
}
