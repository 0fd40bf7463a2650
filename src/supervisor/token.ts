import { readFile } from "node:fs/promises";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { backoffMs, sleep } from "../common/async.ts";
import { hasCode, OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import type { Client, openshell } from "../wire/index.ts";

type Gateway = Pick<Client<typeof openshell.OpenShell>, "issueSandboxToken" | "refreshSandboxToken">;

export interface TokenOptions {
  readonly gateway: { readonly client: Gateway; close(): void };
  readonly tokenFile: string;
  readonly log: Logger;
  /** Told before each attempt to exchange the ServiceAccount token. */
  onExchange(attempt: number): void;
  /** Told when the gateway refuses to renew the token: a session over it is to begin anew, with a token of its own. */
  onRefused(): void;
  /** Milliseconds of a clock that nobody sets. @default performance.now */
  readonly now?: () => number;
  readonly random?: () => number;
}

const callTimeoutMs = 10_000;
const backoff = { initialMs: 100, maxMs: 2000 };
/** Refusals in a row after which a Pod that once had a session gives up: a new supervisor Pod gets a new session. */
const refusalsBeforeEnd = 5;
/** Share of a token's life after which it is renewed. */
const renewAfter = 2 / 3;
/** Life of a token that does not say how long it lives, in milliseconds. */
const unknownLifeMs = 600_000;

/**
 * The session token: got once for the projected ServiceAccount token, then renewed with itself before it expires.
 */
export class SessionToken {
  readonly #options: TokenOptions;
  #current: { readonly token: string; readonly renewAt: number; readonly expiresAt: number } | undefined;
  #hadSession = false;

  constructor(options: TokenOptions) {
    this.#options = options;
  }

  /** From here on the gateway issues no second token to this Pod, so being refused one is final. */
  sessionAccepted(): void {
    this.#hadSession = true;
  }

  /** Forgets a token that the gateway no longer accepts. */
  invalidate(): void {
    this.#current = undefined;
  }

  /** The header that authenticates a call now. */
  headers(): Record<string, string> {
    return { authorization: `Bearer ${this.#current?.token ?? ""}` };
  }

  /**
   * Returns when there is a token that has not expired. A gateway that is late or away is waited for.
   * @throws unauthenticated with reason CredentialLost when a Pod that had its session is refused another token
   */
  async ensure(signal: AbortSignal): Promise<void> {
    if (this.#current !== undefined && this.#now() < this.#current.expiresAt) return;
    let refusals = 0;
    for (let attempt = 0; ; attempt += 1) {
      this.#options.onExchange(attempt);
      try {
        await this.#exchange(signal);
        return;
      } catch (error) {
        signal.throwIfAborted();
        const refused = hasCode(error, "unauthenticated", "permission-denied");
        if (!refused) this.#options.gateway.close();
        refusals = refused ? refusals + 1 : 0;
        if (this.#hadSession && refusals >= refusalsBeforeEnd) {
          throw new OpenShellError("unauthenticated", "the session token ran out and the gateway issues no other", {
            reason: "CredentialLost",
            cause: error,
          });
        }
        const { code, message } = OpenShellError.from(error);
        const level = attempt === 0 || attempt % 20 === 19 ? "warn" : "debug";
        this.#options.log[level]({ attempt, code }, `token exchange: ${message}`);
        await sleep(backoffMs(attempt, this.#backoff()), signal);
      }
    }
  }

  /** Renews the token at two thirds of each token's life, until `signal` aborts. */
  async keepFresh(signal: AbortSignal): Promise<void> {
    for (let failures = 0; ; ) {
      const wait = (this.#current?.renewAt ?? this.#now() + 1000) - this.#now();
      // A timer above 2^31 ms fires at once.
      await sleep(
        Math.min(Math.max(wait, failures === 0 ? 0 : backoffMs(failures, this.#backoff())), 3_600_000),
        signal,
      );
      const renewed = this.#current;
      if (renewed === undefined || this.#now() < renewed.renewAt) continue;
      try {
        const response = await this.#options.gateway.client.refreshSandboxToken(
          {},
          { headers: this.headers(), timeoutMs: callTimeoutMs, signal },
        );
        if (this.#current !== renewed) continue;
        // Without extension services the session token comes in `token`; with them in `sandbox_token`.
        const separate = response.sandboxToken !== "";
        this.#adopt(
          separate ? response.sandboxToken : response.token,
          separate ? response.sandboxExpirationTime : response.expirationTime,
        );
        failures = 0;
        this.#options.log.debug("session token renewed");
      } catch (error) {
        signal.throwIfAborted();
        failures += 1;
        this.#options.log.warn({ failures }, `session token not renewed: ${OpenShellError.from(error).message}`);
        if (this.#current !== renewed || !hasCode(error, "unauthenticated")) continue;
        this.invalidate();
        this.#options.onRefused();
      }
    }
  }

  async #exchange(signal: AbortSignal): Promise<void> {
    const file = this.#options.tokenFile;
    const projected = await readFile(file, "utf8").catch((cause: unknown) => {
      throw new OpenShellError("unavailable", `${file} cannot be read yet`, { cause });
    });
    const response = await this.#options.gateway.client.issueSandboxToken(
      {},
      { headers: { authorization: `Bearer ${projected.trim()}` }, timeoutMs: callTimeoutMs, signal },
    );
    this.#adopt(response.token, response.expirationTime);
  }

  #adopt(token: string, expiration: Timestamp | undefined): void {
    const now = this.#now();
    const lifeMs = lifeOf(token, expiration);
    this.#current = { token, expiresAt: now + lifeMs, renewAt: now + Math.max(1000, lifeMs * renewAfter) };
  }

  #now(): number {
    return this.#options.now?.() ?? performance.now();
  }

  #backoff() {
    const { random } = this.#options;
    return random === undefined ? backoff : { ...backoff, random };
  }
}

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
