import { sleep } from "../../src/common/async.ts";
import { OpenShellError } from "../../src/common/errors.ts";
import { applyObjects, kubectl, kubectlAttempt } from "./clients.ts";

const namespace = "openshell-enforcement-check";

export interface EnforcementCheck {
  readonly kubeconfig: string;
  /** An image with busybox that the nodes have or can pull. */
  readonly image: string;
  readonly signal?: AbortSignal;
}

/**
 * Proves that NetworkPolicy is enforced: a connection that works stops working when a policy forbids it. Without this a dead enforcer
 * would let every test of isolation pass for the wrong reason, or fail far from its cause.
 */
export async function checkEnforcement({ kubeconfig, image, signal }: EnforcementCheck): Promise<void> {
  const options = signal === undefined ? {} : { signal };
  try {
    await applyObjects(kubeconfig, [
      { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
      checkPod(image, "server", ["httpd", "-f", "-p", "8080"]),
      checkPod(image, "client", ["sleep", "600"]),
    ]);
    await kubectl(
      kubeconfig,
      ["wait", "-n", namespace, "pod/server", "pod/client", "--for=condition=Ready", "--timeout=60s"],
      options,
    );
    const address = await kubectl(kubeconfig, ["get", "-n", namespace, "pod/server", "-o", "jsonpath={.status.podIP}"]);
    await until(
      () => connects(kubeconfig, address),
      "Pods cannot reach each other: see the kube-proxy and kube-router logs",
    );
    await applyObjects(kubeconfig, [
      {
        apiVersion: "networking.k8s.io/v1",
        kind: "NetworkPolicy",
        metadata: { name: "deny", namespace },
        spec: { podSelector: { matchLabels: { app: "server" } }, policyTypes: ["Ingress"] },
      },
    ]);
    await until(
      async () => !(await connects(kubeconfig, address)),
      "NetworkPolicy is not enforced: see the kube-router logs of both nodes",
    );
  } finally {
    await kubectlAttempt(kubeconfig, ["delete", "namespace", namespace, "--ignore-not-found", "--wait=false"]);
  }
}

function checkPod(image: string, name: string, command: readonly string[]): object {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace, labels: { app: name } },
    spec: {
      terminationGracePeriodSeconds: 1,
      containers: [{ name, image, imagePullPolicy: "IfNotPresent", command }],
    },
  };
}

async function connects(kubeconfig: string, address: string): Promise<boolean> {
  const command = ["nc", "-w", "1", address, "8080", "-e", "/bin/true"];
  const answer = await kubectlAttempt(kubeconfig, ["exec", "-n", namespace, "client", "--", ...command]);
  return answer.code === 0;
}

async function until(condition: () => Promise<boolean>, failure: string): Promise<void> {
  const end = performance.now() + 20_000;
  while (!(await condition())) {
    if (performance.now() > end) throw new OpenShellError("failed-precondition", failure);
    await sleep(100);
  }
}
