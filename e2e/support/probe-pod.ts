import { randomBytes } from "node:crypto";
import { referenceOf } from "../../images/references.ts";
import { namespaces, type Pod, pods } from "../../src/kube/index.ts";
import type { Conformance } from "./conformance.ts";

/** A Pod of the test's own, with nothing but the program `probe` in it, and what it may reach. */
export class ProbePod implements AsyncDisposable {
  readonly #suite: Conformance;
  readonly namespace: string;
  readonly name: string;
  readonly address: string;

  private constructor(suite: Conformance, namespace: string, name: string, address: string) {
    this.#suite = suite;
    this.namespace = namespace;
    this.name = name;
    this.address = address;
  }

  /** Starts one in `namespace` and waits until it runs. @param more labels and a node, for the Pods of a test that need them */
  static async start(
    suite: Conformance,
    namespace: string,
    more: { readonly labels?: Record<string, string>; readonly node?: string } = {},
  ): Promise<ProbePod> {
    const name = `probe-${randomBytes(4).toString("hex")}`;
    const body: Pod = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, namespace, ...(more.labels === undefined ? {} : { labels: more.labels }) },
      spec: {
        automountServiceAccountToken: false,
        terminationGracePeriodSeconds: 1,
        ...(more.node === undefined ? {} : { nodeName: more.node }),
        securityContext: {
          runAsNonRoot: true,
          runAsUser: 65532,
          runAsGroup: 65532,
          seccompProfile: { type: "RuntimeDefault" },
        },
        containers: [
          {
            name: "probe",
            image: referenceOf("noshell"),
            imagePullPolicy: "IfNotPresent",
            securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
          },
        ],
      },
    };
    await suite.kube.create(pods, namespace, body);
    const wait = ["-n", namespace, "wait", `pod/${name}`, "--for=condition=Ready", "--timeout=60s"];
    await suite.kubectl(wait);
    const { status } = await suite.kube.get(pods, namespace, name);
    return new ProbePod(suite, namespace, name, status?.podIP ?? "");
  }

  /** True when TCP connects within `ms`. */
  async connects(address: string, port: number, ms = 3000): Promise<boolean> {
    const command = ["/bin/probe", "connect", address, String(port), String(ms)];
    const outcome = await this.#suite.kubectlAttempt(["-n", this.namespace, "exec", this.name, "--", ...command]);
    if (outcome.code !== 0 && outcome.code !== 3) throw new Error(`probe failed: ${outcome.stderr}`);
    return outcome.code === 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#suite.kubectl([
      "-n",
      this.namespace,
      "delete",
      "pod",
      this.name,
      "--ignore-not-found",
      "--timeout=60s",
    ]);
  }
}

/** A namespace without any policy, for what lies outside. */
export async function temporaryNamespace(suite: Conformance): Promise<AsyncDisposable & { readonly name: string }> {
  const name = `conformance-${randomBytes(4).toString("hex")}`;
  await suite.kube.create(namespaces, undefined, { apiVersion: "v1", kind: "Namespace", metadata: { name } });
  return {
    name,
    [Symbol.asyncDispose]: async () => void (await suite.kubectl(["delete", "namespace", name, "--timeout=90s"])),
  };
}
