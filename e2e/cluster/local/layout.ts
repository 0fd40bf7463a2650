import { join } from "node:path";

/** Clusters that fit on one machine beside each other. */
export const slots = 16;

/** Every name, address and path of one local cluster, derived from its slot and state directory. */
export interface Layout {
  readonly slot: number;
  /** Everything the cluster writes is below this directory. */
  readonly state: string;
  /** Prefix of the bridge, network namespaces, links and cgroups, e.g. `osl0`. */
  readonly prefix: string;
  /** The /16 that everything below is part of. */
  readonly network: string;
  readonly nodeSubnet: string;
  readonly podSubnet: string;
  readonly serviceSubnet: string;
  /** The host on the bridge: API server, and the source of what the host sends to Pods. */
  readonly hostAddress: string;
  /** ClusterIP of the `kubernetes` Service. */
  readonly kubernetesServiceAddress: string;
  readonly dnsAddress: string;
  /** Loopback address for what only the host may reach (etcd, controller manager, scheduler): no port of others is taken. */
  readonly loopback: string;
  readonly apiServerPort: number;
  readonly apiServer: string;
  readonly files: {
    readonly cluster: string;
    readonly lock: string;
    readonly pki: string;
    readonly kubeconfigs: string;
    readonly adminKubeconfig: string;
    readonly logs: string;
    readonly run: string;
    readonly etcd: string;
    readonly config: string;
    readonly images: string;
    readonly storage: string;
  };
}

/** One node's names and paths. */
export interface NodeLayout {
  readonly name: string;
  readonly index: number;
  readonly address: string;
  readonly podSubnet: string;
  /** Network namespace in /run/netns. */
  readonly namespace: string;
  /** Host end of the node's veth. */
  readonly link: string;
  /** Below each cgroup hierarchy, without a leading slash. */
  readonly cgroup: string;
  readonly directory: string;
}

export const defaultStateDirectory = "/var/lib/openshell-local-cluster";

export function stateDirectory(env: Readonly<Record<string, string | undefined>> = process.env): string {
  return env.OPENSHELL_LOCAL_CLUSTER || defaultStateDirectory;
}

export function layoutOf(state: string, slot: number): Layout {
  const base = `10.${208 + slot}`;
  const hostAddress = `${base}.0.1`;
  const apiServerPort = 6443;
  return {
    slot,
    state,
    prefix: `osl${slot}`,
    network: `${base}.0.0/16`,
    nodeSubnet: `${base}.0.0/24`,
    podSubnet: `${base}.64.0/18`,
    serviceSubnet: `${base}.128.0/20`,
    hostAddress,
    kubernetesServiceAddress: `${base}.128.1`,
    dnsAddress: `${base}.128.10`,
    loopback: `127.77.${slot}.1`,
    apiServerPort,
    apiServer: `https://${hostAddress}:${apiServerPort}`,
    files: {
      cluster: join(state, "cluster.json"),
      lock: join(state, "lock"),
      pki: join(state, "pki"),
      kubeconfigs: join(state, "kubeconfigs"),
      adminKubeconfig: join(state, "kubeconfigs", "admin.yaml"),
      logs: join(state, "logs"),
      run: join(state, "run"),
      etcd: join(state, "etcd"),
      config: join(state, "config"),
      images: join(state, "images"),
      storage: join(state, "storage"),
    },
  };
}

/** Nodes are numbered from 1; the number is never given to two living nodes. */
export function nodeLayoutOf(layout: Layout, index: number): NodeLayout {
  const base = `10.${208 + layout.slot}`;
  const name = `node-${index}`;
  return {
    name,
    index,
    address: `${base}.0.${10 + index}`,
    podSubnet: `${base}.${64 + index}.0/24`,
    namespace: `${layout.prefix}-${name}`,
    link: `${layout.prefix}-${name}`,
    cgroup: `${layout.prefix}/${name}`,
    directory: join(layout.state, "nodes", name),
  };
}

/** The most nodes a cluster can have: their Pod subnets end where the Service subnet begins. */
export const maxNodes = 60;
