import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { loadImages } from "../../images/load.ts";
import { cacheDirectory } from "../cluster/cache.ts";
import { applyObjects, unpackClients } from "../cluster/clients.ts";
import { lockCluster } from "../cluster/local/state.ts";
import { type Progress, stderrProgress } from "../cluster/progress.ts";
import { selectProvider } from "../cluster/select.ts";
import "./conformance.ts";

/**
 * Cluster, images, RuntimeClasses: everything is there already when an earlier run left it, and is left for the next one. The cluster
 * goes by `node e2e/cluster/main.ts down`.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const progress = stderrProgress();
  // Runs share the workers' installations and change their settings.
  const turn = await lockCluster(join(cacheDirectory, "conformance"), progress);
  try {
    await prepare(project, progress);
  } catch (error) {
    await turn[Symbol.asyncDispose]();
    throw error;
  }
  return async () => turn[Symbol.asyncDispose]();
}

async function prepare(project: TestProject, progress: Progress): Promise<void> {
  const provider = await selectProvider(process.env.OPENSHELL_PROVIDER);
  await unpackClients(progress);
  await provider.up({ nodes: 2, progress });
  const kubeconfig = await provider.kubeconfig();
  const images = await loadImages(provider, { note: (line) => progress.note(line) });
  await applyObjects(kubeconfig, runtimeClasses());

  const gatewayDigest = images.find((image) => image.name === "gateway")?.digest ?? "";
  project.provide("gatewayDigest", gatewayDigest);
  project.provide("kubeconfig", kubeconfig);
  project.provide("providerName", provider.name);
  // For the tests beside the code, which take any cluster.
  process.env.OPENSHELL_TEST_KUBECONFIG = kubeconfig;
}

/** The two OCI runtimes that every provider's nodes have; a handler that a cluster lacks makes its tests fail, not pass. */
function runtimeClasses(): object[] {
  const [first = "runc", second = "crun"] = (process.env.OPENSHELL_RUNTIME_HANDLERS ?? "runc,crun").split(",");
  return [
    { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass", metadata: { name: "conformance-a" }, handler: first },
    { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass", metadata: { name: "conformance-b" }, handler: second },
  ];
}
