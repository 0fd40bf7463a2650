/** From the choice of a gateway to a client of it, and from gRPC's failures to sentences a user can act on. */
import { type ChannelCredentials, credentials } from "@grpc/grpc-js";
import { hasCode, OpenShellError } from "../common/errors.ts";
import {
  type CallOptions,
  type Client,
  createChannel,
  grpcClient,
  lastConnectionError,
  openshell,
} from "../wire/index.ts";
import { type Bearer, givenBearer, storedBearer } from "./bearer.ts";
import {
  configDirectory,
  type Endpoint,
  type Environment,
  type GatewayCertificates,
  GatewayDirectory,
  type KnownGateway,
  parseEndpoint,
  requireTlsForTokens,
} from "./gateways.ts";
import { isLoopback } from "./loopback.ts";
import { notLoggedIn } from "./oidc-login.ts";
import { whenConnected } from "./when-connected.ts";

export interface GatewayChoice {
  /** Name of a known gateway. @default $OPENSHELL_GATEWAY, else the active one */
  readonly gateway?: string;
  /** Endpoint in place of the known one. @default $OPENSHELL_GATEWAY_ENDPOINT */
  readonly gatewayEndpoint?: string;
  /** Do not verify the gateway's certificate. @default $OPENSHELL_GATEWAY_INSECURE, else false */
  readonly gatewayInsecure?: boolean;
  /** A file with the token that calls carry. @default $OPENSHELL_BEARER_TOKEN_FILE, $OPENSHELL_BEARER_TOKEN, the gateway's login */
  readonly bearerTokenFile?: string;
}

/** A gateway that can be called. */
export interface Target {
  /** Its name, or its endpoint when it was given without one. */
  readonly name: string;
  readonly endpoint: Endpoint;
  readonly certificates?: GatewayCertificates;
  readonly insecure: boolean;
  /** The token that calls carry. @default none */
  readonly bearer?: Bearer;
  /** The gateway whose login is not sent, since the endpoint is not the one that it was made for. */
  readonly withheld?: string;
}

/**
 * Which gateway to talk to: flag, environment, `active_gateway`, in this order. A login goes to the endpoint that its gateway has, and to
 * another one only where --gateway names the gateway in the same command.
 * @throws failed-precondition when none was chosen, or a token would go where others could read it; not-found when the chosen one is not known;
 * invalid-argument for what is no endpoint, or neither true nor false
 */
export async function resolveTarget(choice: GatewayChoice, env: Environment): Promise<Target> {
  const directory = new GatewayDirectory(configDirectory(env));
  const insecure = choice.gatewayInsecure ?? isSet("OPENSHELL_GATEWAY_INSECURE", env);
  const override = choice.gatewayEndpoint ?? (env.OPENSHELL_GATEWAY_ENDPOINT || undefined);
  const named = choice.gateway ?? (env.OPENSHELL_GATEWAY || undefined);
  const active = named === undefined ? await directory.active() : undefined;
  if (override !== undefined) {
    const endpoint = parseEndpoint(override);
    const name = named ?? (await wholeOf(directory, active));
    const known = name === undefined ? undefined : await directory.find(name);
    const isItsOwn = known !== undefined && isEndpointOf(known, endpoint);
    const trusts = isItsOwn || choice.gateway !== undefined;
    const bearer = await bearerOf(choice, env, directory, trusts ? known : undefined);
    const target: Target = {
      name: name ?? endpoint.url,
      endpoint,
      insecure,
      ...optional("certificates", name === undefined ? undefined : await directory.certificates(name)),
      ...optional("bearer", bearer),
      ...(bearer === undefined && known?.metadata.auth_mode === "oidc" ? { withheld: known.name } : {}),
    };
    return keepingTokens(target);
  }
  const name = named ?? active;
  if (name === undefined) {
    throw new OpenShellError(
      "failed-precondition",
      'no gateway is chosen: add one with "openshell gateway add NAME --endpoint https://HOST:PORT …", or choose one with "openshell gateway use NAME"',
    );
  }
  if (active !== undefined && (await directory.find(active)) === undefined) {
    throw new OpenShellError(
      "not-found",
      `there is no gateway "${active}", though it is the one in use: choose another with "openshell gateway use NAME", or add it again`,
    );
  }
  const known = await directory.get(name);
  return keepingTokens({
    name,
    endpoint: parseEndpoint(known.metadata.gateway_endpoint),
    insecure,
    ...optional("certificates", await directory.certificates(name)),
    ...optional("bearer", await bearerOf(choice, env, directory, known)),
  });
}

function isSet(variable: string, env: Environment): boolean {
  const text = env[variable] ?? "";
  if (/^(1|true|yes)$/i.test(text)) return true;
  if (/^(0|false|no|)$/i.test(text)) return false;
  throw new OpenShellError("invalid-argument", `$${variable} "${text}": expected true or false`);
}

/** The gateway in use, where all of it can be read: an endpoint that is given needs nothing of it. */
async function wholeOf(directory: GatewayDirectory, active: string | undefined): Promise<string | undefined> {
  return (await directory.list()).known.find(({ name }) => name === active)?.name;
}

function optional<K extends string, V>(key: K, value: V | undefined): { readonly [name in K]?: V } {
  return value === undefined ? {} : ({ [key]: value } as { readonly [name in K]?: V });
}

function isEndpointOf({ metadata }: KnownGateway, { url }: Endpoint): boolean {
  return parseEndpoint(metadata.gateway_endpoint).url === url;
}

/** The same target, once it is sure that a token gets to the gateway and to nobody else. */
function keepingTokens(target: Target): Target {
  const { bearer, endpoint, insecure } = target;
  if (bearer === undefined || isLoopback(endpoint.host)) return target;
  requireTlsForTokens(endpoint);
  if (!insecure) return target;
  throw new OpenShellError(
    "failed-precondition",
    `the certificate of ${endpoint.url} is not to be verified, so that anybody could be there and take the token that calls carry; no token is sent there: leave out --gateway-insecure, and add the gateway with --ca`,
  );
}

async function bearerOf(
  { bearerTokenFile }: GatewayChoice,
  env: Environment,
  directory: GatewayDirectory,
  known: KnownGateway | undefined,
): Promise<Bearer | undefined> {
  const given = givenBearer(bearerTokenFile, env);
  if (given !== undefined || known === undefined) return given;
  const client = await directory.oidcClient(known, env);
  return client === undefined ? undefined : storedBearer(directory, known.name, client, env);
}

export type GatewayClient = Client<typeof openshell.OpenShell>;

/** A client and what closes it. */
export interface Connection extends Disposable {
  readonly target: Target;
  readonly client: GatewayClient;
  /** Resolves when the gateway has spoken, or cannot be reached; streams begin with it. */
  readonly spoken: (signal: AbortSignal | undefined) => Promise<void>;
}

/** @param withinMs in which a gateway has to speak before a stream begins, in milliseconds; undefined for no limit */
export function connect(target: Target, withinMs: number | undefined): Connection {
  // With its scheme: gRPC takes a host that is called like one of its resolvers for that.
  const channel = createChannel(`dns:///${target.endpoint.host}:${target.endpoint.port}`, credentialsFor(target));
  const spoken = (signal: AbortSignal | undefined) =>
    whenConnected(channel, withinMs, signal).catch((error: unknown) => {
      throw explained(error, target);
    });
  const client = explaining(grpcClient(openshell.OpenShell, channel), target, spoken);
  return { target, client, spoken, [Symbol.dispose]: () => channel.close() };
}

function credentialsFor({ endpoint, certificates, insecure }: Target): ChannelCredentials {
  if (!endpoint.tls) return credentials.createInsecure();
  const buffer = (pem: string | undefined) => (pem === undefined ? null : Buffer.from(pem));
  try {
    return credentials.createSsl(
      buffer(certificates?.ca),
      buffer(certificates?.key),
      buffer(certificates?.cert),
      insecure ? { rejectUnauthorized: false, checkServerIdentity: () => undefined } : {},
    );
  } catch (cause) {
    throw new OpenShellError(
      "failed-precondition",
      "the gateway's certificate files cannot be used; add the gateway again",
      { cause },
    );
  }
}

/** The same client, whose connection failures say what to do, and whose streams begin when the gateway has spoken. */
function explaining(client: GatewayClient, target: Target, spoken: Connection["spoken"]): GatewayClient {
  const wrapped: Record<string, unknown> = {};
  for (const [name, call] of Object.entries(client) as [
    string,
    (request: unknown, options?: CallOptions) => unknown,
  ][]) {
    const method = openshell.OpenShell.method[name as keyof typeof openshell.OpenShell.method];
    const answersOnce = method.methodKind === "unary" || method.methodKind === "client_streaming";
    const start = async (request: unknown, options: CallOptions = {}) =>
      call(request, await identified(options, target));
    wrapped[name] = answersOnce
      ? (request: unknown, options?: CallOptions) =>
          start(request, options).catch((error: unknown) => {
            throw explained(error, target);
          })
      : (request: unknown, options?: CallOptions) =>
          explainedStream(async () => {
            await spoken(options?.signal);
            return start(request, options);
          }, target);
  }
  return wrapped as GatewayClient;
}

async function* explainedStream(start: () => Promise<unknown>, target: Target) {
  try {
    yield* (await start()) as AsyncIterable<unknown>;
  } catch (error) {
    throw explained(error, target);
  }
}

/** The same options, with the caller's token. */
async function identified(options: CallOptions, { bearer }: Target): Promise<CallOptions> {
  if (bearer === undefined) return options;
  const token = await bearer.token(options.signal ?? new AbortController().signal);
  return { ...options, headers: { ...options.headers, authorization: `Bearer ${token}` } };
}

/** Which credential is missing or does not hold, and where a better one comes from. */
function unaccepted(error: OpenShellError, { name, endpoint, certificates, bearer, withheld }: Target): OpenShellError {
  const { reason, metadata } = error.details;
  // Said before anything was sent.
  if (reason === notLoggedIn) return error;
  const refuse = (why: string) =>
    new OpenShellError("unauthenticated", `the gateway "${name}" ${why}`, { cause: error });
  if (bearer !== undefined) return refuse(`does not accept the token (${error.message}): ${bearer.remedy}`);
  if (certificates?.cert !== undefined) {
    return refuse(`does not accept the stored client certificate (${error.message}): add it again with a valid one`);
  }
  if (withheld !== undefined) {
    return new OpenShellError(
      "unauthenticated",
      `the gateway at ${endpoint.url} wants a token, and the login to "${withheld}" goes to its own endpoint only: name it with --gateway ${withheld} to send it here`,
      { cause: error },
    );
  }
  return refuse(
    reason === "CredentialMissing"
      ? `wants a token of ${metadata?.issuer}: add it again with --oidc-issuer, and run "openshell gateway login ${name}"`
      : "wants a client certificate, and none is stored for it: add it again with --cert and --key, --from-secret or --from-kubernetes",
  );
}

/** A failure to connect in the words of someone who has to mend it; every other error as it is. */
export function explained(error: unknown, target: Target): unknown {
  if (hasCode(error, "unauthenticated")) return unaccepted(error, target);
  if (hasCode(error, "deadline-exceeded") && /^Deadline exceeded/.test(error.message)) {
    const message = `the gateway "${target.name}" at ${target.endpoint.url} did not answer in time; --request-timeout gives it longer`;
    return new OpenShellError("deadline-exceeded", message, { cause: error });
  }
  if (!hasCode(error, "unavailable")) return error;
  const where = `the gateway "${target.name}" at ${target.endpoint.url}`;
  if (notConnected.test(error.message)) {
    const why = connectionFailures.find(({ pattern }) => pattern.test(error.message))?.sentence ?? closedAtOnce(error);
    return new OpenShellError("unavailable", `cannot reach ${where}: ${why}`, { cause: error });
  }
  if (!connectionLost.test(error.message)) return error;
  const message = `the connection to ${where} was lost; is the gateway running, and the port forward to it open?`;
  return new OpenShellError("unavailable", message, { cause: error });
}

/** How grpc-js 1.14 begins to tell of a connection that could not be made; a gateway that answers may speak of others' connections. */
const notConnected = /^(No connection established|Name resolution failed|Failed to parse DNS address)/;

/** And of one that was there. */
const connectionLost =
  /^(Connection dropped|Received RST_STREAM|Call cancelled$|Stream refused|Failed to start HTTP\/2 stream|Write (error|failed)|(read|write) E[A-Z]+|socket hang up|Protocol error)/;

/** A wrong scheme shows in no other words than that. */
function closedAtOnce({ message }: OpenShellError): string {
  const last = lastConnectionError(message);
  const sentence = "the connection was closed; does its endpoint begin with https:// (TLS) or http:// (none)?";
  return last === undefined ? sentence : `${sentence} (${last})`;
}

const connectionFailures: readonly { readonly pattern: RegExp; readonly sentence: string }[] = [
  {
    pattern: /ECONNREFUSED/,
    sentence: "connection refused; is the gateway running, and the port forward to it open?",
  },
  {
    pattern: /ENOTFOUND|EAI_AGAIN|Name resolution failed|Failed to parse DNS/,
    sentence: "its host name does not resolve",
  },
  {
    pattern: /ETIMEDOUT|EHOSTUNREACH|ENETUNREACH/,
    sentence: "no answer; is the address right, and no firewall between?",
  },
  {
    pattern: /self[- ]signed|unable to (get|verify)|UNABLE_TO|certificate signature failure/i,
    sentence:
      "its certificate was not signed by the stored ca.crt; after a new installation add the gateway again, so that its certificates are imported anew",
  },
  {
    pattern: /altnames|ERR_TLS_CERT_ALTNAME/i,
    sentence:
      "its certificate is not for this host; use a name that it has (pkiInitJob.serverDnsNames in the chart adds one)",
  },
  {
    pattern: /certificate has expired|CERT_HAS_EXPIRED/,
    sentence: "its certificate has expired; upgrade the release to renew it",
  },
  {
    pattern: /not yet valid|CERT_NOT_YET_VALID/,
    sentence: "its certificate is not valid yet; are the clocks of this machine and of the gateway's right?",
  },
  { pattern: /unsuitable certificate purpose/, sentence: "its certificate is not one for a server" },
  {
    pattern: /certificate required|bad certificate|unknown ca|decrypt error|alert/i,
    sentence: "it refused the stored client certificate; add the gateway again to import a valid one",
  },
  {
    pattern: /wrong version number|WRONG_VERSION|packet length too long/i,
    sentence: "it does not speak TLS; its endpoint begins with http://",
  },
];
