import { access, mkdir, readFile, rename, rm, rmdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { OpenShellError } from "../../../src/common/errors.ts";
import { kubectl, kubectlAttempt } from "../clients.ts";
import { attempt, type Outcome } from "../exec.ts";
import type { LeafRequest } from "./certificates.ts";
import { clusterCgroups, removeCgroup } from "./cgroups.ts";
import { type Component, componentPid, startComponent, type WaitOptions, waitForComponent } from "./component.ts";
import { type Context, nodesOf, updateState } from "./context.ts";
import { importImages } from "./images.ts";
import { writeKubeconfig } from "./kubeconfig.ts";
import type { NodeLayout } from "./layout.ts";
import { makeNodeNetwork, removeNodeNetwork } from "./network.ts";
import { nodeFiles } from "./node-config.ts";
import { programPath } from "./programs.ts";

/**
 * Paths that programs of a node have built in, and that every node therefore sees a directory of its own under. All mounts of a node are in
 * its own mount namespace and end with its last process.
 */
const ownDirectories: Readonly<Record<string, string>> = {
  "/var/lib/kubelet": "kubelet",
  "/var/lib/cni": "cni",
  "/var/log/pods": "pod-logs",
  "/var/log/containers": "container-logs",
};

/** The two programs behind every name of iptables; Debian's `iptables` is the second. */
const iptables = { legacy: "/usr/sbin/xtables-legacy-multi", nft: "/usr/sbin/xtables-nft-multi" };

/** What all nodes share: mount points on the machine, and the credentials of programs that need no identity per node. */
export async function prepareNodes(context: Context): Promise<void> {
  await makeMountPoints(context);
  await mkdir(context.layout.files.storage, { recursive: true });
  for (const name of ["kube-proxy", "kube-router"]) await writeClient(context, { name, commonName: `system:${name}` });
}

/** Starts what of a node does not run yet, and waits until it is Ready and enforces policies. */
export async function startNode(context: Context, node: NodeLayout): Promise<void> {
  const { layout, place, signal } = context;
  const options = { timeoutMs: 90_000, ...(signal === undefined ? {} : { signal }) };
  if (!(await allRun(context, node))) {
    // What outlived the holder is in mount and network namespaces that nobody can enter any more: the node starts anew.
    if ((await holderPid(context, node)) === undefined) await removeCgroup(place.hierarchies, node.cgroup);
    await makeNodeNetwork(layout, node);
    await writeNodeFiles(context, node);
    const holder = await startHolder(context, node, options);
    const [containerd, kubelet, kubeProxy, kubeRouter] = nodeComponents(context, node, holder);

    await startComponent(place, containerd);
    await waitForComponent(place, containerd, "answering", () => containerdAnswers(holder), options);
    await importImages(context, holder);
    await startComponent(place, kubelet);
    await startComponent(place, kubeProxy);
    await waitForComponent(place, kubelet, "registered", () => nodeExists(context, node), options);
    // Both write the filter table whole. When kube-proxy's first round meets kube-router's it fails and is not tried again: a node without Services.
    await waitForComponent(place, kubeProxy, "routing Services", () => routesServices(holder), options);
    // Before its Node object exists it would end at once, and policies would silently not be enforced.
    await startComponent(place, kubeRouter);
    await waitForComponent(place, kubeRouter, "filtering", () => filters(holder), options);
  }
  await kubectl(
    layout.files.adminKubeconfig,
    ["wait", `node/${node.name}`, "--for=condition=Ready", "--timeout=90s"],
    options,
  );
}

/** Starts the kubelet of a node of which everything else runs. */
export async function startKubelet(context: Context, node: NodeLayout): Promise<void> {
  const holder = await holderPid(context, node);
  if (holder === undefined) throw new OpenShellError("failed-precondition", `${node.name} does not run`);
  const [, kubelet] = nodeComponents(context, node, holder);
  await startComponent(context.place, kubelet);
}

/** True when nothing of the node has to be started: the last component only runs when all before it did. */
async function allRun(context: Context, node: NodeLayout): Promise<boolean> {
  const holder = await holderPid(context, node);
  if (holder === undefined) return false;
  const pids = nodeComponents(context, node, holder).map(({ name, cgroup }) =>
    componentPid(context.place, name, cgroup),
  );
  return (await Promise.all(pids)).every((pid) => pid !== undefined);
}

/** Ends everything of a node at once and removes its traces, in the cluster and on the machine. */
export async function stopNode(context: Context, node: NodeLayout): Promise<void> {
  const { adminKubeconfig } = context.layout.files;
  await removeCgroup(context.place.hierarchies, node.cgroup);
  await removeNodeNetwork(
    node,
    nodesOf(context).filter((other) => other.index !== node.index),
  );
  await kubectlAttempt(adminKubeconfig, ["delete", "node", node.name, "--ignore-not-found", "--timeout=20s"]);
  await kubectlAttempt(adminKubeconfig, [
    ...["delete", "pods", "--all-namespaces", `--field-selector=spec.nodeName=${node.name}`],
    ...["--force", "--grace-period=0", "--wait=false"],
  ]);
  await rm(node.directory, { recursive: true, force: true });
  await rm(join(context.layout.files.run, node.name), { recursive: true, force: true });
}

/** Process whose mount and network namespaces are the node's; undefined when the node does not run. */
export async function holderPid(context: Pick<Context, "place">, node: NodeLayout): Promise<number | undefined> {
  return componentPid(context.place, `${node.name}/holder`, `${node.cgroup}/system`);
}

/** Words that run what follows them inside of a node. */
export function insideNode(holder: number): readonly string[] {
  return ["nsenter", `--target=${holder}`, "--mount", "--net", "--"];
}

/** Starts the process that holds a node's mount namespace, with the node's own directories mounted. */
async function startHolder(context: Context, node: NodeLayout, options: WaitOptions): Promise<number> {
  const running = await holderPid(context, node);
  if (running !== undefined) return running;
  const made = join(node.directory, "mounts-made");
  await rm(made, { force: true });
  const binds = Object.entries({ ...ownDirectories, [context.layout.files.storage]: "storage" });
  const script = [
    // Its log is empty but for these words; they name the command that a wait that ran out was waiting for.
    "set -ex",
    // crun drops every controller where a version 2 hierarchy is mounted beside version 1.
    "if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi",
    // Sockets, locks and network namespaces of a node: built-in paths below /run.
    "mount -t tmpfs -o mode=755 tmpfs /run",
    // The rules of Services and policies are written anew at each change; the older iptables does that in a third of the time, where the kernel has it.
    `if iptables-legacy --list >/dev/null 2>&1; then mount --bind '${iptables.legacy}' '${iptables.nft}'; fi`,
    // A registry is nowhere: without a nameserver a pull fails at once, and not after the minute in which containerd asks one that no node can reach.
    `if [ -e /etc/resolv.conf ]; then mount --bind '${join(node.directory, "config/resolv.conf")}' /etc/resolv.conf; fi`,
    ...binds.map(([path, name]) => `mount --bind '${join(node.directory, name)}' '${path}'`),
    "mount --make-rshared /",
    `touch '${made}'`,
    "exec sleep infinity",
  ].join("\n");
  const holder: Component = {
    name: `${node.name}/holder`,
    cgroup: `${node.cgroup}/system`,
    command: "nsenter",
    args: [`--net=/run/netns/${node.namespace}`, "unshare", "--mount", "--propagation=private", "sh", "-c", script],
  };
  const pid = await startComponent(context.place, holder);
  await waitForComponent(context.place, holder, "mounted", () => exists(made), options);
  return pid;
}

function nodeComponents(
  context: Context,
  node: NodeLayout,
  holder: number,
): readonly [Component, Component, Component, Component] {
  const { layout } = context;
  const config = (name: string) => join(node.directory, "config", name);
  const component = (name: string, command: string, args: readonly string[]): Component => {
    const [nsenter = "", ...words] = insideNode(holder);
    return {
      name: `${node.name}/${name}`,
      cgroup: `${node.cgroup}/system`,
      command: nsenter,
      args: [...words, command, ...args],
    };
  };
  return [
    component("containerd", programPath("containerd"), [`--config=${config("containerd.toml")}`]),
    component("kubelet", programPath("kubernetes"), [
      "kubelet",
      `--config=${config("kubelet.yaml")}`,
      `--kubeconfig=${join(layout.files.kubeconfigs, `${node.name}.yaml`)}`,
      `--hostname-override=${node.name}`,
      `--node-ip=${node.address}`,
    ]),
    component("kube-proxy", programPath("kubernetes"), ["kube-proxy", `--config=${config("kube-proxy.yaml")}`]),
    component("kube-router", programPath("kube-router"), [
      `--kubeconfig=${join(layout.files.kubeconfigs, "kube-router.yaml")}`,
      `--hostname-override=${node.name}`,
      "--run-firewall=true",
      // What an event that came too early left out is mended by the next full round; 5 min, the default, is longer than a test waits.
      "--iptables-sync-period=30s",
      "--run-router=false",
      "--run-service-proxy=false",
      "--run-loadbalancer=false",
      `--service-cluster-ip-range=${layout.serviceSubnet}`,
      "--metrics-port=0",
    ]),
  ];
}

async function writeNodeFiles(context: Context, node: NodeLayout): Promise<void> {
  const { authority, layout } = context;
  await authority.issue({
    name: `${node.name}-kubelet-server`,
    commonName: node.name,
    hosts: [node.name, node.address],
  });
  await writeClient(context, {
    name: node.name,
    commonName: `system:node:${node.name}`,
    organizations: ["system:nodes"],
  });
  for (const name of [...Object.values(ownDirectories), "storage", "config/volume-plugins"]) {
    await mkdir(join(node.directory, name), { recursive: true });
  }
  for (const [file, text] of Object.entries(nodeFiles(layout, node, (name) => authority.file(name)))) {
    // containerd watches its directory and would complain of a file that is half written.
    if ((await readFile(file, "utf8").catch(() => undefined)) === text) continue;
    await mkdir(dirname(file), { recursive: true });
    await writeFile(`${file}.new`, text, { mode: text.startsWith("#!") ? 0o755 : 0o644 });
    await rename(`${file}.new`, file);
  }
}

async function writeClient({ authority, layout }: Context, request: LeafRequest): Promise<void> {
  const client = await authority.issue(request);
  const target = join(layout.files.kubeconfigs, `${request.name}.yaml`);
  await writeKubeconfig(target, {
    server: layout.apiServer,
    authority: authority.certificate,
    user: request.name,
    client,
  });
}

/** Mount points have to exist on the machine; those that clusters made are noted, to be removed by the `down` of the last cluster. */
async function makeMountPoints(context: Context): Promise<void> {
  const others = await otherClusters(context);
  for (const path of Object.keys(ownDirectories)) {
    if ((await exists(path)) && !others) continue;
    if (!context.state.directories.includes(path))
      await updateState(context, { directories: [...context.state.directories, path] });
    await mkdir(path, { recursive: true });
  }
}

/** Removes the mount points that are empty. Not while another cluster lives: that would unmount them in that cluster's nodes. */
export async function removeMountPoints(directories: readonly string[]): Promise<void> {
  for (const directory of directories) await rmdir(directory).catch(() => {});
}

/** True when this machine has another local cluster. */
export async function otherClusters({ layout, place }: Pick<Context, "layout" | "place">): Promise<boolean> {
  return (await clusterCgroups(place.hierarchies)).some((name) => name !== layout.prefix);
}

function attemptInside(holder: number, ...command: readonly string[]): Promise<Outcome> {
  const [nsenter = "", ...words] = insideNode(holder);
  return attempt(nsenter, [...words, ...command]);
}

async function containerdAnswers(holder: number): Promise<boolean> {
  return (await attemptInside(holder, programPath("ctr"), "--connect-timeout=1s", "version")).code === 0;
}

async function nodeExists(context: Context, node: NodeLayout): Promise<boolean> {
  return (await kubectlAttempt(context.layout.files.adminKubeconfig, ["get", "node", node.name])).code === 0;
}

async function routesServices(holder: number): Promise<boolean> {
  const { code, stdout } = await attemptInside(holder, "iptables", "-t", "nat", "-S", "KUBE-SERVICES");
  return code === 0 && stdout.includes("-A KUBE-SERVICES");
}

async function filters(holder: number): Promise<boolean> {
  return (await attemptInside(holder, "iptables", "-S", "KUBE-ROUTER-FORWARD")).code === 0;
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
