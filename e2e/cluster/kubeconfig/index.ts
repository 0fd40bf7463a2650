import { access, mkdir, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import { OpenShellError } from "../../../src/common/errors.ts";
import { clients, unpackClients } from "../clients.ts";
import { processes, type Shell } from "../exec.ts";
import { kubernetesNodes } from "../kubernetes-nodes.ts";
import type { ClusterProvider, NodeInfo, UpOptions } from "../provider.ts";

/** On a node that was cordoned by somebody else and is uncordoned for as long as a test needs it. */
export const lentLabel = "conformance.openshell.test/lent";

export interface KubeconfigOptions {
  /** @default the first file in $KUBECONFIG, else ~/.kube/config */
  readonly kubeconfig?: string;
  /**
   * Shell command that puts an image where the nodes find it; `{archive}` and `{ref}` stand for the file and the reference.
   *
   * @default $OPENSHELL_LOAD_IMAGE
   * @example "kind load image-archive {archive}"
   */
  readonly loadImageCommand?: string;
  /** @default real processes */
  readonly shell?: Shell;
}

/**
 * A cluster that somebody else made. Nothing of it is created or deleted: `up` only checks that it is fit, and capacity comes and goes by
 * uncordoning and cordoning what is there.
 */
export class KubeconfigProvider implements ClusterProvider {
  readonly name = "kubeconfig";
  readonly #file: string;
  readonly #loadImageCommand: string | undefined;
  readonly #shell: Shell;

  constructor(options: KubeconfigOptions = {}) {
    const listed = process.env.KUBECONFIG?.split(delimiter).find((file) => file !== "");
    this.#file = options.kubeconfig ?? listed ?? join(homedir(), ".kube", "config");
    this.#loadImageCommand = options.loadImageCommand ?? process.env.OPENSHELL_LOAD_IMAGE;
    this.#shell = options.shell ?? processes;
  }

  async up({ nodes, progress, signal }: UpOptions): Promise<void> {
    await unpackClients(progress);
    await access(this.#file).catch((cause: unknown) => {
      throw new OpenShellError(
        "not-found",
        `there is no kubeconfig at ${this.#file}: set KUBECONFIG, or use --provider k3d or local`,
        { cause },
      );
    });
    const options = { timeoutMs: 20_000, ...(signal === undefined ? {} : { signal }) };
    progress.note(`checking the cluster of ${this.#file}`);
    await this.#require(
      ["get", "--raw=/readyz"],
      `the cluster of ${this.#file} does not answer: see that it runs and that the file is current`,
      options,
    );
    await this.#require(
      ["get", "crd", "sandboxes.agents.x-k8s.io"],
      "the cluster has no Agent Sandbox API: install it from https://github.com/kubernetes-sigs/agent-sandbox/releases and run again",
      options,
    );
    const usable = (await this.nodes()).filter((node) => node.ready && node.schedulable);
    if (usable.length < nodes) {
      throw new OpenShellError(
        "failed-precondition",
        `the cluster has ${usable.length} usable nodes and ${nodes} are needed: add or uncordon some`,
      );
    }
  }

  /** The cluster stays: it was there before. */
  async down(): Promise<void> {}

  async exists(): Promise<boolean> {
    return true;
  }

  async kubeconfig(): Promise<string> {
    return this.#file;
  }

  async loadImage(archive: string, ref: string): Promise<void> {
    if (this.#loadImageCommand === undefined) {
      throw new OpenShellError(
        "failed-precondition",
        "it is not known how this cluster gets images: set OPENSHELL_LOAD_IMAGE, e.g. 'kind load image-archive {archive}', or with a registry in OPENSHELL_TEST_REGISTRY 'skopeo copy oci-archive:{archive} docker://{ref}'",
      );
    }
    // The values go in as variables: no file name can become shell syntax.
    const command = this.#loadImageCommand.replaceAll("{archive}", `"$ARCHIVE"`).replaceAll("{ref}", `"$REF"`);
    await this.#shell.run("sh", ["-c", command], { env: { ARCHIVE: archive, REF: ref } });
  }

  async nodes(): Promise<readonly NodeInfo[]> {
    return kubernetesNodes(this.#file, (command, args) => this.#shell.run(command, args));
  }

  async addNode(): Promise<NodeInfo> {
    const cordoned = (await this.nodes()).find((node) => node.ready && !node.schedulable);
    if (cordoned === undefined) {
      throw new OpenShellError(
        "failed-precondition",
        "no node of this cluster is cordoned, and this provider cannot make one",
      );
    }
    await this.#kubectl(["label", "node", cordoned.name, `${lentLabel}=yes`, "--overwrite"]);
    await this.#kubectl(["uncordon", cordoned.name]);
    return { ...cordoned, schedulable: true };
  }

  async removeNode(name: string): Promise<void> {
    const known = (await this.nodes()).map((node) => node.name);
    if (!known.includes(name))
      throw new OpenShellError("not-found", `there is no node ${name}: the cluster has ${known.join(", ")}`);
    await this.#kubectl(["cordon", name]);
    await this.#kubectl(["label", "node", name, `${lentLabel}-`]);
  }

  async collectLogs(directory: string): Promise<void> {
    await mkdir(directory, { recursive: true });
    for (const [file, args] of Object.entries({
      "events.txt": ["get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"],
      "pods.txt": ["get", "pods", "--all-namespaces", "-o", "wide"],
      "nodes.txt": ["describe", "nodes"],
    })) {
      const { stdout, stderr } = await this.#shell.attempt(clients.kubectl, [`--kubeconfig=${this.#file}`, ...args]);
      await writeFile(join(directory, file), stdout + stderr);
    }
  }

  async #require(args: readonly string[], message: string, options: { readonly timeoutMs: number }): Promise<void> {
    const { code, stderr } = await this.#shell.attempt(
      clients.kubectl,
      [`--kubeconfig=${this.#file}`, ...args],
      options,
    );
    if (code !== 0) throw new OpenShellError("failed-precondition", message, { cause: stderr });
  }

  async #kubectl(args: readonly string[]): Promise<string> {
    return this.#shell.run(clients.kubectl, [`--kubeconfig=${this.#file}`, ...args]);
  }
}
