import { type CryptoKey, decodeJwt, importPKCS8, importSPKI, jwtVerify, SignJWT } from "jose";
import { OpenShellError } from "../../common/errors.ts";

export interface SessionTokenKeys {
  /** Ed25519 private key, PKCS #8 PEM. */
  readonly signingPem: string;
  /** Its public key, SPKI PEM. */
  readonly publicPem: string;
  readonly kid: string;
}

export interface SessionTokensOptions {
  readonly keys: SessionTokenKeys;
  readonly gatewayId: string;
  /** Seconds a token lives; undefined is for ever. */
  readonly ttlSeconds?: number;
  /** Milliseconds since 1970. @default Date.now */
  readonly now?: () => number;
}

export interface SessionClaims {
  readonly sandboxId: string;
  readonly sessionId: string;
}

/** What a token of this gateway says. */
export interface ReadToken extends SessionClaims {
  /** Seconds since 1970. */
  readonly issued: number;
  readonly expired: boolean;
}

export interface IssuedToken {
  readonly token: string;
  /** Seconds since 1970. */
  readonly issued: number;
  /** Milliseconds since 1970. */
  readonly expiresMs: number;
}

/** Where a token that never expires says it ends, since the wire has no "never". */
const neverMs = Date.UTC(9999, 11, 31);

/** Session tokens of supervisors: EdDSA JWTs by and for this gateway. */
export class SessionTokens {
  readonly #options: SessionTokensOptions;
  readonly #signing: CryptoKey;
  readonly #verifying: CryptoKey;

  private constructor(options: SessionTokensOptions, signing: CryptoKey, verifying: CryptoKey) {
    this.#options = options;
    this.#signing = signing;
    this.#verifying = verifying;
  }

  /** @throws invalid-argument when the keys are no Ed25519 pair */
  static async create(options: SessionTokensOptions): Promise<SessionTokens> {
    try {
      const signing = await importPKCS8(options.keys.signingPem, "EdDSA");
      const tokens = new SessionTokens(options, signing, await importSPKI(options.keys.publicPem, "EdDSA"));
      await tokens.verify((await tokens.issue({ sandboxId: "self", sessionId: "test" })).token);
      return tokens;
    } catch (cause) {
      throw new OpenShellError("invalid-argument", "gateway_jwt: signing and public key are no matching Ed25519 pair", {
        cause,
      });
    }
  }

  async issue(claims: SessionClaims): Promise<IssuedToken> {
    const { keys, ttlSeconds } = this.#options;
    const issued = Math.floor(this.#nowMs() / 1000);
    const token = new SignJWT({ sid: claims.sessionId })
      .setProtectedHeader({ alg: "EdDSA", kid: keys.kid, typ: "JWT" })
      .setIssuer(this.#name)
      .setAudience(this.#name)
      .setSubject(`sandbox:${claims.sandboxId}`)
      .setJti(crypto.randomUUID())
      .setIssuedAt(issued);
    if (ttlSeconds !== undefined) token.setExpirationTime(issued + ttlSeconds);
    return {
      token: await token.sign(this.#signing),
      issued,
      expiresMs: ttlSeconds === undefined ? neverMs : (issued + ttlSeconds) * 1000,
    };
  }

  /** @throws unauthenticated when it is no live token of this gateway */
  async verify(token: string): Promise<ReadToken> {
    const read = await this.read(token);
    if (read.expired) throw invalidToken(new RangeError("the token has run out"));
    return read;
  }

  /**
   * What a token says that may have run out: all but its end is as `verify` has it.
   * @throws unauthenticated when it is no token of this gateway
   */
  async read(token: string): Promise<ReadToken> {
    try {
      const nowMs = this.#nowMs();
      const { payload } = await jwtVerify(token, this.#verifying, {
        issuer: this.#name,
        audience: this.#name,
        algorithms: ["EdDSA"],
        currentDate: new Date(Math.min(nowMs, lastSecondMs(token))),
      });
      const sandboxId = payload.sub?.startsWith("sandbox:") === true ? payload.sub.slice("sandbox:".length) : "";
      const sessionId = typeof payload.sid === "string" ? payload.sid : "";
      const { iat: issued, exp = Number.POSITIVE_INFINITY } = payload;
      if (sandboxId === "" || sessionId === "" || issued === undefined) throw new TypeError("claims are missing");
      if (issued >= exp) throw new TypeError("the token ends before it begins");
      return { sandboxId, sessionId, issued, expired: exp * 1000 <= nowMs };
    } catch (cause) {
      throw invalidToken(cause);
    }
  }

  get #name(): string {
    return `openshell-gateway:${this.#options.gatewayId}`;
  }

  #nowMs(): number {
    return (this.#options.now ?? Date.now)();
  }
}

/** The last moment of a token's life, by its own word. */
function lastSecondMs(token: string): number {
  const { exp } = decodeJwt(token);
  return exp === undefined ? Number.POSITIVE_INFINITY : (exp - 1) * 1000;
}

function invalidToken(cause: unknown): OpenShellError {
  return new OpenShellError("unauthenticated", "the bearer token is not a valid session token of this gateway", {
    reason: "SessionTokenInvalid",
    cause,
  });
}
