import { readFile } from "node:fs/promises";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { backoffMs, type Clock, realClock } from "../common/async.ts";
import { hasCode, OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import type { Client, openshell } from "../wire/index.ts";
import { lifeOf } from "./_token-life.ts";

type Gateway = Pick<Client<typeof openshell.OpenShell>, "issueSandboxToken" | "refreshSandboxToken">;

export interface TokenOptions {
  readonly gateway: { readonly client: Gateway; close(): void };
  readonly tokenFile: string;
  readonly log: Logger;
  /** Told before each attempt to get a token with which a session can begin. */
  onExchange(attempt: number): void;
  /** Told when the gateway refuses to renew the token: a session over it is to begin anew, with a token of its own. */
  onRefused(): void;
  /** @default realClock */
  readonly clock?: Clock;
  /** Of the jitter, in [0, 1). @default Math.random */
  readonly random?: () => number;
}

interface Held {
  readonly token: string;
  /** By the clock. */
  readonly renewAt: number;
  readonly expiresAt: number;
  /** The gateway refused it: it is good for being renewed at most. */
  readonly refused: boolean;
}

const callTimeoutMs = 10_000;
const backoff = { initialMs: 100, maxMs: 2000 };
/** Refusals in a row after which a Pod that once had a session gives up: a new supervisor Pod gets a new session. */
const refusalsBeforeEnd = 5;
/** Share of a token's life after which it is renewed. */
const renewAfter = 2 / 3;
/** How often it is looked whether there is a token again. */
const idleMs = 1000;
const longestSleepMs = 3_600_000;

/**
 * The session token: got once for the projected ServiceAccount token, then renewed with itself before it expires, or, where the gateway was
 * away meanwhile, after it.
 */
export class SessionToken {
  readonly #options: TokenOptions;
  readonly #clock: Clock;
  #held: Held | undefined;
  #renewal: Promise<void> | undefined;
  #hadSession = false;

  constructor(options: TokenOptions) {
    this.#options = options;
    this.#clock = options.clock ?? realClock;
  }

  /** From here on the gateway issues no second token to this Pod, so being refused one is final. */
  sessionAccepted(): void {
    this.#hadSession = true;
  }

  /** The gateway no longer accepts the token: it is renewed, or another is got, before a session begins. */
  invalidate(): void {
    if (this.#held !== undefined) this.#held = { ...this.#held, refused: true };
  }

  /** The header that authenticates a call now. */
  headers(): Record<string, string> {
    return { authorization: `Bearer ${this.#held?.token ?? ""}` };
  }

  /**
   * Returns when there is a token that has not expired. A gateway that is late or away is waited for, however long.
   * @throws unauthenticated with reason CredentialLost when a Pod that had its session is refused both a renewal and another token
   */
  async ensure(signal: AbortSignal): Promise<void> {
    let refusals = 0;
    for (let attempt = 0; !this.#isGood(); attempt += 1) {
      this.#options.onExchange(attempt);
      try {
        await this.#renewOrExchange(signal);
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
        this.#options.log[level]({ attempt, code }, `no session token: ${message}`);
        await this.#clock.sleep(backoffMs(attempt, this.#backoff()), signal);
      }
    }
  }

  /** Renews the token at two thirds of each token's life, and until it is renewed, until `signal` aborts. */
  async keepFresh(signal: AbortSignal): Promise<void> {
    for (let failures = 0; ; ) {
      const wait = this.#renewable === undefined ? idleMs : this.#renewable.renewAt - this.#clock.now();
      const pause = failures === 0 ? 0 : backoffMs(failures, this.#backoff());
      await this.#clock.sleep(Math.min(Math.max(wait, pause), longestSleepMs), signal);
      const before = this.#renewable;
      if (before === undefined || this.#clock.now() < before.renewAt) continue;
      try {
        await this.#renew(before, signal);
        failures = 0;
        this.#options.log.debug("session token renewed");
      } catch (error) {
        signal.throwIfAborted();
        failures += 1;
        const level = failures % 20 === 1 ? "warn" : "debug";
        this.#options.log[level]({ failures }, `session token not renewed: ${OpenShellError.from(error).message}`);
        if (this.#held?.token !== before.token || !hasCode(error, "unauthenticated")) continue;
        this.invalidate();
        this.#options.onRefused();
      }
    }
  }

  #isGood(): boolean {
    return this.#held !== undefined && !this.#held.refused && this.#clock.now() < this.#held.expiresAt;
  }

  /** The token that is renewed in its own time: of one that was refused the next session is not to know. */
  get #renewable(): Held | undefined {
    return this.#held?.refused === true ? undefined : this.#held;
  }

  /**
   * Renews the token there is, though it has run out. Where the gateway refuses that (one of an older release, or one whose store was lost),
   * or where there is none, the projected token is shown: a gateway that knows of a session of this Pod refuses that as well.
   */
  async #renewOrExchange(signal: AbortSignal): Promise<void> {
    try {
      if (this.#held !== undefined) return await this.#renew(this.#held, signal);
    } catch (error) {
      if (!hasCode(error, "unauthenticated")) throw error;
      this.#options.log.debug(`session token not renewed: ${error.message}`);
    }
    await this.#exchange(signal);
  }

  /** Whoever wants a renewal while one is on its way gets that one. */
  #renew(held: Held, signal: AbortSignal): Promise<void> {
    this.#renewal ??= this.#refresh(held, signal).finally(() => {
      this.#renewal = undefined;
    });
    return this.#renewal;
  }

  async #refresh({ token }: Held, signal: AbortSignal): Promise<void> {
    const response = await this.#options.gateway.client.refreshSandboxToken(
      {},
      { headers: { authorization: `Bearer ${token}` }, timeoutMs: callTimeoutMs, signal },
    );
    if (this.#held?.token !== token) return;
    // Without extension services the session token comes in `token`; with them in `sandbox_token`.
    if (response.sandboxToken === "") this.#adopt(response.token, response.expirationTime);
    else this.#adopt(response.sandboxToken, response.sandboxExpirationTime);
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
    const now = this.#clock.now();
    const lifeMs = lifeOf(token, expiration);
    const renewAt = now + Math.max(1000, lifeMs * renewAfter);
    this.#held = { token, renewAt, expiresAt: now + lifeMs, refused: false };
  }

  #backoff() {
    const { random } = this.#options;
    return random === undefined ? backoff : { ...backoff, random };
  }
}
