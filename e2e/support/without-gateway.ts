import type { Conformance } from "./conformance.ts";

/** No gateway of the suite's own until disposed of; then another that answers. */
export async function withoutGateway(suite: Conformance): Promise<AsyncDisposable> {
  const namespace = ["-n", suite.release.namespace];
  const gateway = [...namespace, "statefulset", suite.release.name];
  await using undo = new AsyncDisposableStack();
  undo.defer(async () => {
    await suite.kubectl(["scale", "--replicas=1", ...gateway]);
    await suite.kubectl(["rollout", "status", "--timeout=120s", ...gateway]);
    await suite.gateway.reconnect();
  });
  await suite.kubectl(["scale", "--replicas=0", ...gateway]);
  await suite.kubectl([...namespace, "wait", "pod", suite.gateway.podName, "--for=delete", "--timeout=60s"]);
  return undo.move();
}
