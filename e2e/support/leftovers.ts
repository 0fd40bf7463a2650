/**
 * What a run of the suite changes in a cluster that stays. A test undoes what it does; a run that is interrupted, or takes too long, has
 * nobody left to do so. A ConfigMap says that a run is at work, so who finds it with no run at work removes all that carries the suite's names.
 */
import { join } from "node:path";
import { z } from "zod";
import { labels } from "../../src/manifests/names.ts";
import { cacheDirectory } from "../cluster/cache.ts";
import { applyObjects, kubectl, kubectlAttempt } from "../cluster/clients.ts";
import { lentLabel } from "../cluster/kubeconfig/index.ts";
import { lockCluster } from "../cluster/local/state.ts";
import type { Progress } from "../cluster/progress.ts";
import { releaseNamed, uninstall, workerReleases } from "./release.ts";

const record = { namespace: "default", name: "openshell-conformance-run" };
const where = ["-n", record.namespace, "configmap", record.name, "--ignore-not-found"];

/** Of labels, taints and resources that tests give to nodes. */
const prefix = "conformance.openshell.test/";
/** On a node that a test took out of scheduling, or that the provider put back into it: whoever else does so is not undone. */
export const nodeMarks = { cordoned: `${prefix}cordoned`, lent: lentLabel } as const;
const ownName = /\/conformance(-[0-9a-f]{6,8}|-[ab]|-openshell[\w-]*|\.openshell\.test-[\w-]+)$/;
const clusterKinds = [
  "mutatingadmissionpolicybindings",
  "mutatingadmissionpolicies",
  "validatingadmissionpolicybindings",
  "validatingadmissionpolicies",
  "runtimeclasses",
  "priorityclasses",
  "namespaces",
];
/** Of workspaces' namespaces: workspace-mode.ts, which needs more than `npm test` should have to load. */
export const workspaceSelectors: readonly string[] = [
  `${prefix}workspace`,
  `${labels.gatewayId} in (${workerReleases.map(({ name }) => `modes-${name}`).join(", ")})`,
];
/** All that the suite installs. */
export const releases = [
  ...workerReleases,
  ...["openshell-oidc", "openshell-dev", "openshell-faults"].map(releaseNamed),
];

const nodeListSchema = z.array(
  z.object({
    metadata: z.object({ name: z.string(), labels: z.record(z.string(), z.string()).default({}) }),
    spec: z.object({
      unschedulable: z.boolean().default(false),
      taints: z.array(z.object({ key: z.string() })).default([]),
    }),
    status: z.object({ capacity: z.record(z.string(), z.string()).default({}) }),
  }),
);

type Nodes = z.infer<typeof nodeListSchema>;

/** Holds off other runs of this machine, which share the workers' installations and change their settings. */
export function takeTurn(progress: Progress, signal?: AbortSignal): Promise<AsyncDisposable> {
  return lockCluster(join(cacheDirectory, "conformance"), progress, signal);
}

export async function beginRun(kubeconfig: string): Promise<void> {
  await applyObjects(kubeconfig, [{ apiVersion: "v1", kind: "ConfigMap", metadata: record }]);
}

export async function endRun(kubeconfig: string): Promise<void> {
  await kubectl(kubeconfig, ["delete", ...where]);
}

/** Removes what a run that did not end has left, and does nothing where there was none. */
export async function removeLeftovers(kubeconfig: string, progress: Progress): Promise<void> {
  if ((await kubectl(kubeconfig, ["get", ...where, "-o", "name"])) === "") return;
  progress.note("removing what the suite left in the cluster");
  for (const repair of nodeRepairs(await nodesOf(kubeconfig))) await kubectl(kubeconfig, repair);
  const listed = await Promise.all(clusterKinds.map((kind) => kubectlAttempt(kubeconfig, ["get", kind, "-o", "name"])));
  const own = ownObjects(listed.map(({ stdout: names }) => names).join("\n"));
  if (own.length > 0) await kubectl(kubeconfig, ["delete", ...own, "--ignore-not-found", "--timeout=120s"]);
  await Promise.all(releases.map((release) => uninstall(kubeconfig, release)));
  for (const selector of workspaceSelectors)
    await kubectl(kubeconfig, ["delete", "namespace", "--selector", selector, "--timeout=120s"]);
  await endRun(kubeconfig);
}

/** Calls of kubectl that give nodes back as a run found them. */
export function nodeRepairs(nodes: Nodes): string[][] {
  return nodes.flatMap(({ metadata, spec, status }) => {
    const { name } = metadata;
    const own = (keys: readonly string[]) => [...new Set(keys)].filter((key) => key.startsWith(prefix));
    const repairs: string[][] = [];
    if (spec.unschedulable && nodeMarks.cordoned in metadata.labels) repairs.push(["uncordon", name]);
    if (!spec.unschedulable && nodeMarks.lent in metadata.labels) repairs.push(["cordon", name]);
    for (const [verb, keys] of [
      ["taint", own(spec.taints.map(({ key }) => key))],
      ["label", own(Object.keys(metadata.labels))],
    ] as const) {
      if (keys.length > 0) repairs.push([verb, "node", name, ...keys.map((key) => `${key}-`)]);
    }
    const resources = own(Object.keys(status.capacity));
    if (resources.length > 0) {
      const none = Object.fromEntries(resources.map((resource) => [resource, null]));
      const patch = JSON.stringify({ status: { capacity: none, allocatable: none } });
      repairs.push(["patch", "node", name, "--subresource=status", "--type=merge", "-p", patch]);
    }
    return repairs;
  });
}

/** Of names as `kubectl get -o name` prints them, those that the suite gives to what is the cluster's. */
export function ownObjects(names: string): string[] {
  return names.split("\n").filter((name) => ownName.test(name));
}

async function nodesOf(kubeconfig: string): Promise<Nodes> {
  return nodeListSchema.parse(JSON.parse(await kubectl(kubeconfig, ["get", "nodes", "-o", "json"])).items);
}
