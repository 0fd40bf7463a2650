/**
 * What only the owner of a cluster's processes can break. A provider has it where control plane and nodes are processes of this machine;
 * everything else that goes wrong can be made by a client of the API.
 */
export interface ClusterFaults {
  /**
   * Makes the API server answer nobody until disposed of, with every connection left open: what a stalled or partitioned control plane
   * looks like.
   */
  stallApiServer(): Promise<Disposable>;

  /** Stops the Agent Sandbox controller until disposed of. */
  stallAgentSandbox(): Promise<Disposable>;

  /** Stops a node's kubelet until disposed of. Its containers go on. */
  stallKubelet(node: string): Promise<Disposable>;

  /**
   * Raises a node's eviction threshold above the memory that is free, until disposed of: its kubelet reports MemoryPressure and evicts, one
   * Pod after the other, as on a node whose memory is used up.
   */
  pressMemory(node: string): Promise<AsyncDisposable>;

  /**
   * Sends a signal to the processes of a Pod's containers.
   *
   * @param uid of the Pod, which may be gone from the API server
   * @returns how many processes got it
   */
  signalPod(uid: string, signal: "SIGKILL" | "SIGSTOP" | "SIGCONT"): Promise<number>;

  /** What a server on this machine needs to stand between Pods and the API server. */
  apiServerFront(): Promise<ApiServerFront>;
}

export interface ApiServerFront {
  /** Of this machine; Pods reach every port of it. */
  readonly address: string;
  /** PEM; Pods take it for the API server's. */
  readonly certificate: string;
  readonly key: string;
}
