import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { parse } from "yaml";
import * as z from "zod/mini";

const text = z.optional(z.string());
const clusterSchema = z.strictObject({
  server: z.url({ protocol: /^https?$/ }),
  "certificate-authority": text,
  "certificate-authority-data": text,
  "insecure-skip-tls-verify": z.optional(z.boolean()),
  "tls-server-name": text,
  "disable-compression": z.optional(z.boolean()),
  extensions: z.optional(z.unknown()),
});
const userSchema = z.strictObject({
  "client-certificate": text,
  "client-certificate-data": text,
  "client-key": text,
  "client-key-data": text,
  token: text,
  tokenFile: text,
  extensions: z.optional(z.unknown()),
});
const named = z.looseObject({ name: z.string() });
const fileSchema = z.looseObject({
  "current-context": text,
  clusters: z.array(z.extend(named, { cluster: z.unknown() })),
  contexts: z.array(
    z.extend(named, { context: z.looseObject({ cluster: z.string(), user: z.string(), namespace: text }) }),
  ),
  users: z.array(z.extend(named, { user: z.unknown() })),
});

interface PlainTls {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
  readonly servername?: string;
  readonly rejectUnauthorized?: boolean;
}

/** A way into a cluster that needs nothing but files: no plugin, no proxy, no password, no impersonation. */
export interface PlainKubeconfig {
  readonly server: URL;
  readonly namespace: string;
  /** Reads what the kubeconfig names files for, anew each time. */
  readonly credentials: () => Promise<{ readonly headers: Readonly<Record<string, string>>; readonly tls: PlainTls }>;
}

/**
 * Reads a kubeconfig of the plain sort, as every local cluster and most CI systems write it. Client-node's module costs 85 MB of memory and up
 * to two seconds at start (measured), so it is loaded only for what this gives undefined for: everything that is not understood to the
 * last field, and files that are missing or damaged.
 *
 * @param path undefined: KUBECONFIG or ~/.kube/config
 * @param context undefined: the file's current one
 */
export async function readPlainKubeconfig(
  path: string = process.env.KUBECONFIG || join(homedir(), ".kube", "config"),
  context?: string,
): Promise<PlainKubeconfig | undefined> {
  // Several files are one kubeconfig by rules of their own.
  if (path.includes(delimiter)) return undefined;
  const content = await readFile(path, "utf8").catch(() => undefined);
  return content === undefined ? undefined : parsePlainKubeconfig(content, dirname(resolve(path)), context);
}

/** @param directory what relative file names in it are relative to */
export function parsePlainKubeconfig(
  content: string,
  directory: string,
  context?: string,
): PlainKubeconfig | undefined {
  const file = fileSchema.safeParse(yamlOf(content)).data;
  const wanted = context ?? file?.["current-context"];
  const chosen = file?.contexts.find(({ name }) => name === wanted)?.context;
  if (file === undefined || chosen === undefined) return undefined;
  const cluster = clusterSchema.safeParse(file.clusters.find(({ name }) => name === chosen.cluster)?.cluster).data;
  const user = userSchema.safeParse(file.users.find(({ name }) => name === chosen.user)?.user).data;
  if (cluster === undefined || user === undefined) return undefined;

  const part = async (data: string | undefined, name: string | undefined): Promise<Buffer | undefined> => {
    if (data) return Buffer.from(data, "base64");
    return name ? await readFile(resolve(directory, name)) : undefined;
  };
  return {
    server: new URL(cluster.server),
    namespace: chosen.namespace || "default",
    async credentials() {
      const [ca, cert, key, fresh] = await Promise.all([
        part(cluster["certificate-authority-data"], cluster["certificate-authority"]),
        part(user["client-certificate-data"], user["client-certificate"]),
        part(user["client-key-data"], user["client-key"]),
        part(undefined, user.tokenFile),
      ]);
      const token = fresh?.toString("utf8").trim() || user.token;
      const servername = cluster["tls-server-name"];
      return {
        headers: token ? { authorization: `Bearer ${token}` } : {},
        tls: {
          ...(ca && { ca }),
          ...(cert && { cert }),
          ...(key && { key }),
          ...(servername && { servername }),
          ...(cluster["insecure-skip-tls-verify"] && { rejectUnauthorized: false }),
        },
      };
    },
  };
}

function yamlOf(content: string): unknown {
  try {
    return parse(content);
  } catch {
    // Client-node says what is wrong with it.
    return undefined;
  }
}
