import { cp, mkdir, open, rm, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { OpenShellError } from "../../../src/common/errors.ts";
import { kubernetesNodes } from "../kubernetes-nodes.ts";
import { type Progress, silent } from "../progress.ts";
import type { ClusterProvider, NodeInfo, UpOptions } from "../provider.ts";
import { Authority } from "./certificates.ts";
import { findHierarchies, processesIn, removeCgroup, reserveCgroup } from "./cgroups.ts";
import type { ComponentPlace } from "./component.ts";
import { type Context, nodesOf, updateState } from "./context.ts";
import { LocalFaults } from "./faults.ts";
import { importImage, keepArchive } from "./images.ts";
import { type Layout, layoutOf, maxNodes, nodeLayoutOf, stateDirectory } from "./layout.ts";
import { makeRoutes, removeBridge, removeNodeNetwork, reserveSlot } from "./network.ts";
import { holderPid, otherClusters, prepareNodes, removeMountPoints, startNode, stopNode } from "./node.ts";
import { areBuilt, clusterPrograms } from "./programs.ts";
import { checkMachine } from "./requirements.ts";
import { lockCluster, newClusterState, readClusterState, writeClusterState } from "./state.ts";
import { steps } from "./steps.ts";
import { originalSysctls, restoreSysctls } from "./sysctls.ts";

/**
 * A real Kubernetes of two or more nodes on this Linux machine, without Docker and without an image registry: control plane processes on the
 * host, and each node a network and mount namespace with its own containerd, kubelet, kube-proxy and policy enforcement.
 */
export class LocalProvider implements ClusterProvider {
  readonly name = "local";
  readonly faults = new LocalFaults(() => this.#existing());
  readonly #directory: string;

  /** @param directory where everything of the cluster is kept. @default $OPENSHELL_LOCAL_CLUSTER or /var/lib/openshell-local-cluster */
  constructor(directory: string = stateDirectory()) {
    this.#directory = resolve(directory);
  }

  async up(options: UpOptions): Promise<void> {
    if (!Number.isInteger(options.nodes) || options.nodes < 1 || options.nodes > maxNodes) {
      throw new OpenShellError("invalid-argument", `nodes must be 1 to ${maxNodes}, and was ${options.nodes}`);
    }
    await checkMachine(this.#directory, await areBuilt(clusterPrograms));
    await using _lock = await lockCluster(this.#directory, options.progress, options.signal);
    const existed = await this.#runs();
    try {
      const context = await this.#open(options.progress, options.signal);
      const missing = options.nodes - context.state.nodes.length;
      const indices = freeIndices(context.state.nodes, Math.max(0, missing));
      if (indices.length > 0) await updateState(context, { nodes: [...context.state.nodes, ...indices] });
      for (const step of steps) {
        options.signal?.throwIfAborted();
        options.progress.note(step.name);
        await step.run(context);
      }
    } catch (error) {
      // What already ran before this call is not this call's to end.
      if (!existed) {
        options.progress.note("undoing what was started");
        await this.#remove();
      }
      throw error;
    }
  }

  async down(progress: Progress): Promise<void> {
    if ((await stat(this.#directory).catch(() => undefined)) === undefined) return;
    const lock = await lockCluster(this.#directory, progress);
    try {
      progress.note("removing the local cluster");
      await this.#remove();
    } finally {
      await lock[Symbol.asyncDispose]();
    }
  }

  async exists(): Promise<boolean> {
    return (await readClusterState(this.#directory)) !== undefined;
  }

  async kubeconfig(): Promise<string> {
    return (await this.#existing()).layout.files.adminKubeconfig;
  }

  async loadImage(archive: string, ref: string): Promise<void> {
    await checkArchive(archive);
    await this.#existing();
    await using _lock = await lockCluster(this.#directory, silent);
    const context = await this.#existing();
    const kept = await keepArchive(context, resolve(archive), ref);
    await Promise.all(
      nodesOf(context).map(async (node) => {
        const holder = await holderPid(context, node);
        if (holder === undefined)
          throw new OpenShellError("failed-precondition", `${node.name} does not run: bring the cluster up again`);
        await importImage(holder, kept, ref);
      }),
    );
  }

  async nodes(): Promise<readonly NodeInfo[]> {
    return kubernetesNodes(await this.kubeconfig());
  }

  async addNode(): Promise<NodeInfo> {
    await this.#existing();
    await using _lock = await lockCluster(this.#directory, silent);
    const context = await this.#existing();
    const [index] = freeIndices(context.state.nodes, 1);
    if (index === undefined || index > maxNodes)
      throw new OpenShellError("resource-exhausted", `${maxNodes} nodes are the most there can be`);
    const node = nodeLayoutOf(context.layout, index);
    await updateState(context, { nodes: [...context.state.nodes, index] });
    try {
      await prepareNodes(context);
      await startNode(context, node);
      await makeRoutes(context.layout, nodesOf(context));
    } catch (error) {
      await stopNode(context, node);
      await updateState(context, { nodes: context.state.nodes.filter((other) => other !== index) });
      throw error;
    }
    const added = (await this.nodes()).find(({ name }) => name === node.name);
    if (added === undefined) throw new OpenShellError("internal", `${node.name} vanished after it became Ready`);
    return added;
  }

  async removeNode(name: string): Promise<void> {
    await this.#existing();
    await using _lock = await lockCluster(this.#directory, silent);
    const context = await this.#existing();
    const node = nodesOf(context).find((candidate) => candidate.name === name);
    if (node === undefined) {
      const names = nodesOf(context).map((candidate) => candidate.name);
      throw new OpenShellError("not-found", `there is no node ${name}: the cluster has ${names.join(", ")}`);
    }
    await stopNode(context, node);
    await updateState(context, { nodes: context.state.nodes.filter((index) => index !== node.index) });
    await makeRoutes(context.layout, nodesOf(context));
  }

  async collectLogs(directory: string): Promise<void> {
    const { layout, state } = await this.#existing();
    await mkdir(directory, { recursive: true });
    const sources: [string, string][] = [
      [layout.files.logs, "components"],
      ...nodesOf({ layout, state }).map((node): [string, string] => [
        join(node.directory, "pod-logs"),
        `pods-${node.name}`,
      ]),
    ];
    for (const [from, to] of sources)
      await cp(from, join(directory, to), { recursive: true, force: true }).catch(() => {});
  }

  /** The context of a cluster that was brought up. */
  async #existing(): Promise<Context> {
    if ((await readClusterState(this.#directory)) === undefined) {
      throw new OpenShellError(
        "failed-precondition",
        "there is no local cluster: bring one up with `node e2e/cluster/main.ts up`",
      );
    }
    return this.#open(silent);
  }

  /** The context of the cluster, begun if there is none. */
  async #open(progress: Progress, signal?: AbortSignal): Promise<Context> {
    let state = await readClusterState(this.#directory);
    if (state === undefined) {
      const hierarchies = await findHierarchies();
      const slot = await reserveSlot((prefix) => reserveCgroup(hierarchies, prefix));
      state = { ...newClusterState(slot), sysctls: await originalSysctls() };
      await writeClusterState(this.#directory, state);
    }
    const layout = layoutOf(this.#directory, state.slot);
    return {
      layout,
      state,
      progress,
      place: await placeOf(layout),
      authority: await Authority.open(layout.files.pki),
      ...(signal === undefined ? {} : { signal }),
    };
  }

  /** True when something of the cluster runs already. */
  async #runs(): Promise<boolean> {
    const state = await readClusterState(this.#directory);
    if (state === undefined) return false;
    const { prefix } = layoutOf(this.#directory, state.slot);
    return (await processesIn(await findHierarchies(), prefix)).length > 0;
  }

  async #remove(): Promise<void> {
    const state = await readClusterState(this.#directory);
    if (state !== undefined) {
      const layout = layoutOf(this.#directory, state.slot);
      const place = await placeOf(layout);
      await removeCgroup(place.hierarchies, layout.prefix);
      for (const node of nodesOf({ layout, state })) await removeNodeNetwork(node, []);
      await removeBridge(layout);
      // What all clusters share goes with the last of them.
      if (!(await otherClusters({ layout, place }))) {
        await removeMountPoints(state.directories);
        await restoreSysctls(state.sysctls);
      }
    }
    await rm(this.#directory, { recursive: true, force: true });
  }
}

async function placeOf(layout: Layout): Promise<ComponentPlace> {
  return { run: layout.files.run, logs: layout.files.logs, hierarchies: await findHierarchies() };
}

/** The lowest numbers that no node has. */
export function freeIndices(used: readonly number[], count: number): readonly number[] {
  const free: number[] = [];
  for (let index = 1; free.length < count; index += 1) if (!used.includes(index)) free.push(index);
  return free;
}

/** Fails with a sentence where the container runtime would fail with a riddle. */
async function checkArchive(archive: string): Promise<void> {
  const file = await open(archive).catch((cause: unknown) => {
    throw new OpenShellError("not-found", `${archive} cannot be read: build the images first`, { cause });
  });
  try {
    const { buffer } = await file.read(Buffer.alloc(512), 0, 512, 0);
    if (buffer.subarray(257, 262).toString() !== "ustar") {
      throw new OpenShellError(
        "invalid-argument",
        `${archive} is not an image archive: give a tar that holds an OCI layout or a docker save`,
      );
    }
  } finally {
    await file.close();
  }
}
