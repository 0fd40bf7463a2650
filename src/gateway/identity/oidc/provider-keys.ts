import { createLocalJWKSet, errors, type FlattenedJWSInput, type JSONWebKeySet, type JWSHeaderParameters } from "jose";
import { z } from "zod";
import { abortable, backoffMs, deadline, sleep } from "../../../common/async.ts";
import { OpenShellError } from "../../../common/errors.ts";
import { requestJson } from "../../../common/https-json.ts";
import type { Logger } from "../../../common/log.ts";
import { discoverProvider } from "../../../common/oidc-discovery.ts";

export interface ProviderKeysOptions {
  readonly issuer: string;
  /** How long keys count before they are fetched anew, in milliseconds. */
  readonly ttlMs: number;
  /** Origins besides the issuer's own where keys may be. */
  readonly allowedOrigins: readonly string[];
  /** Keys may come over plain HTTP, from where the issuer is. */
  readonly allowInsecureHttp: boolean;
  /** Authorities of the provider's certificate, PEM, read at each fetch. */
  readonly ca: () => string | undefined;
  readonly log: Logger;
  /** Milliseconds of a clock that nobody sets. @default performance.now */
  readonly now?: () => number;
  /** Least time between two fetches that tokens cause, in milliseconds. @default 10_000 */
  readonly cooldownMs?: number;
  /** How long a token waits for keys that are being fetched, in milliseconds. @default 5_000 */
  readonly patienceMs?: number;
}

type KeySet = ReturnType<typeof createLocalJWKSet>;

const keySetSchema = z.looseObject({ keys: z.array(z.looseObject({ kty: z.string() })) });

/**
 * The keys that a provider signs with: fetched at the start and whenever they are old, in the background; asked for in between when a token
 * names a key that is not known. However many such tokens come, the provider is asked once in `cooldownMs`.
 */
export class ProviderKeys {
  readonly #options: ProviderKeysOptions;
  readonly #now: () => number;
  #known: { readonly set: KeySet; readonly fetchedAt: number } | undefined;
  #fetching: Promise<boolean> | undefined;
  #attemptedAt = Number.NEGATIVE_INFINITY;
  /** Why the last fetch failed; undefined when it did not. */
  #failure: string | undefined;
  #fetches = { ok: 0, failed: 0 };

  constructor(options: ProviderKeysOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  get fetches(): Readonly<{ ok: number; failed: number }> {
    return this.#fetches;
  }

  /** Whether tokens can be checked now. */
  get usable(): boolean {
    return this.#current() !== undefined;
  }

  /** Keeps the keys fresh until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    for (let failures = 0; !signal.aborted; ) {
      const fetched = await this.#refresh(signal);
      failures = fetched ? 0 : failures + 1;
      const wait = fetched ? this.#options.ttlMs : backoffMs(failures - 1, { initialMs: 1_000, maxMs: 30_000 });
      await sleep(wait, signal).catch(() => {});
    }
  }

  /**
   * The key that a token was signed with, for jose.
   * @param signal ends the wait for keys that are being fetched; the fetch goes on, since others wait for it too
   * @throws unavailable while there are no keys, unauthenticated for a key that the provider does not have
   */
  readonly key = async (header: JWSHeaderParameters, token: FlattenedJWSInput, signal?: AbortSignal) => {
    const found = await this.#find(header, token);
    if (found !== undefined) return found;
    if (this.#fetching !== undefined || this.#mayAsk()) await this.#refreshed(signal);
    const afterwards = await this.#find(header, token);
    if (afterwards !== undefined) return afterwards;
    if (this.usable) {
      const kid = header.kid === undefined ? "" : ` (kid ${JSON.stringify(header.kid.slice(0, 64))})`;
      throw new OpenShellError(
        "unauthenticated",
        `the bearer token was not signed with a key that ${this.#options.issuer} has now${kid}`,
        { reason: "TokenKeyUnknown" },
      );
    }
    throw this.#unavailable(this.#failure ?? `it has no keys of ${this.#options.issuer} yet`);
  };

  /** Waits for a fetch, no longer than a caller has patience for. */
  async #refreshed(signal: AbortSignal | undefined): Promise<void> {
    const end = deadline(this.#options.patienceMs ?? 5_000, signal);
    try {
      await abortable(this.#refresh(), end);
      return;
    } catch (error) {
      if (!end.aborted) throw error;
    }
    if (signal?.aborted) throw new OpenShellError("cancelled", "the call ended while its bearer token was checked");
    throw this.#unavailable(`${this.#options.issuer} takes long to say which keys it signs with`);
  }

  #unavailable(why: string): OpenShellError {
    return new OpenShellError("unavailable", `the gateway cannot check bearer tokens now: ${why}`, {
      reason: "OidcProviderUnreachable",
      retryAfterMs: 5_000,
    });
  }

  async #find(header: JWSHeaderParameters, token: FlattenedJWSInput) {
    const set = this.#current();
    if (set === undefined) return undefined;
    try {
      return await set(header, token);
    } catch (error) {
      if (error instanceof errors.JWKSNoMatchingKey) return undefined;
      throw error;
    }
  }

  /** A provider that is away for less than another ttl goes unnoticed. */
  #current(): KeySet | undefined {
    if (this.#known === undefined) return undefined;
    return this.#now() - this.#known.fetchedAt < 2 * this.#options.ttlMs ? this.#known.set : undefined;
  }

  #mayAsk(): boolean {
    return this.#now() - this.#attemptedAt >= (this.#options.cooldownMs ?? 10_000);
  }

  /** One fetch at a time, whoever asks. Resolves whether it succeeded. */
  #refresh(signal?: AbortSignal): Promise<boolean> {
    this.#fetching ??= this.#fetch(signal).finally(() => {
      this.#fetching = undefined;
    });
    return this.#fetching;
  }

  async #fetch(signal: AbortSignal | undefined): Promise<boolean> {
    const { issuer, log } = this.#options;
    this.#attemptedAt = this.#now();
    try {
      const keys = await this.#download(signal);
      this.#known = { set: createLocalJWKSet(keys), fetchedAt: this.#now() };
      this.#fetches.ok += 1;
      if (this.#failure !== undefined || this.#fetches.ok === 1) {
        log.info(
          { issuer, keys: keys.keys.length },
          "the OIDC provider's keys are there; users can come with its tokens",
        );
      }
      this.#failure = undefined;
      return true;
    } catch (error) {
      if (signal?.aborted) return false;
      this.#fetches.failed += 1;
      this.#failure = OpenShellError.from(error).message;
      log.warn(
        { issuer, err: error },
        this.usable
          ? "the OIDC provider's keys cannot be fetched; those from before go on to count for a while"
          : "the OIDC provider's keys cannot be fetched; users cannot come with its tokens until they can",
      );
      return false;
    }
  }

  async #download(signal: AbortSignal | undefined): Promise<JSONWebKeySet> {
    const { issuer } = this.#options;
    const ca = this.#options.ca();
    const request = { ...(ca === undefined ? {} : { ca }), ...(signal === undefined ? {} : { signal }) };
    const { jwks_uri: uri } = await discoverProvider(issuer, request);
    if (uri === undefined) throw new OpenShellError("failed-precondition", `${issuer} names no jwks_uri`);
    this.#requireAllowed(uri);
    const { status, body } = await requestJson(uri, request);
    const keys = keySetSchema.safeParse(body);
    if (status !== 200 || !keys.success) {
      throw new OpenShellError("unavailable", `${uri} answered ${status}${status === 200 ? " and no key set" : ""}`);
    }
    return keys.data as JSONWebKeySet;
  }

  /** Whoever may write the document must not send the gateway to addresses inside the cluster. */
  #requireAllowed(uri: string): void {
    const { issuer, allowedOrigins, allowInsecureHttp } = this.#options;
    const url = URL.parse(uri);
    const isAllowed =
      url !== null &&
      (url.protocol === "https:" || (allowInsecureHttp && url.protocol === "http:")) &&
      [new URL(issuer).origin, ...allowedOrigins].includes(url.origin);
    if (isAllowed) return;
    throw new OpenShellError(
      "failed-precondition",
      `${issuer} keeps its keys at ${uri}, which is another origin: if that is right, add ${url?.origin ?? "it"} to oidc.jwks_allowed_origins`,
    );
  }
}
