import type { Logger } from "../common/log.ts";
import type { KubernetesSettings } from "../config/index.ts";
import type { KubeClient, KubeClientOptions } from "../kube/index.ts";
import type { compute, Implementation } from "../wire/index.ts";
import type { Action } from "./action.ts";
import type { ClusterView } from "./cluster-view.ts";
import type { Executor } from "./execute.ts";
import type { Reconciler } from "./reconciler.ts";
import type { SupervisorLoss } from "./replacement.ts";
import type { Workspaces } from "./workspaces.ts";

export interface DriverOptions {
  readonly settings: KubernetesSettings;
  readonly gateway: {
    readonly id: string;
    readonly version: string;
    /** `http(s)://host:port`, as supervisors reach the gateway. */
    readonly endpoint: string;
    /** What supervisors verify the gateway's certificate with, read for each of them: it may change. @default the system's roots */
    readonly caPem?: () => string;
    /** `address:port` of what a fenced workload must not reach. @default the cluster's API server, seen from a Pod */
    readonly fenceTargets?: readonly string[];
  };
  readonly masterSecret: Uint8Array;
  readonly log: Logger;
  /** A kubeconfig file. @default the Pod's own access, or the default kubeconfig outside a cluster */
  readonly kubeconfig?: string;
  /** Told of every answer of the API server. */
  readonly onRequest?: KubeClientOptions["onRequest"];
  /** Told of every watch that is opened again, with the plural of its resource. */
  readonly onWatchRestart?: (resource: string) => void;
  /** Told of every supervisor made anew for a workload that runs, with what became of the former. */
  readonly onReplacement?: (cause: SupervisorLoss) => void;
  /** Told after every reconcile of a sandbox how long it took. */
  readonly onReconciled?: (seconds: number) => void;
  /** Told of every round of writes. */
  readonly onRound?: (sandboxId: string, actions: readonly Action[]) => void;
  /** For tests: a client instead of one of its own. */
  readonly client?: KubeClient;
  readonly now?: () => Date;
}

export interface Driver {
  readonly implementation: Implementation<typeof compute.ComputeDriver>;
  /** Resolves when the caches are filled and the lease is held: from then on it writes. `signal` ends it. */
  start(signal: AbortSignal): Promise<void>;
  /** The caches are filled. */
  ready(): boolean;
  /** The lease is held: it may write. */
  leads(): boolean;
  /** Sandboxes that wait to be worked on, or are; for metrics. */
  depth(): number;
  stop(): Promise<void>;
}

/** What the parts of a running driver share. */
export interface Running {
  readonly client: KubeClient;
  readonly view: ClusterView;
  readonly executor: Executor;
  readonly reconciler: Reconciler;
  readonly workspaces: Workspaces;
}
