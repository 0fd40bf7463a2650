/** Tokens of an OpenID provider for the command line: how they are got, and how they are renewed. */
import { z } from "zod";
import { sleep } from "../common/async.ts";
import { hasCode, OpenShellError } from "../common/errors.ts";
import { type JsonAnswer, type JsonRequest, requestJson } from "../common/https-json.ts";
import { discoverProvider, type ProviderDocument, sameIssuer } from "../common/oidc-discovery.ts";
import { isLoopback } from "./loopback.ts";

/** Reason of an error that says that there is no token to send. */
export const notLoggedIn = "NotLoggedIn";

/** How users of a gateway log in. */
export interface OidcClient {
  readonly issuer: string;
  readonly clientId: string;
  /** What the tokens are for, where the provider has to be told. */
  readonly audience?: string;
  /** Separated by spaces. */
  readonly scopes?: string;
  /** Authorities of the provider's certificate, PEM. */
  readonly ca?: string;
}

/** What `oidc_token.json` holds; other clients read and write it too. */
export const tokenSchema = z.looseObject({
  access_token: z.string().min(1),
  refresh_token: z.string().nullish(),
  /** Seconds since 1970; absent, or null as the Python SDK writes it: never. */
  expires_at: z.number().nullish(),
  issuer: z.string().nullish(),
  client_id: z.string().nullish(),
  client_credentials: z.boolean().nullish(),
});

export type StoredToken = z.output<typeof tokenSchema>;

const answerSchema = z.looseObject({
  access_token: z.string().min(1),
  refresh_token: z.string().optional(),
  expires_in: z.number().positive().optional(),
  expires_at: z.number().positive().optional(),
});

const deviceSchema = z.looseObject({
  device_code: z.string().min(1),
  user_code: z.string().min(1),
  verification_uri: z.string().min(1),
  verification_uri_complete: z.string().optional(),
  expires_in: z.number().positive(),
  interval: z.number().positive().optional(),
});

const errorSchema = z.looseObject({ error: z.string(), error_description: z.string().optional() });

/** Where a user says yes to a login. */
export interface DevicePrompt {
  readonly url: string;
  readonly code: string;
}

/**
 * Logs a person in on whatever device has a browser (RFC 8628). A provider that does not answer meanwhile is asked again, less and less often.
 * @param ask shows the user where to go
 * @throws failed-precondition when the provider has no such login, permission-denied when the user said no, deadline-exceeded when nobody answered, unavailable when the provider was in trouble until the end
 */
export async function deviceLogin(
  client: OidcClient,
  ask: (prompt: DevicePrompt) => void,
  signal: AbortSignal,
): Promise<StoredToken> {
  const provider = await discover(client, signal);
  const endpoint = provider.device_authorization_endpoint;
  if (endpoint === undefined) {
    throw new OpenShellError(
      "failed-precondition",
      `${client.issuer} offers no login by device code; set $OPENSHELL_OIDC_CLIENT_SECRET to log in as a client, or give a token with --bearer-token-file`,
    );
  }
  requireTls(endpoint);
  const scope = ["openid", "offline_access", ...(client.scopes ?? "").split(/\s+/)].filter(Boolean).join(" ");
  const form = { client_id: client.clientId, scope, ...audienceOf(client) };
  const begun = await requestJson(endpoint, requestOf(client, signal, form));
  const device = deviceSchema.safeParse(begun.body);
  if (!device.success) throw troubleOf(client, begun) ?? refusedBy(client, begun);
  const { device_code, user_code, verification_uri, verification_uri_complete, expires_in } = device.data;
  ask({ url: verification_uri_complete ?? verification_uri, code: user_code });
  const grant = { grant_type: "urn:ietf:params:oauth:grant-type:device_code", client_id: client.clientId, device_code };
  let intervalMs = (device.data.interval ?? 5) * 1000;
  let trouble: OpenShellError | undefined;
  for (let until = Date.now() + expires_in * 1000, failures = 0; Date.now() < until; ) {
    await sleep(Math.min(intervalMs * 2 ** failures, 60_000), signal);
    const answer = await answerOrTrouble(client, tokenEndpoint(provider, client), requestOf(client, signal, grant));
    trouble = answer instanceof OpenShellError ? answer : undefined;
    if (answer instanceof OpenShellError) {
      failures += 1;
      continue;
    }
    failures = 0;
    const error = errorSchema.safeParse(answer.body);
    if (!error.success) return tokenOf(client, answer);
    if (error.data.error === "slow_down") intervalMs += 5_000;
    else if (error.data.error === "access_denied") {
      throw new OpenShellError("permission-denied", "the login was refused in the browser");
    } else if (error.data.error === "expired_token") break;
    else if (error.data.error !== "authorization_pending") throw refusedBy(client, answer);
  }
  throw trouble ?? new OpenShellError("deadline-exceeded", "nobody completed the login in time; run it again");
}

/** An answer, or what kept the provider from giving one, which may be over at the next attempt. */
async function answerOrTrouble(client: OidcClient, url: string, request: JsonRequest) {
  try {
    const answer = await requestJson(url, request);
    return troubleOf(client, answer) ?? answer;
  } catch (error) {
    if (hasCode(error, "unavailable")) return error;
    throw error;
  }
}

/** Logs a program in by its own secret (RFC 6749, section 4.4). */
export async function clientLogin(client: OidcClient, secret: string, signal: AbortSignal): Promise<StoredToken> {
  const provider = await discover(client, signal);
  const form = {
    grant_type: "client_credentials",
    client_id: client.clientId,
    client_secret: secret,
    ...(client.scopes ? { scope: client.scopes } : {}),
    ...audienceOf(client),
  };
  const answer = await requestJson(tokenEndpoint(provider, client), requestOf(client, signal, form));
  return { ...tokenOf(client, answer), client_credentials: true };
}

/**
 * A new token for a refresh token.
 * @throws unauthenticated when the provider takes it no more, unavailable when it cannot say
 */
export async function refreshLogin(client: OidcClient, stored: StoredToken, signal: AbortSignal): Promise<StoredToken> {
  const refresh_token = stored.refresh_token ?? "";
  const provider = await discover(client, signal);
  const form = { grant_type: "refresh_token", refresh_token, client_id: client.clientId };
  const answer = await requestJson(tokenEndpoint(provider, client), requestOf(client, signal, form));
  const error = errorSchema.safeParse(answer.body);
  if (error.success && error.data.error === "invalid_grant") {
    throw new OpenShellError("unauthenticated", "the login is over", { reason: "LoginOver" });
  }
  return { refresh_token, ...tokenOf(client, answer) };
}

/** Whether a token ends within half a minute, so that it could end on the way. */
export function endsSoon({ expires_at: end }: StoredToken, nowMs: number): boolean {
  return typeof end === "number" && end * 1000 - nowMs < 30_000;
}

/** Secrets go to nobody who cannot prove who it is, except on this machine. */
function discover(client: OidcClient, signal: AbortSignal): Promise<ProviderDocument> {
  requireTls(client.issuer);
  return discoverProvider(client.issuer, requestOf(client, signal));
}

function requireTls(url: string): void {
  const { protocol, hostname } = URL.parse(url) ?? {};
  if (protocol === "https:" || (protocol === "http:" && isLoopback(hostname ?? ""))) return;
  throw new OpenShellError(
    "invalid-argument",
    `"${url}" is no https:// URL; a login without TLS could be read by others`,
  );
}

function tokenEndpoint({ token_endpoint: endpoint }: ProviderDocument, client: OidcClient): string {
  if (endpoint === undefined)
    throw new OpenShellError("failed-precondition", `${client.issuer} names no token_endpoint`);
  requireTls(endpoint);
  return endpoint;
}

function requestOf({ ca }: OidcClient, signal: AbortSignal, form?: JsonRequest["form"]): JsonRequest {
  return { signal, ...(ca === undefined ? {} : { ca }), ...(form === undefined ? {} : { form }) };
}

function audienceOf({ audience }: OidcClient): { audience?: string } {
  return audience === undefined || audience === "" ? {} : { audience };
}

function tokenOf(client: OidcClient, answer: JsonAnswer): StoredToken {
  const token = answerSchema.safeParse(answer.body);
  if (answer.status !== 200 || !token.success) throw troubleOf(client, answer) ?? refusedBy(client, answer);
  const { access_token, refresh_token, expires_in, expires_at } = token.data;
  const end = expires_at ?? (expires_in === undefined ? undefined : Math.floor(Date.now() / 1000 + expires_in));
  return {
    access_token,
    ...(refresh_token === undefined ? {} : { refresh_token }),
    ...(end === undefined ? {} : { expires_at: Math.floor(end) }),
    issuer: client.issuer,
    client_id: client.clientId,
  };
}

/** What keeps a provider from answering, which says nothing of the login. */
function troubleOf({ issuer }: OidcClient, answer: JsonAnswer): OpenShellError | undefined {
  if (answer.status < 500 && answer.status !== 429) return undefined;
  return new OpenShellError("unavailable", `${issuer} cannot log anybody in now: ${reasonIn(answer)}`);
}

function refusedBy({ issuer }: OidcClient, answer: JsonAnswer): OpenShellError {
  return new OpenShellError("unauthenticated", `${issuer} refused the login: ${reasonIn(answer)}`, {
    reason: notLoggedIn,
  });
}

function reasonIn({ status, body }: JsonAnswer): string {
  const error = errorSchema.safeParse(body);
  if (!error.success) return `status ${status}`;
  return [error.data.error, error.data.error_description].filter(Boolean).join(": ");
}

/** Whether a stored token is of the provider that the gateway's users log in to. */
export function isOf({ issuer }: StoredToken, client: OidcClient): boolean {
  return !issuer || sameIssuer(issuer, client.issuer);
}
