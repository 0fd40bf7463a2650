import { randomBytes } from "node:crypto";
import { sleep } from "../../src/common/async.ts";
import { OpenShellError } from "../../src/common/errors.ts";
import { clients } from "./clients.ts";
import { processes, type Shell } from "./exec.ts";

/** Label of every check's namespace, so that each check also removes what one that was killed has left. */
const marker = "openshell.ai/enforcement-check";

export interface EnforcementCheck {
  readonly kubeconfig: string;
  /** An image with busybox that the nodes have or can pull. */
  readonly image: string;
  readonly signal?: AbortSignal;
  /** @default real processes */
  readonly shell?: Shell;
}

/**
 * Proves that NetworkPolicy is enforced: a connection that works stops working when a policy forbids it. Without this a dead enforcer
 * would let every test of isolation pass for the wrong reason, or fail far from its cause.
 */
export async function checkEnforcement(check: EnforcementCheck): Promise<void> {
  const { kubeconfig, image, signal, shell = processes } = check;
  const namespace = `openshell-enforcement-${randomBytes(4).toString("hex")}`;
  const given = [`--kubeconfig=${kubeconfig}`, `--namespace=${namespace}`];
  const kubectl = (args: readonly string[], input = "") =>
    shell.run(clients.kubectl, [...given, ...args], { input, ...(signal === undefined ? {} : { signal }) });
  const apply = (...items: readonly object[]) =>
    kubectl(["apply", "--server-side", "-f", "-"], JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  try {
    await apply(
      { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace, labels: { [marker]: "" } } },
      checkPod(image, "server", ["httpd", "-f", "-p", "8080"]),
      checkPod(image, "client", ["sleep", "600"]),
    );
    await kubectl(["wait", "pod/server", "pod/client", "--for=condition=Ready", "--timeout=60s"]);
    const address = await kubectl(["get", "pod/server", "-o", "jsonpath={.status.podIP}"]);
    // Said by the container itself: kubectl's own failures have the same exit code as a connection that is refused.
    const connect = `nc -w 1 ${address} 8080 -e /bin/true && echo reached || echo refused`;
    const exec = [...given, "exec", "client", "--", "sh", "-c", connect];
    const saying = (word: string) => async () => (await shell.attempt(clients.kubectl, exec)).stdout.trim() === word;
    await until(saying("reached"), "Pods cannot reach each other: see the kube-proxy and kube-router logs");
    await apply({
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: "deny" },
      spec: { podSelector: { matchLabels: { app: "server" } }, policyTypes: ["Ingress"] },
    });
    await until(saying("refused"), "NetworkPolicy is not enforced: see the kube-router logs of both nodes");
  } finally {
    await shell.attempt(clients.kubectl, [...given, "delete", "namespace", `--selector=${marker}`, "--wait=false"]);
  }
}

function checkPod(image: string, name: string, command: readonly string[]): object {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, labels: { app: name } },
    spec: {
      terminationGracePeriodSeconds: 1,
      containers: [{ name, image, imagePullPolicy: "IfNotPresent", command }],
    },
  };
}

async function until(condition: () => Promise<boolean>, failure: string): Promise<void> {
  const end = performance.now() + 20_000;
  while (!(await condition())) {
    if (performance.now() > end) throw new OpenShellError("failed-precondition", failure);
    await sleep(100);
  }
}
