import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { OpenShellError } from "../../src/common/errors.ts";
import { clients, kubectl } from "../cluster/clients.ts";

export interface PortForwardOptions {
  readonly kubeconfig: string;
  readonly namespace: string;
  /** `pod/NAME` or `svc/NAME`. */
  readonly target: string;
  readonly port: number;
}

/**
 * A local port that leads to a port in the cluster, on every provider. It follows one Pod and ends with it: `reconnect` after a Pod was
 * replaced keeps the local port, so that clients need not know.
 */
export class PortForward implements AsyncDisposable {
  readonly #options: PortForwardOptions;
  #child: ChildProcess | undefined;
  #localPort = 0;

  private constructor(options: PortForwardOptions) {
    this.#options = options;
  }

  static async open(options: PortForwardOptions): Promise<PortForward> {
    const forward = new PortForward(options);
    await forward.#start();
    return forward;
  }

  get localPort(): number {
    return this.#localPort;
  }

  async reconnect(): Promise<void> {
    await this.#stop();
    await this.#start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stop();
  }

  async #start(): Promise<void> {
    const { kubeconfig, namespace, target, port } = this.#options;
    const local = this.#localPort === 0 ? "" : String(this.#localPort);
    const child = spawn(
      clients.kubectl,
      [
        `--kubeconfig=${kubeconfig}`,
        "-n",
        namespace,
        "port-forward",
        "--address=127.0.0.1",
        target,
        `${local}:${port}`,
      ],
      { stdio: ["ignore", "pipe", "pipe"] },
    );
    this.#child = child;
    let said = "";
    child.stderr.on("data", (chunk) => {
      said = `${said}${chunk}`.slice(-2000);
    });
    for await (const line of createInterface({ input: child.stdout })) {
      const found = /^Forwarding from 127\.0\.0\.1:(\d+)/.exec(line)?.[1];
      if (found === undefined) continue;
      this.#localPort = Number(found);
      // Drained for as long as it runs: it writes a line for every connection.
      child.stdout.resume();
      return;
    }
    throw new OpenShellError("unavailable", `kubectl port-forward ${target} ended: ${said.trim()}`);
  }

  async #stop(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  }
}

/** Content of a Secret, by key. */
export async function readSecret(
  kubeconfig: string,
  namespace: string,
  name: string,
): Promise<Readonly<Record<string, Buffer>>> {
  const secret: { data?: Record<string, string> } = JSON.parse(
    await kubectl(kubeconfig, ["-n", namespace, "get", "secret", name, "-o", "json"]),
  );
  return Object.fromEntries(
    Object.entries(secret.data ?? {}).map(([key, value]) => [key, Buffer.from(value, "base64")]),
  );
}
