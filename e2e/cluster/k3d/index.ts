import { copyFile, mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { stringify } from "yaml";
import { z } from "zod";
import { OpenShellError } from "../../../src/common/errors.ts";
import { clients, unpackClients } from "../clients.ts";
import { checkEnforcement } from "../enforcement.ts";
import { type Outcome, processes, type RunOptions, type Shell } from "../exec.ts";
import { kubernetesNodes } from "../kubernetes-nodes.ts";
import type { Progress } from "../progress.ts";
import type { ClusterProvider, NodeInfo, UpOptions } from "../provider.ts";
import { clusterName, k3dConfig } from "./config.ts";

export interface K3dOptions {
  /** Agent Sandbox release manifest: URL or file. @default $OPENSHELL_AGENT_SANDBOX_MANIFEST, else the published release */
  readonly agentSandboxManifest?: string;
  /** Where the kubeconfig, the k3d config and loaded archives are kept. @default $XDG_STATE_HOME/openshell-dev/k3d */
  readonly stateDirectory?: string;
  /** @default real processes */
  readonly shell?: Shell;
  /** Whether NetworkPolicy enforcement is proved by `up`; needs a reachable registry for busybox. @default true */
  readonly checkEnforcement?: boolean;
}

/** Core alone. Up to v0.5.1 the file was called manifest.yaml (https://github.com/kubernetes-sigs/agent-sandbox/pull/1012). */
const publishedAgentSandbox = "https://github.com/kubernetes-sigs/agent-sandbox/releases/download/v0.5.6/sandbox.yaml";

const clusterListSchema = z.array(
  z.object({ name: z.string(), agentsCount: z.number().optional(), serversRunning: z.number().optional() }),
);

/** k3s in Docker containers, by the documented commands of k3d 5 (https://k3d.io/stable/usage/commands/). */
export class K3dProvider implements ClusterProvider {
  readonly name = "k3d";
  readonly #manifest: string;
  readonly #state: string;
  readonly #shell: Shell;
  readonly #checkEnforcement: boolean;

  constructor(options: K3dOptions = {}) {
    this.#manifest =
      options.agentSandboxManifest ?? process.env.OPENSHELL_AGENT_SANDBOX_MANIFEST ?? publishedAgentSandbox;
    this.#state =
      options.stateDirectory ??
      join(process.env.XDG_STATE_HOME || join(homedir(), ".local", "state"), "openshell-dev", "k3d");
    this.#shell = options.shell ?? processes;
    this.#checkEnforcement = options.checkEnforcement ?? true;
  }

  async up({ nodes, progress, signal }: UpOptions): Promise<void> {
    if (!Number.isInteger(nodes) || nodes < 1)
      throw new OpenShellError("invalid-argument", `nodes must be 1 or more, and was ${nodes}`);
    await unpackClients(progress);
    const options = signal === undefined ? {} : { signal };
    const existing = await this.#find();
    // Of a cluster that somebody deleted by hand.
    if (existing === undefined) await rm(this.#state, { recursive: true, force: true });
    await mkdir(this.#state, { recursive: true, mode: 0o700 });
    try {
      if (existing === undefined) await this.#create(nodes, progress, options);
      else if (existing.serversRunning === 0) await this.#k3d(["cluster", "start", clusterName, "--wait"], options);
      await this.#k3d(["kubeconfig", "write", clusterName, "--output", this.#kubeconfigFile], options);
      while ((await this.nodes()).length < nodes) await this.addNode();
      await this.#prepare(progress, options);
    } catch (error) {
      if (existing === undefined) {
        progress.note("undoing what was started");
        await this.down(progress);
      }
      throw error;
    }
  }

  async down(progress: Progress): Promise<void> {
    if ((await this.#find()) !== undefined) {
      progress.note("deleting the k3d cluster");
      await this.#k3d(["cluster", "delete", clusterName]);
    }
    await rm(this.#state, { recursive: true, force: true });
  }

  async exists(): Promise<boolean> {
    return (await this.#find()) !== undefined;
  }

  async kubeconfig(): Promise<string> {
    return this.#kubeconfigFile;
  }

  async loadImage(archive: string, ref: string): Promise<void> {
    const directory = join(this.#state, "images");
    await mkdir(directory, { recursive: true });
    const kept = join(directory, `${ref.replaceAll(/[^\w.-]/g, "_")}.tar`);
    await copyFile(archive, `${kept}.new`);
    await rename(`${kept}.new`, kept);
    await this.#k3d(["image", "import", kept, "--cluster", clusterName, "--mode", "direct"]);
  }

  async nodes(): Promise<readonly NodeInfo[]> {
    return kubernetesNodes(this.#kubeconfigFile, (command, args) => this.#shell.run(command, args));
  }

  async addNode(): Promise<NodeInfo> {
    const before = new Set((await this.nodes()).map(({ name }) => name));
    let index = 0;
    while (before.has(agentName(index))) index += 1;
    // k3d puts its prefix and a replica number around the name that it is given.
    await this.#k3d([
      "node",
      "create",
      `${clusterName}-extra-${index}`,
      "--cluster",
      clusterName,
      "--role",
      "agent",
      "--wait",
    ]);
    await this.#kubectl(["wait", `node/${agentName(index)}`, "--for=create", "--timeout=60s"]);
    await this.#kubectl(["wait", `node/${agentName(index)}`, "--for=condition=Ready", "--timeout=120s"]);
    await this.#importKept();
    const added = (await this.nodes()).find(({ name }) => name === agentName(index));
    if (added === undefined) throw new OpenShellError("internal", `${agentName(index)} vanished after it became Ready`);
    return added;
  }

  async removeNode(name: string): Promise<void> {
    const known = (await this.nodes()).map((node) => node.name);
    if (!known.includes(name))
      throw new OpenShellError("not-found", `there is no node ${name}: the cluster has ${known.join(", ")}`);
    await this.#k3d(["node", "delete", name]);
    await this.#kubectl(["delete", "node", name, "--ignore-not-found"]);
    await this.#kubectl([
      "delete",
      "pods",
      "--all-namespaces",
      `--field-selector=spec.nodeName=${name}`,
      "--force",
      "--grace-period=0",
      "--wait=false",
    ]);
  }

  async collectLogs(directory: string): Promise<void> {
    await mkdir(directory, { recursive: true });
    const list = await this.#shell.attempt("k3d", ["node", "list", "--no-headers"]);
    const containers = list.stdout
      .split("\n")
      .map((line) => line.split(/\s+/)[0] ?? "")
      .filter((name) => name.startsWith(`k3d-${clusterName}`));
    for (const container of containers) {
      const { stdout, stderr } = await this.#shell.attempt("docker", ["logs", container]);
      await writeFile(join(directory, `${container}.log`), stdout + stderr);
      await this.#shell.attempt("docker", ["cp", `${container}:/var/log/pods`, join(directory, `${container}-pods`)]);
    }
  }

  get #kubeconfigFile(): string {
    return join(this.#state, "kubeconfig.yaml");
  }

  async #create(nodes: number, progress: Progress, options: RunOptions): Promise<void> {
    progress.note("creating the k3d cluster");
    const file = join(this.#state, "k3d.yaml");
    await writeFile(file, stringify(k3dConfig(nodes)));
    const remedy =
      "When a port is taken or an image cannot be pulled the message above says so: put that right and run again.";
    await this.#k3d(["cluster", "create", "--config", file], { ...options, remedy });
  }

  /** What needs GitHub and a registry is done once for a cluster. */
  async #prepare(progress: Progress, options: RunOptions): Promise<void> {
    const prepared = join(this.#state, "prepared");
    const isPrepared = (await readFile(prepared, "utf8").catch(() => undefined)) === this.#manifest;
    progress.note("DNS, storage, Agent Sandbox");
    if (!isPrepared) await this.#installAgentSandbox(options);
    for (const [namespace, deployment] of [
      ["kube-system", "coredns"],
      ["agent-sandbox-system", "agent-sandbox-controller"],
    ] as const) {
      const rollout = ["rollout", "status", "-n", namespace, `deployment/${deployment}`, "--timeout=180s"];
      await this.#kubectl(rollout, options);
    }
    if (isPrepared) return;
    if (this.#checkEnforcement) {
      progress.note("NetworkPolicy enforcement");
      const image = "docker.io/library/busybox:1.37";
      await checkEnforcement({ kubeconfig: this.#kubeconfigFile, image, ...options });
    }
    await writeFile(prepared, this.#manifest);
  }

  async #installAgentSandbox(options: RunOptions): Promise<void> {
    const remedy =
      "Without access to GitHub give the release's sandbox.yaml as a file in OPENSHELL_AGENT_SANDBOX_MANIFEST and run again.";
    await this.#kubectl(["apply", "--server-side", "--force-conflicts", "-f", this.#manifest], { ...options, remedy });
    await this.#kubectl(
      ["wait", "crd/sandboxes.agents.x-k8s.io", "--for=condition=Established", "--timeout=60s"],
      options,
    );
  }

  /** A node that was added later has none of the images: they are imported again, which the others skip over. */
  async #importKept(): Promise<void> {
    const directory = join(this.#state, "images");
    const archives = await readdir(directory).catch(() => []);
    if (archives.length === 0) return;
    const files = archives.sort().map((name) => join(directory, name));
    await this.#k3d(["image", "import", ...files, "--cluster", clusterName, "--mode", "direct"]);
  }

  async #find(): Promise<z.infer<typeof clusterListSchema>[number] | undefined> {
    const listed = await this.#k3d(["cluster", "list", "--output", "json"]);
    return clusterListSchema.parse(JSON.parse(listed)).find(({ name }) => name === clusterName);
  }

  async #k3d(args: readonly string[], options: RunOptions = {}): Promise<string> {
    return this.#shell.run("k3d", args, options);
  }

  async #kubectl(args: readonly string[], options: RunOptions = {}): Promise<string> {
    return this.#shell.run(clients.kubectl, [`--kubeconfig=${this.#kubeconfigFile}`, ...args], options);
  }
}

function agentName(index: number): string {
  return `k3d-${clusterName}-extra-${index}-0`;
}

/** True when Docker's daemon answers and k3d 5 is installed. */
export async function k3dAnswers(shell: Shell = processes): Promise<boolean> {
  const absent = (): Outcome => ({ code: 127, stdout: "", stderr: "" });
  const docker = await shell
    .attempt("docker", ["version", "--format", "{{.Server.Version}}"], { timeoutMs: 10_000 })
    .catch(absent);
  if (docker.code !== 0) return false;
  const k3d = await shell.attempt("k3d", ["version"], { timeoutMs: 10_000 }).catch(absent);
  return k3d.code === 0 && /k3d version v5\./.test(k3d.stdout);
}
