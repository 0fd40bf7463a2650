import { chmod, mkdir, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { stringify } from "yaml";
import type { KeyPair } from "./certificates.ts";

export interface KubeconfigInput {
  readonly server: string;
  /** PEM of the authority that signed the server's certificate. */
  readonly authority: string;
  readonly user: string;
  readonly client: KeyPair;
}

/** Writes a kubeconfig with everything inline, readable by root only. */
export async function writeKubeconfig(file: string, input: KubeconfigInput): Promise<string> {
  const name = "openshell-local";
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name, cluster: { server: input.server, "certificate-authority-data": base64(input.authority) } }],
    users: [
      {
        name: input.user,
        user: {
          "client-certificate-data": base64(input.client.certificate),
          "client-key-data": base64(input.client.key),
        },
      },
    ],
    contexts: [{ name, context: { cluster: name, user: input.user } }],
    "current-context": name,
  };
  await writeFile(file, stringify(config, { lineWidth: 0 }), { mode: 0o600 });
  await chmod(file, 0o600);
  return file;
}

function base64(text: string): string {
  return Buffer.from(text).toString("base64");
}
