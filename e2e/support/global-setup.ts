import type { TestProject } from "vitest/node";
import { checkBuildMachine } from "../../images/build.ts";
import { loadImages } from "../../images/load.ts";
import { hasCode, OpenShellError } from "../../src/common/errors.ts";
import { applyObjects, kubectl, unpackClients } from "../cluster/clients.ts";
import { type Progress, stderrProgress } from "../cluster/progress.ts";
import type { ClusterProvider } from "../cluster/provider.ts";
import { selectProvider } from "../cluster/select.ts";
import { isCi } from "../testing/run.ts";
import "./conformance.ts";
import { beginRun, endRun, releases, removeLeftovers, takeTurn } from "./leftovers.ts";
import { suiteClasses } from "./runtime-class.ts";

/**
 * Cluster, images, RuntimeClasses: everything is there already when an earlier run left it, and is left for the next one. The cluster
 * goes by `node e2e/cluster/main.ts down`. Somebody's cluster is left as it was found.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  checkBuildMachine();
  const progress = stderrProgress();
  await using undo = new AsyncDisposableStack();
  undo.use(await takeTurn(progress));
  const provider = await selectProvider(process.env.OPENSHELL_PROVIDER);
  await unpackClients(progress);
  const isSomebodys = provider.name === "kubeconfig";
  // Before its nodes are counted: a run that was cut off may have left one cordoned.
  if (isSomebodys) await removeLeftovers(await provider.kubeconfig(), progress);
  await bringUp(provider, progress);
  const kubeconfig = await provider.kubeconfig();
  if (isSomebodys) await refuseOthersReleases(kubeconfig);
  else await removeLeftovers(kubeconfig, progress);
  await beginRun(kubeconfig);
  undo.defer(() => (isSomebodys ? removeLeftovers(kubeconfig, progress) : endRun(kubeconfig)));
  await prepare(project, provider, progress);
  const ending = undo.move();
  return () => ending.disposeAsync();
}

/** As with the tests, CI's shared machine gets one more try. What did not come up was undone. */
async function bringUp(provider: ClusterProvider, progress: Progress): Promise<void> {
  const options = { nodes: 2, progress };
  try {
    await provider.up(options);
  } catch (error) {
    if (!isCi || hasCode(error, "invalid-argument", "failed-precondition")) throw error;
    progress.note(`the cluster did not come up, one more try: ${OpenShellError.from(error).message}`);
    await provider.up(options);
  }
}

/** A gateway of somebody else's must not be upgraded, and then removed, because it is called like one of ours. */
async function refuseOthersReleases(kubeconfig: string): Promise<void> {
  const names = releases.flatMap(({ namespace, sandboxNamespace }) => [namespace, sandboxNamespace]);
  const taken = await kubectl(kubeconfig, ["get", "namespace", ...names, "--ignore-not-found", "-o", "name"]);
  if (taken.trim() === "") return;
  throw new Error(
    `the cluster has ${taken.trim().split("\n").join(", ")}, where this suite installs and removes releases of its own; use a cluster without, or delete what is there`,
  );
}

async function prepare(project: TestProject, provider: ClusterProvider, progress: Progress): Promise<void> {
  const kubeconfig = await provider.kubeconfig();
  const images = await loadImages(provider, { note: (line) => progress.note(line) });
  await applyObjects(kubeconfig, suiteClasses(provider.name));

  const gatewayDigest = images.find((image) => image.name === "gateway")?.digest ?? "";
  project.provide("gatewayDigest", gatewayDigest);
  project.provide("kubeconfig", kubeconfig);
  project.provide("providerName", provider.name);
  // For the tests beside the code, which take any cluster.
  process.env.OPENSHELL_TEST_KUBECONFIG = kubeconfig;
}
