import { randomBytes } from "node:crypto";
import type { Progress } from "../cluster/progress.ts";
import { GatewayAccess } from "../support/gateway-access.ts";
import { imageValues, install, type Release, releaseNamed } from "../support/release.ts";
import type { TestSandbox } from "../support/test-sandbox.ts";
import { sandboxesOf } from "./_bare-pairs.ts";
import { type BenchCluster, openBenchCluster } from "./_bench-cluster.ts";

/** A gateway on a bench's cluster. What was opened of it ends with it; the cluster and the release stay for the next run. */
export interface BenchGateway extends BenchCluster, AsyncDisposable {
  readonly release: Release;
  readonly gateway: GatewayAccess;
  create(): Promise<TestSandbox>;
}

/** @param wanted as for openBenchCluster */
export async function openBenchGateway(wanted: string | undefined, progress: Progress): Promise<BenchGateway> {
  await using undo = new AsyncDisposableStack();
  const cluster = await openBenchCluster(wanted, progress);
  const { kubeconfig, gatewayDigest, kube } = cluster;
  undo.defer(() => kube.close());
  const release = releaseNamed("openshell-bench");
  await install({ kubeconfig, release, presets: ["conformance"], values: imageValues(gatewayDigest) });
  const gateway = undo.use(await GatewayAccess.open(kubeconfig, release));
  const createNamed = sandboxesOf(() => gateway.client);
  const end = undo.move();
  return {
    ...cluster,
    release,
    gateway,
    create: () => createNamed(`b-${randomBytes(5).toString("hex")}`),
    [Symbol.asyncDispose]: () => end.disposeAsync(),
  };
}
