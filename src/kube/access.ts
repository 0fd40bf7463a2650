import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { isIPv6 } from "node:net";
import { OpenShellError } from "../common/errors.ts";
import { readWithClientNode } from "./_client-node-kubeconfig.ts";
import type { AccessTls, Credentials } from "./_credentials.ts";
import { readPlainKubeconfig } from "./_kubeconfig.ts";

/** Where a cluster is and how to be let in. */
export interface ClusterAccess {
  readonly server: URL;
  /** @default "default" */
  readonly namespace: string;
  /** @param refresh the last answer was refused: read again, whatever is cached */
  credentials(refresh: boolean): Promise<Credentials>;
}

const serviceAccountFolder = "/var/run/secrets/kubernetes.io/serviceaccount";
const credentialsAgeMs = 10_000;

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
 * @param folder holds `token`, `ca.crt` and `namespace`; the first two are read again every 10 s
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
  const read = async (): Promise<Credentials> => {
    const [ca, token] = await Promise.all([readCredential(`${folder}/ca.crt`), readCredential(`${folder}/token`)]);
    const tls = { ca };
    return { headers: { authorization: `Bearer ${token.trim()}` }, tls, fingerprint: fingerprintOf(tls) };
  };
  const namespace = await readCredential(`${folder}/namespace`);
  return {
    server: new URL(`https://${isIPv6(host) ? `[${host}]` : host}:${port}`),
    namespace: namespace.trim(),
    credentials: await keptFor(credentialsAgeMs, read),
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
    return { server, namespace, credentials: await keptFor(credentialsAgeMs, read) };
  }
  const { server, namespace, credentials } = await readWithClientNode(path, context);
  const read = async (refresh: boolean): Promise<Credentials> => {
    const found = await credentials(refresh);
    return { ...found, fingerprint: fingerprintOf(found.tls) };
  };
  return { server, namespace, credentials: await keptFor(credentialsAgeMs, read) };
}

/** Reads once now, and again when asked to or when what was read is older than `ms`. */
async function keptFor(
  ms: number,
  read: (refresh: boolean) => Promise<Credentials>,
): Promise<ClusterAccess["credentials"]> {
  let cached = await read(false);
  let readAt = Date.now();
  let refreshing: Promise<void> | undefined;
  const readAgain = async (refresh: boolean): Promise<void> => {
    const before = readAt;
    const found = await read(refresh);
    // A refresh that began later may have ended sooner.
    if (!refresh && readAt !== before) return;
    cached = found;
    readAt = Date.now();
  };
  return async (refresh) => {
    if (!refresh && Date.now() - readAt <= ms) return cached;
    // Calls that were refused together share one refresh: it may run a plugin that asks a person.
    if (refresh) {
      refreshing ??= readAgain(true).finally(() => {
        refreshing = undefined;
      });
    }
    await (refreshing ?? readAgain(false));
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
