import type { ClusterFaults } from "./faults.ts";
import type { Progress } from "./progress.ts";

export type ProviderName = "local" | "k3d" | "kubeconfig";

export interface NodeInfo {
  /** Name of the Kubernetes Node object. */
  readonly name: string;
  /** Its InternalIP, as Kubernetes reports it. */
  readonly address: string;
  readonly ready: boolean;
  /** False when cordoned. */
  readonly schedulable: boolean;
}

export interface UpOptions {
  /** Nodes that take Pods. A cluster that already has more keeps them. */
  readonly nodes: number;
  readonly signal?: AbortSignal;
  readonly progress: Progress;
}

/**
 * A real Kubernetes cluster for the conformance suite. Every call fails with an OpenShellError whose message is one line that says what to do.
 * A caller may not assume that nodes are containers, that the host can reach Pod addresses, or that images can be pulled from anywhere.
 */
export interface ClusterProvider {
  readonly name: ProviderName;

  /**
   * Makes the cluster usable: nodes Ready, DNS, a default StorageClass that binds late, NetworkPolicy enforced, the Agent Sandbox API served.
   * Idempotent; resumes where an interrupted call stopped. A failed call undoes what it started, but keeps what it downloaded or built.
   */
  up(options: UpOptions): Promise<void>;

  /** Removes every trace of the cluster from the machine, whatever state it is in. Does nothing when there is none. Keeps the build cache. */
  down(progress: Progress): Promise<void>;

  /** Whether there is a cluster, whatever state it is in: one that is stopped is somebody's, too. Fails when that cannot be known. */
  exists(): Promise<boolean>;

  /** Path of an administrator's kubeconfig that works from this host. The file may change with every `up`. */
  kubeconfig(): Promise<string>;

  /**
   * Puts the OCI or docker archive `archive` on every node under the reference `ref`. Nodes that are added later have it too.
   * Do not assume that a Pod with pull policy Always can use it.
   */
  loadImage(archive: string, ref: string): Promise<void>;

  /** Nodes that take Pods, as the API server knows them now. Do not assume an order. */
  nodes(): Promise<readonly NodeInfo[]>;

  /** Adds capacity and returns when the node is Ready. It may be a node that `removeNode` took away. */
  addNode(): Promise<NodeInfo>;

  /**
   * Takes a node's capacity away. Do not assume that its Pods were drained, nor that they end: a provider that owns the node ends them without
   * grace, as on a node that was lost; one that does not only cordons it.
   */
  removeNode(name: string): Promise<void>;

  /** Only where the provider runs the cluster's programs itself. */
  readonly faults?: ClusterFaults;

  /** Copies every log worth reading after a failure below `directory`, which is made when it is missing. Never fails on a missing log. */
  collectLogs(directory: string): Promise<void>;
}
