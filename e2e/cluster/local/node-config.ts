import { join } from "node:path";
import { stringify } from "yaml";
import type { Layout, NodeLayout } from "./layout.ts";
import { programPath } from "./programs.ts";
import { cniPlugins } from "./requirements.ts";

/** Image of the first process of every Pod's sandbox. */
export const pauseImage = "openshell.local/pause:dev";

/** Files a node's programs read, by path; those that begin with `#!` they run. Pure. */
export function nodeFiles(
  layout: Layout,
  node: NodeLayout,
  pki: (name: string) => string,
): Readonly<Record<string, string>> {
  const config = (name: string) => join(node.directory, "config", name);
  return {
    [config("containerd.toml")]: containerdConfig(node),
    [config("crun")]: crunScript,
    [config("cni/10-pods.conflist")]: JSON.stringify(cniConfig(node), undefined, 2),
    [config("kubelet.yaml")]: stringify(kubeletConfig(layout, node, pki)),
    [config("kube-proxy.yaml")]: stringify(kubeProxyConfig(layout, node)),
    // Pods with dnsPolicy Default ask nobody: there is no name outside of the cluster to find.
    [config("resolv.conf")]: "",
  };
}

/**
 * Debian's crun refuses a specification whose version is not 1.0, and containerd 2 writes 1.3 into all of them: it is called with the older
 * number, under which nothing that these Pods have has another meaning.
 */
const crunScript = `#!/bin/sh
was=
for word; do
  if [ "$was" = --bundle ]; then sed -i 's/"ociVersion":"[^"]*"/"ociVersion":"1.0.2"/' "$word/config.json"; fi
  was=$word
done
exec /usr/bin/crun "$@"
`;

function containerdConfig(node: NodeLayout): string {
  const cri = (part: "images" | "runtime") => `plugins."io.containerd.cri.v1.${part}"`;
  const runtime = (name: string, binary: string) => `
[${cri("runtime")}.containerd.runtimes.${name}]
  runtime_type = "io.containerd.runc.v2"
  runtime_path = "${programPath("containerd-shim-runc-v2")}"
  [${cri("runtime")}.containerd.runtimes.${name}.options]
    BinaryName = "${binary}"
    SystemdCgroup = false
`;
  return `version = 3
root = "${join(node.directory, "containerd")}"
state = "/run/containerd"
# Nobody adjusts containers on their way to the runtime here.
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
  address = "/run/containerd/containerd.sock"

# Made when it starts, and in /opt of the machine if nothing is said.
[plugins."io.containerd.internal.v1.opt"]
  path = "${join(node.directory, "containerd-opt")}"

# As with etcd: what is lost with the machine is thrown away with it.
[plugins."io.containerd.metadata.v1.bolt"]
  no_sync = true

[${cri("images")}.pinned_images]
  sandbox = "${pauseImage}"

[${cri("runtime")}]
  # Without CAP_SYS_RESOURCE no score may be lowered, and every sandbox would die at its start.
  restrict_oom_score_adj = true
  # Every container is asked each second otherwise; the kubelet counts by itself.
  stats_collect_period = "1h"

[${cri("runtime")}.cni]
  bin_dirs = ["${cniPlugins}"]
  conf_dir = "${join(node.directory, "config/cni")}"

[${cri("runtime")}.containerd]
  # Makes a container with less than half of runc's CPU, and a run of the suite makes two thousand. It is Debian's 1.8, which makes no user
  # namespaces: Pods that want one name the other.
  default_runtime_name = "crun"
${runtime("runc", programPath("runc"))}${runtime("crun", join(node.directory, "config/crun"))}`;
}

/**
 * Point-to-point links instead of a bridge: every packet between Pods is routed, so that it passes the FORWARD chain where NetworkPolicy is
 * enforced, also between two Pods of one node. No host ports: the plugin for them looks for its rules, a dozen calls of iptables, whenever
 * any Pod ends.
 */
function cniConfig(node: NodeLayout): object {
  return {
    cniVersion: "0.4.0",
    name: "pods",
    plugins: [
      {
        type: "ptp",
        mtu: 1500,
        ipMasq: false,
        ipam: {
          type: "host-local",
          dataDir: "/var/lib/cni/networks",
          ranges: [[{ subnet: node.podSubnet }]],
          routes: [{ dst: "0.0.0.0/0" }],
        },
      },
    ],
  };
}

function kubeletConfig(layout: Layout, node: NodeLayout, pki: (name: string) => string): object {
  return {
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    address: node.address,
    authentication: {
      anonymous: { enabled: false },
      webhook: { enabled: true },
      x509: { clientCAFile: pki("ca.crt") },
    },
    authorization: { mode: "Webhook" },
    tlsCertFile: pki(`${node.name}-kubelet-server.crt`),
    tlsPrivateKeyFile: pki(`${node.name}-kubelet-server.key`),
    cgroupDriver: "cgroupfs",
    cgroupRoot: `/${node.cgroup}`,
    enforceNodeAllocatable: [],
    oomScoreAdj: 0,
    failSwapOn: false,
    clusterDNS: [layout.dnsAddress],
    clusterDomain: "cluster.local",
    resolvConf: join(node.directory, "config/resolv.conf"),
    containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
    // Images cannot be pulled again, and the machine's disk is not the cluster's to judge.
    imageGCHighThresholdPercent: 100,
    evictionHard: {
      "memory.available": "100Mi",
      "nodefs.available": "0%",
      "nodefs.inodesFree": "0%",
      "imagefs.available": "0%",
    },
    volumePluginDir: join(node.directory, "config/volume-plugins"),
    serializeImagePulls: false,
  };
}

function kubeProxyConfig(layout: Layout, node: NodeLayout): object {
  return {
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode: "iptables",
    clientConnection: { kubeconfig: join(layout.files.kubeconfigs, "kube-proxy.yaml") },
    hostnameOverride: node.name,
    clusterCIDR: layout.podSubnet,
    oomScoreAdj: 0,
    // A node's namespace may not change the machine's connection tracking.
    conntrack: { maxPerCore: 0, min: 0 },
    iptables: { syncPeriod: "30s", minSyncPeriod: "100ms" },
  };
}
