import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { Agent, RequestOptions } from "node:https";
import { isIPv6 } from "node:net";
import { OpenShellError } from "../common/errors.ts";
import { readPlainKubeconfig } from "./_kubeconfig.ts";

/** TLS settings of a connection to the API server. */
export interface AccessTls {
  readonly ca?: string | Buffer;
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
  readonly servername?: string;
  readonly rejectUnauthorized?: boolean;
}

/** What a request needs in order to be let in; read anew for each request, so that tokens may rotate. */
export interface Credentials {
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: AccessTls;
  /** Names the TLS material: connections are not shared across different values. */
  readonly fingerprint: string;
  /** Set when the way leads through a proxy. */
  readonly agent?: Agent;
}

/** Where a cluster is and how to be let in. */
export interface ClusterAccess {
  readonly server: URL;
  /** @default "default" */
  readonly namespace: string;
  /** @param refresh the last answer was refused: read again, whatever is cached */
  credentials(refresh: boolean): Promise<Credentials>;
}

const serviceAccountFolder = "/var/run/secrets/kubernetes.io/serviceaccount";
const tokenAgeMs = 10_000;

/** Access with fixed credentials, for servers that are in the same process. */
export function fixedAccess(server: string, headers: Record<string, string> = {}, tls: AccessTls = {}): ClusterAccess {
  const credentials = { headers, tls, fingerprint: fingerprintOf(tls) };
  return { server: new URL(server), namespace: "default", credentials: async () => credentials };
}

/** True inside a Pod that has a ServiceAccount token. */
export function isInCluster(env: NodeJS.ProcessEnv = process.env): boolean {
  return Boolean(env.KUBERNETES_SERVICE_HOST && env.KUBERNETES_SERVICE_PORT);
}

/**
 * Access from inside a Pod. Kept apart from client-node, whose configuration module costs 85 MB of memory and two
 * seconds at start (measured), because this is what the gateway uses.
 *
 * @param folder holds `token`, `ca.crt` and `namespace`; the token is read again every 10 s
 */
export async function inClusterAccess(
  env: NodeJS.ProcessEnv = process.env,
  folder: string = serviceAccountFolder,
): Promise<ClusterAccess> {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = env;
  if (!host || !port) {
    throw new OpenShellError(
      "failed-precondition",
      "not inside a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; give a kubeconfig",
    );
  }
  const [ca, namespace] = await Promise.all([
    readCredential(`${folder}/ca.crt`),
    readCredential(`${folder}/namespace`),
  ]);
  const tls = { ca };
  const fingerprint = fingerprintOf(tls);
  let token = await readCredential(`${folder}/token`);
  let readAt = Date.now();
  return {
    server: new URL(`https://${isIPv6(host) ? `[${host}]` : host}:${port}`),
    namespace: namespace.trim(),
    async credentials(refresh) {
      if (refresh || Date.now() - readAt > tokenAgeMs) {
        token = await readCredential(`${folder}/token`);
        readAt = Date.now();
      }
      return { headers: { authorization: `Bearer ${token.trim()}` }, tls, fingerprint };
    },
  };
}

/**
 * Access by a kubeconfig file. Plain ones are read here; exec plugins, proxies, passwords and merged files are client-node's work.
 *
 * @param path undefined: KUBECONFIG or ~/.kube/config
 * @param context undefined: the file's current one
 */
export async function kubeconfigAccess(path?: string, context?: string): Promise<ClusterAccess> {
  const plain = await readPlainKubeconfig(path, context);
  if (plain !== undefined) {
    const { server, namespace } = plain;
    const read = async (): Promise<Credentials> => {
      const { headers, tls } = await plain.credentials().catch((cause: NodeJS.ErrnoException) => {
        throw new OpenShellError("failed-precondition", `cannot read ${cause.path}, which the kubeconfig names`, {
          cause,
        });
      });
      return { headers, tls, fingerprint: fingerprintOf(tls) };
    };
    return { server, namespace, credentials: await keptFor(tokenAgeMs, read) };
  }
  const { KubeConfig } = await import("@kubernetes/client-node/dist/config.js");
  const config = new KubeConfig();
  try {
    if (path === undefined) config.loadFromDefault();
    else config.loadFromFile(path);
  } catch (cause) {
    throw new OpenShellError("failed-precondition", `cannot read kubeconfig ${path ?? "(default)"}`, { cause });
  }
  if (context !== undefined) config.setCurrentContext(context);
  const cluster = config.getCurrentCluster();
  if (!cluster) {
    throw new OpenShellError(
      "failed-precondition",
      `kubeconfig ${path ?? "(default)"} has no cluster for context "${config.getCurrentContext()}"; choose another context`,
    );
  }
  const read = async (): Promise<Credentials> => {
    const options: RequestOptions = {};
    try {
      await config.applyToHTTPSOptions(options);
    } catch (cause) {
      const user = config.getCurrentUser()?.name ?? "(none)";
      throw new OpenShellError("unauthenticated", `cannot use the credentials of kubeconfig user "${user}"`, { cause });
    }
    const tls = definedOnly({
      ca: options.ca as AccessTls["ca"],
      cert: options.cert as AccessTls["cert"],
      key: options.key as AccessTls["key"],
      servername: options.servername,
      rejectUnauthorized: options.rejectUnauthorized,
    });
    const headers: Record<string, string> = {};
    for (const [name, value] of Object.entries(options.headers ?? {})) headers[name.toLowerCase()] = String(value);
    if (options.auth) headers.authorization = `Basic ${Buffer.from(options.auth).toString("base64")}`;
    const agent = cluster.proxyUrl ? { agent: options.agent as Agent } : {};
    return { headers, tls, fingerprint: fingerprintOf(tls), ...agent };
  };
  return {
    server: new URL(cluster.server),
    namespace: config.getContextObject(config.getCurrentContext())?.namespace ?? "default",
    credentials: await keptFor(tokenAgeMs, read),
  };
}

/** Reads once now, and again when asked to or when what was read is older than `ms`. */
async function keptFor(ms: number, read: () => Promise<Credentials>): Promise<ClusterAccess["credentials"]> {
  let cached = await read();
  let readAt = Date.now();
  return async (refresh) => {
    if (refresh || Date.now() - readAt > ms) {
      cached = await read();
      readAt = Date.now();
    }
    return cached;
  };
}

/** In a Pod the Pod's own access, elsewhere the kubeconfig's. A given path always wins. */
export function defaultAccess(kubeconfig?: string): Promise<ClusterAccess> {
  return kubeconfig === undefined && isInCluster() ? inClusterAccess() : kubeconfigAccess(kubeconfig);
}

async function readCredential(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    throw new OpenShellError(
      "failed-precondition",
      `cannot read ${path}: the Pod needs a mounted ServiceAccount token (automountServiceAccountToken: true)`,
      { cause },
    );
  }
}

function fingerprintOf(tls: AccessTls): string {
  const hash = createHash("sha256");
  for (const part of [tls.ca, tls.cert, tls.key, tls.servername, String(tls.rejectUnauthorized)]) {
    hash.update(part ?? "").update("\0");
  }
  return hash.digest("hex");
}

function definedOnly<T extends object>(value: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, v]) => v !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}
