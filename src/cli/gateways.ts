/** The gateways a user knows: files below `<cfg>/openshell`, shared with the Python SDK and other clients. */
import { createPrivateKey, randomUUID, X509Certificate } from "node:crypto";
import { chmod, mkdir, open, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { sleep } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { sameIssuer } from "../common/oidc-discovery.ts";
import { tryLock } from "./lock.ts";
import { isLoopback } from "./loopback.ts";
import { type OidcClient, type StoredToken, tokenSchema } from "./oidc-login.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

/** What `metadata.json` holds; the first four are mandatory for every client. Keys of other clients are kept. */
const metadataSchema = z.looseObject({
  name: z.string().optional(),
  gateway_endpoint: z.string(),
  is_remote: z.boolean().optional(),
  gateway_port: z.int().optional(),
  auth_mode: z.string().optional(),
  oidc_issuer: z.string().optional(),
  oidc_client_id: z.string().optional(),
  oidc_audience: z.string().optional(),
  oidc_scopes: z.string().optional(),
});

export type GatewayMetadata = z.infer<typeof metadataSchema>;

/** Client identity of a gateway, PEM. */
export interface GatewayCertificates {
  /** Authorities that may have signed the gateway's certificate. */
  readonly ca: string;
  readonly cert?: string;
  readonly key?: string;
}

/** What certificates were read from, as errors name it; a Secret holds all of them. */
export interface CertificateSources {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly secret?: string | undefined;
  readonly oidcCa?: string;
}

export interface KnownGateway {
  readonly name: string;
  readonly metadata: GatewayMetadata;
}

/** A gateway whose files cannot be read; `damage` names the file. */
export interface DamagedGateway {
  readonly name: string;
  readonly damage: OpenShellError;
}

/** Where users of the contract's clients log in when no client is named. */
const defaultClientId = "openshell-cli";
const tokenFile = "oidc_token.json";
const oidcAuthorityFile = "oidc_ca.crt";
const tokenLock = "oidc_token.lock";
/** Longer than a renewal takes at most: two requests of 15 s. */
const tokenLockMs = 60_000;

const certificateFiles = { ca: "ca.crt", cert: "tls.crt", key: "tls.key" } as const;

/** `$XDG_CONFIG_HOME/openshell`, else `~/.config/openshell`. */
export function configDirectory(env: Environment): string {
  const base = env.XDG_CONFIG_HOME || join(env.HOME || homedir(), ".config");
  return join(base, "openshell");
}

/** Host and port of an endpoint such as `https://gateway.example.org:8080`. */
export interface Endpoint {
  readonly url: string;
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
}

/**
 * @throws invalid-argument when it is no http or https URL; the published clients would connect somewhere else
 */
export function parseEndpoint(text: string): Endpoint {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol) || url.hostname === "") {
    throw new OpenShellError(
      "invalid-argument",
      `"${text}" is not an endpoint: write it as https://HOST:PORT (or http://HOST:PORT for a gateway without TLS)`,
    );
  }
  if (url.href !== `${url.origin}/`) {
    throw new OpenShellError("invalid-argument", `the endpoint "${text}" may hold only a scheme, a host and a port`);
  }
  const tls = url.protocol === "https:";
  return {
    url: `${url.protocol}//${url.host}`,
    host: url.hostname,
    port: url.port === "" ? (tls ? 443 : 80) : Number(url.port),
    tls,
  };
}

/**
 * @throws failed-precondition for an endpoint off this machine that has no TLS: whoever reads a token on the way is its user
 */
export function requireTlsForTokens({ url, host, tls }: Endpoint): void {
  if (tls || isLoopback(host)) return;
  throw new OpenShellError(
    "failed-precondition",
    `${url} is an endpoint without TLS, so that others could read the token that calls carry; no token is sent there: write https://, or forward a local port to it`,
  );
}

const gatewayName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;

/**
 * @throws invalid-argument for a name that is no plain directory name
 */
export function checkGatewayName(name: string): string {
  if (gatewayName.test(name)) return name;
  throw new OpenShellError(
    "invalid-argument",
    `"${name}" cannot be a gateway's name: use letters, digits, dots, dashes and underscores, at most 63, beginning with a letter or digit`,
  );
}

/** The known gateways in a configuration directory. */
export class GatewayDirectory {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  /** Each sorted by name. */
  async list(): Promise<{ readonly known: KnownGateway[]; readonly damaged: DamagedGateway[] }> {
    const known: KnownGateway[] = [];
    const damaged: DamagedGateway[] = [];
    for (const name of await this.names()) {
      try {
        const found = await this.find(name);
        if (found !== undefined) known.push(found);
      } catch (error) {
        damaged.push({ name, damage: OpenShellError.from(error) });
      }
    }
    return { known, damaged };
  }

  /** Of the gateways that are there, damaged ones too; sorted. A directory that no gateway could be in is not ours. */
  async names(): Promise<string[]> {
    const entries = await ifThere(readdir(join(this.path, "gateways"), { withFileTypes: true }));
    const names: string[] = [];
    for (const entry of entries ?? []) {
      if (entry.isDirectory() && (await this.has(entry.name))) names.push(entry.name);
    }
    return names.sort();
  }

  /** Whether there is such a gateway, be it a damaged one. */
  async has(name: string): Promise<boolean> {
    if (!gatewayName.test(name)) return false;
    return stat(this.#metadataOf(name)).then(
      () => true,
      (error) => !isMissing(error),
    );
  }

  async find(name: string): Promise<KnownGateway | undefined> {
    const path = this.#metadataOf(name);
    const text = await ifThere(readFile(path, "utf8"));
    if (text === undefined) return undefined;
    return { name, metadata: parseMetadata(text, path) };
  }

  /**
   * @throws not-found with the names that exist
   */
  async get(name: string): Promise<KnownGateway> {
    const found = await this.find(name);
    if (found !== undefined) return found;
    throw await this.#missing(name);
  }

  /** The name in `active_gateway`, or undefined; what can be no gateway's name counts as none. */
  async active(): Promise<string | undefined> {
    const text = await ifThere(readFile(join(this.path, "active_gateway"), "utf8"));
    const name = text?.trim() ?? "";
    return gatewayName.test(name) ? name : undefined;
  }

  async use(name: string): Promise<void> {
    await this.get(name);
    await writeWhole(join(this.path, "active_gateway"), `${name}\n`);
  }

  /** Certificates of a gateway; undefined without a ca.crt, since clients then use no client certificate either. */
  async certificates(name: string): Promise<GatewayCertificates | undefined> {
    const read = (file: string) => ifThere(readFile(join(this.#directoryOf(name), "mtls", file), "utf8"));
    const ca = await read(certificateFiles.ca);
    if (ca === undefined) return undefined;
    const [cert, key] = [await read(certificateFiles.cert), await read(certificateFiles.key)];
    return cert === undefined || key === undefined ? { ca } : { ca, cert, key };
  }

  /**
   * Adds or replaces a gateway. Certificates first, so that a reader never finds a gateway without them; without new ones it keeps those
   * it has, since a client key may be nowhere else. What was of another OpenID provider goes.
   */
  async add(
    name: string,
    endpoint: Endpoint,
    certificates?: GatewayCertificates,
    oidc?: Partial<OidcClient>,
    from: CertificateSources = {},
  ): Promise<void> {
    checkGatewayName(name);
    if (certificates !== undefined) checkCertificates(certificates, from);
    const authority = oidc?.ca;
    if (authority !== undefined)
      parsePem("CA certificate of the OIDC provider", from.oidcCa, authority, (pem) => new X509Certificate(pem));
    const directory = this.#directoryOf(name);
    const metadata: GatewayMetadata = {
      name,
      gateway_endpoint: endpoint.url,
      is_remote: !isLoopback(endpoint.host),
      gateway_port: endpoint.port,
      auth_mode: oidc?.issuer !== undefined ? "oidc" : endpoint.tls ? "mtls" : "plaintext",
      ...(oidc?.issuer === undefined
        ? {}
        : { oidc_issuer: oidc.issuer, oidc_client_id: oidc.clientId ?? defaultClientId }),
      ...(oidc?.audience === undefined ? {} : { oidc_audience: oidc.audience }),
      ...(oidc?.scopes === undefined ? {} : { oidc_scopes: oidc.scopes }),
    };
    if (oidc?.issuer !== undefined && !(await this.#isUsersProvider(name, oidc.issuer))) {
      for (const file of [tokenFile, oidcAuthorityFile]) await rm(join(directory, file), { force: true });
    }
    await makePrivate(directory);
    if (authority !== undefined) await writeWhole(join(directory, oidcAuthorityFile), authority);
    if (certificates !== undefined) {
      await makePrivate(join(directory, "mtls"));
      for (const [key, file] of Object.entries(certificateFiles)) {
        const pem = certificates[key as keyof GatewayCertificates];
        if (pem === undefined) await rm(join(directory, "mtls", file), { force: true });
        else await writeWhole(join(directory, "mtls", file), pem);
      }
    }
    await writeWhole(this.#metadataOf(name), `${JSON.stringify(metadata, null, 2)}\n`);
  }

  /** How users of a gateway log in; undefined where they do not. Authorities: those stored for it, else the environment's. */
  async oidcClient({ name, metadata }: KnownGateway, env: Environment): Promise<OidcClient | undefined> {
    if (metadata.auth_mode !== "oidc") return undefined;
    if (!metadata.oidc_issuer) {
      throw new OpenShellError(
        "failed-precondition",
        `the gateway "${name}" has auth_mode "oidc" and no oidc_issuer: add it again with --oidc-issuer`,
      );
    }
    const stored = await ifThere(readFile(join(this.#directoryOf(name), oidcAuthorityFile), "utf8"));
    const ca = stored ?? (env.SSL_CERT_FILE ? await ifThere(readFile(env.SSL_CERT_FILE, "utf8")) : undefined);
    return {
      issuer: metadata.oidc_issuer,
      clientId: metadata.oidc_client_id || defaultClientId,
      ...(metadata.oidc_audience ? { audience: metadata.oidc_audience } : {}),
      ...(metadata.oidc_scopes ? { scopes: metadata.oidc_scopes } : {}),
      ...(ca === undefined ? {} : { ca }),
    };
  }

  /** The login that is stored for a gateway; one that cannot be read counts as none. */
  async token(name: string): Promise<StoredToken | undefined> {
    const text = await ifThere(readFile(join(this.#directoryOf(name), tokenFile), "utf8"));
    if (text === undefined) return undefined;
    try {
      return tokenSchema.parse(JSON.parse(text));
    } catch {
      return undefined;
    }
  }

  /**
   * For who holds `lockToken`.
   * @throws not-found when the gateway was removed meanwhile
   */
  async storeToken(name: string, token: StoredToken): Promise<void> {
    const path = join(this.#directoryOf(name), tokenFile);
    await this.#inPlace(name, writeWhole(path, tokenText(token)));
  }

  /** @throws failed-precondition where a token like this one could not be stored now, such as on a full disk; not-found as `storeToken` */
  async checkStorable(name: string, token: StoredToken): Promise<void> {
    const path = join(this.#directoryOf(name), `.${randomUUID()}`);
    await this.#inPlace(name, writeWhole(path, tokenText(token)));
    await rm(path, { force: true });
  }

  /**
   * One at a time changes a login: providers that exchange refresh tokens end the login when one is shown twice, and a renewal that began before
   * a logout would undo it. Whoever comes in has to look again what there is. A lock that is older than a renewal can be is of a process that
   * is gone.
   * @throws not-found when there is no such gateway, any more or at all
   */
  async lockToken(name: string, signal: AbortSignal): Promise<AsyncDisposable> {
    const path = join(this.#directoryOf(name), tokenLock);
    for (;;) {
      const lock = await this.#inPlace(name, tryLock(path, tokenLockMs));
      if (lock !== undefined) return lock;
      await sleep(20 + 30 * Math.random(), signal);
    }
  }

  /**
   * For who holds `lockToken`.
   * @returns whether there was one
   */
  async removeToken(name: string): Promise<boolean> {
    const path = join(this.#directoryOf(name), tokenFile);
    const was = (await ifThere(readFile(path))) !== undefined;
    await rm(path, { force: true });
    return was;
  }

  /**
   * Forgets a gateway, a damaged one too, and that it was the active one. Its tokens go first; then all goes in one step, with the lock that
   * keeps a renewal of its login out.
   */
  async remove(name: string, signal: AbortSignal): Promise<void> {
    if (!(await this.has(checkGatewayName(name)))) throw await this.#missing(name);
    await using _lock = await this.lockToken(name, signal);
    await written(rm(join(this.#directoryOf(name), tokenFile), { force: true }));
    const removed = join(this.path, "gateways", `.${randomUUID()}`);
    await this.#inPlace(name, rename(this.#directoryOf(name), removed));
    if ((await this.active()) === name) await rm(join(this.path, "active_gateway"), { force: true });
    await written(rm(removed, { recursive: true, force: true }));
  }

  async #missing(name: string): Promise<OpenShellError> {
    const others = await this.names();
    return new OpenShellError(
      "not-found",
      others.length === 0
        ? `there is no gateway "${name}": add it with "openshell gateway add ${name} --endpoint https://HOST:PORT …"`
        : `there is no gateway "${name}"; known are ${others.join(", ")}`,
    );
  }

  /** What writes into a gateway's directory, and does not make it. */
  async #inPlace<T>(name: string, writing: Promise<T>): Promise<T> {
    try {
      return await written(writing);
    } catch (error) {
      throw isMissing((error as OpenShellError).cause) ? await this.#missing(name) : error;
    }
  }

  /** False too for a gateway whose files cannot be read, since it is being replaced. */
  async #isUsersProvider(name: string, issuer: string): Promise<boolean> {
    try {
      const found = await this.find(name);
      return found !== undefined && sameIssuer(found.metadata.oidc_issuer ?? "", issuer);
    } catch {
      return false;
    }
  }

  #metadataOf(name: string): string {
    return join(this.#directoryOf(name), "metadata.json");
  }

  #directoryOf(name: string): string {
    return join(this.path, "gateways", checkGatewayName(name));
  }
}

function tokenText(token: StoredToken): string {
  return `${JSON.stringify(token, null, 2)}\n`;
}

/**
 * @throws invalid-argument naming what is no PEM, or that key and certificate do not belong together
 */
function checkCertificates({ ca, cert, key }: GatewayCertificates, from: CertificateSources): void {
  parsePem("CA certificate", from.secret ?? from.ca, ca, (pem) => new X509Certificate(pem));
  if (cert === undefined || key === undefined) return;
  const certificate = parsePem("client certificate", from.secret ?? from.cert, cert, (pem) => new X509Certificate(pem));
  const privateKey = parsePem("client key", from.secret ?? from.key, key, (pem) => createPrivateKey(pem));
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new OpenShellError("invalid-argument", "the client key does not belong to the client certificate");
  }
}

function parsePem<T>(what: string, from: string | undefined, pem: string, parse: (pem: string) => T): T {
  try {
    return parse(pem);
  } catch (cause) {
    const why = pem.includes("-----BEGIN")
      ? "cannot be read: it is damaged, or encrypted and has to be decrypted first"
      : 'is not PEM (a text that begins with "-----BEGIN")';
    throw new OpenShellError("invalid-argument", `${from === undefined ? "" : `${from}: `}the ${what} ${why}`, {
      cause,
    });
  }
}

function parseMetadata(text: string, path: string): GatewayMetadata {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new OpenShellError("failed-precondition", `${path} is not JSON; add the gateway again, or correct the file`, {
      cause,
    });
  }
  const parsed = metadataSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new OpenShellError(
    "failed-precondition",
    `${path}: ${issue?.path.join(".") || "the file"}: ${issue?.message}; add the gateway again, or correct the file`,
  );
}

/** Writes a private file so that a reader sees the old text or the new one, never a part. */
async function writeWhole(path: string, text: string): Promise<void> {
  const temporary = `${path}.${randomUUID()}`;
  try {
    const file = await open(temporary, "wx", 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {});
    throw notWritten(error);
  }
}

/** A directory, which may be there with other rights: who may write in it may replace the keys. */
async function makePrivate(path: string): Promise<void> {
  await written(mkdir(path, { recursive: true, mode: 0o700 }));
  if (((await stat(path)).mode & 0o022) !== 0) await written(chmod(path, 0o700));
}

async function written<T>(writing: Promise<T>): Promise<T> {
  try {
    return await writing;
  } catch (error) {
    throw notWritten(error);
  }
}

function notWritten(error: unknown): OpenShellError {
  if (error instanceof OpenShellError) return error;
  return new OpenShellError("failed-precondition", `cannot write the configuration: ${(error as Error).message}`, {
    cause: error,
  });
}

async function ifThere<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw new OpenShellError("failed-precondition", `cannot read the configuration: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

function isMissing(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOENT" || code === "ENOTDIR";
}
