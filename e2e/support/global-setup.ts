import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { loadImages } from "../../images/load.ts";
import { cacheDirectory } from "../cluster/cache.ts";
import { applyObjects, deleteObjects, unpackClients } from "../cluster/clients.ts";
import { lockCluster } from "../cluster/local/state.ts";
import { type Progress, stderrProgress } from "../cluster/progress.ts";
import type { ClusterProvider } from "../cluster/provider.ts";
import { selectProvider } from "../cluster/select.ts";
import "./conformance.ts";
import { uninstall, workerReleases } from "./release.ts";
import { handlers, runtimeClass } from "./runtime-class.ts";
import { placeOf, removePlace } from "./workspace-mode.ts";

/**
 * Cluster, images, RuntimeClasses: everything is there already when an earlier run left it, and is left for the next one. The cluster
 * goes by `node e2e/cluster/main.ts down`.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const progress = stderrProgress();
  // Runs share the workers' installations and change their settings.
  const turn = await lockCluster(join(cacheDirectory, "conformance"), progress);
  await using undo = new AsyncDisposableStack();
  undo.use(turn);
  const provider = await selectProvider(process.env.OPENSHELL_PROVIDER);
  await unpackClients(progress);
  await provider.up({ nodes: 2, progress });
  // Somebody's cluster is left as it was found.
  if (provider.name === "kubeconfig") undo.defer(() => cleanUp(provider, progress));
  await prepare(project, provider, progress);
  const ending = undo.move();
  return () => ending.disposeAsync();
}

async function cleanUp(provider: ClusterProvider, progress: Progress): Promise<void> {
  progress.note("removing what the suite installed");
  const kubeconfig = await provider.kubeconfig();
  for (const release of workerReleases) {
    await uninstall(kubeconfig, release);
    const place = placeOf(release);
    if (place !== undefined) await removePlace(kubeconfig, place);
  }
  await deleteObjects(kubeconfig, runtimeClasses());
}

async function prepare(project: TestProject, provider: ClusterProvider, progress: Progress): Promise<void> {
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

function runtimeClasses(): object[] {
  return [runtimeClass("conformance-a", handlers[0]), runtimeClass("conformance-b", handlers[1])];
}
