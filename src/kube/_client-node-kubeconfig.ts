import type { Agent, RequestOptions } from "node:https";
import { isDeepStrictEqual } from "node:util";
import type { KubeConfig } from "@kubernetes/client-node/dist/config.js";
import { OpenShellError } from "../common/errors.ts";
import type { AccessTls, Credentials } from "./_credentials.ts";

type Found = Omit<Credentials, "fingerprint">;

/** A way into a cluster that client-node finds: by exec plugins, proxies, passwords and merged files. */
export interface ClientNodeKubeconfig {
  readonly server: URL;
  readonly namespace: string;
  /** @param refresh forget what client-node keeps: the token of a plugin has no other end when it names none */
  readonly credentials: (refresh: boolean) => Promise<Found>;
}

interface Loaded {
  readonly config: KubeConfig;
  readonly server: string;
  /** Undefined where the way leads through no proxy. */
  readonly proxyUrl: string | undefined;
  /** The user's auth provider as it was in the file; client-node changes its own. */
  readonly authProvider: string;
}

/**
 * Reads a kubeconfig with client-node.
 *
 * @param path undefined: KUBECONFIG or ~/.kube/config
 * @param context undefined: the file's current one; kept when the file names another later
 */
export async function readWithClientNode(path?: string, context?: string): Promise<ClientNodeKubeconfig> {
  const { KubeConfig } = await import("@kubernetes/client-node/dist/config.js");
  const name = path ?? "(default)";
  const load = (wanted?: string): Loaded => {
    const config = new KubeConfig();
    try {
      if (path === undefined) config.loadFromDefault();
      else config.loadFromFile(path);
    } catch (cause) {
      throw new OpenShellError("failed-precondition", `cannot read kubeconfig ${name}`, { cause });
    }
    if (wanted !== undefined) config.setCurrentContext(wanted);
    const cluster = config.getCurrentCluster();
    if (!cluster) {
      throw new OpenShellError(
        "failed-precondition",
        `kubeconfig ${name} has no cluster for context "${config.getCurrentContext()}"; choose another context`,
      );
    }
    const authProvider = JSON.stringify(authProviderOf(config) ?? null);
    return { config, server: cluster.server, proxyUrl: cluster.proxyUrl, authProvider };
  };

  let loaded = load(context);
  const { server } = loaded;
  const current = loaded.config.getCurrentContext();
  /** All that client-node keeps goes with its old configuration. */
  const reload = (): void => {
    const fresh = load(current);
    if (fresh.server !== server) {
      throw new OpenShellError(
        "failed-precondition",
        `kubeconfig ${name} has another server for context "${current}" than at the start: ${fresh.server}, not ${server}; start again`,
      );
    }
    keepOidcTokens(loaded, fresh);
    loaded = fresh;
  };
  return {
    server: new URL(server),
    namespace: loaded.config.getContextObject(current)?.namespace ?? "default",
    async credentials(refresh) {
      if (refresh) reload();
      const found = await use(loaded);
      if (!hasStaleAgent(found)) return found;
      reload();
      return await use(loaded);
    },
  };
}

async function use({ config, proxyUrl }: Loaded): Promise<Found> {
  const options: RequestOptions = {};
  try {
    await config.applyToHTTPSOptions(options);
  } catch (cause) {
    const user = config.getCurrentUser()?.name ?? "(none)";
    throw new OpenShellError("unavailable", `cannot use the credentials of kubeconfig user "${user}"`, { cause });
  }
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(options.headers ?? {})) headers[name.toLowerCase()] = String(value);
  if (options.auth) headers.authorization = `Basic ${Buffer.from(options.auth).toString("base64")}`;
  return { headers, tls: tlsOf(options), ...(proxyUrl ? { agent: options.agent as Agent } : {}) };
}

/** Client-node keeps the first agent of a cluster and user, whose certificates win over those of a request. */
function hasStaleAgent({ agent, tls }: Found): boolean {
  return agent !== undefined && !isDeepStrictEqual(tlsOf(agent.options), tls);
}

/**
 * Client-node writes OIDC tokens that it refreshed nowhere, and a provider may take the file's refresh token only once. So they outlive
 * the configuration, until somebody writes others into the file.
 */
function keepOidcTokens(former: Loaded, fresh: Loaded): void {
  const from = authProviderOf(former.config);
  const to = authProviderOf(fresh.config);
  if (to?.name !== "oidc" || former.authProvider !== fresh.authProvider) return;
  Object.assign(to.config ?? {}, from?.config);
}

function authProviderOf(config: KubeConfig): { name?: string; config?: object } | undefined {
  return config.getCurrentUser()?.authProvider;
}

function tlsOf({ ca, cert, key, servername, rejectUnauthorized }: RequestOptions): AccessTls {
  const tls = { ca, cert, key, servername, rejectUnauthorized };
  return Object.fromEntries(Object.entries(tls).filter(([, value]) => value !== undefined));
}
