import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { localRegistry, testRegistry } from "../../images/references.ts";
import { clients } from "../cluster/clients.ts";
import { run } from "../cluster/exec.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** One installation of the chart. */
export interface Release {
  /** Helm release; also the prefix of its objects. */
  readonly name: string;
  readonly namespace: string;
  /** Where its sandboxes run. */
  readonly sandboxNamespace: string;
}

export function releaseNamed(name: string): Release {
  return { name, namespace: name, sandboxNamespace: `${name}-sandboxes` };
}

/** One installation for each file of the suite that runs at a time: none meets another's settings. */
export const workerReleases: readonly Release[] = [1, 2, 3, 4].map((worker) =>
  releaseNamed(worker === 1 ? "openshell" : `openshell-${worker}`),
);

/** The installation of this test worker. */
export function workerRelease(): Release {
  const worker = Number(process.env.VITEST_POOL_ID ?? "1");
  const release = workerReleases[worker - 1];
  if (release === undefined) throw new Error(`test worker ${worker} is one more than there are releases`);
  return release;
}

export interface InstallOptions {
  readonly kubeconfig: string;
  readonly release: Release;
  /** Files below values/, the later ones win. */
  readonly presets: readonly string[];
  /** Values on top of the presets. */
  readonly values?: object;
}

/** Values that make the gateway's Pod a new one when its image is another under the same tag. */
export function imageValues(gatewayDigest: string): object {
  return { podAnnotations: { "conformance.openshell.test/gateway-image": gatewayDigest } };
}

/**
 * Values with the certificates and keys that the hook made when the release was installed: a change of a setting then starts no Pod of the
 * hook. None where one of them is missing.
 */
export async function givenSecrets(kubeconfig: string, { name, namespace }: Release): Promise<object> {
  const secret = (suffix: string) => `${name}-${suffix}`;
  const [certSecretName, clientCaSecretName] = [secret("server-tls"), secret("server-client-ca")];
  const [jwtSecretName, keysSecretName] = [secret("jwt-keys"), secret("keys")];
  const names = [certSecretName, clientCaSecretName, jwtSecretName, keysSecretName];
  const where = ["--kubeconfig", kubeconfig, "-n", namespace];
  const found = await run(clients.kubectl, [...where, "get", "secret", ...names, "--ignore-not-found", "-o", "name"]);
  if (found.trim().split("\n").length < names.length) return {};
  const server = { tls: { certSecretName, clientCaSecretName }, jwtSecretName, keysSecretName };
  return { pkiInitJob: { enabled: false }, server };
}

/** Settings of Helm for images from a registry of one's own, where a tag says something else after each push. */
export function registrySettings(registry = testRegistry()): string[] {
  if (registry === localRegistry) return [];
  const settings = { registry, pullPolicy: "Always" };
  return ["global.image", "sandbox.image"].flatMap((image) =>
    Object.entries(settings).flatMap(([name, value]) => ["--set-string", `${image}.${name}=${value}`]),
  );
}

/** Installs or upgrades the chart, as an operator does, and waits until the gateway is ready. */
export async function install(options: InstallOptions): Promise<void> {
  const { kubeconfig, release } = options;
  const directory = await mkdtemp(join(tmpdir(), "openshell-values-"));
  try {
    const own = join(directory, "values.json");
    await writeFile(own, JSON.stringify(options.values ?? {}));
    const files = [...options.presets.map((preset) => join(root, "values", `${preset}.yaml`)), own];
    const helm = ["upgrade", "--install", release.name, join(root, "charts/openshell")];
    const where = ["--kubeconfig", kubeconfig, "--namespace", release.namespace, "--create-namespace"];
    // The API server checks each object as it is applied; Helm's own check before that is a third of its work.
    const how = ["--wait", "--timeout", "4m", "--disable-openapi-validation"];
    await run(
      clients.helm4,
      [...helm, ...where, ...files.flatMap((file) => ["-f", file]), ...registrySettings(), ...how],
      {
        timeoutMs: 280_000,
        remedy: `What its Pods say: kubectl -n ${release.namespace} describe pods`,
      },
    );
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Removes a release, if it is there. Its namespaces stay. */
export async function removeRelease(kubeconfig: string, { name, namespace }: Release): Promise<void> {
  const where = ["--kubeconfig", kubeconfig, "-n", namespace];
  await run(clients.helm4, ["uninstall", name, ...where, "--ignore-not-found", "--wait", "--timeout=60s"]);
}

/** Removes a release and both of its namespaces. */
export async function uninstall(kubeconfig: string, release: Release): Promise<void> {
  const where = ["--kubeconfig", kubeconfig];
  await removeRelease(kubeconfig, release);
  const namespaces = [release.sandboxNamespace, release.namespace];
  await run(clients.kubectl, [...where, "delete", "namespace", ...namespaces, "--ignore-not-found", "--timeout=120s"]);
}
