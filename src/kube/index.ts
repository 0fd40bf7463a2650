/**
 * Access to a Kubernetes cluster: requests with deadlines, errors that keep what the API server said, informers, a
 * keyed work queue and a Lease. Nothing above this folder touches a raw client.
 */
export {
  type ClusterAccess,
  defaultAccess,
  fixedAccess,
  inClusterAccess,
  kubeconfigAccess,
} from "./access.ts";
export * from "./agent-sandbox.ts";
export { createKubeClient, type KubeClientOptions } from "./client.ts";
export {
  isAlreadyExists,
  isConflict,
  isForbidden,
  isGone,
  isInvalid,
  isNotFound,
  isTooManyRequests,
  type KubeStatus,
  kubeStatusOf,
  mayPass,
} from "./errors.ts";
export { type ChangeListener, Informer, type InformerOptions, type InformerStats } from "./informer.ts";
export { type InformerScope, Informers } from "./informers.ts";
export { type HeldLease, holdLease, type LeaseOptions } from "./lease.ts";
export { type Refusal, type RefusalKind, refusalOf } from "./refusals.ts";
export * from "./resources.ts";
export { ServerClock } from "./server-clock.ts";
export * from "./types.ts";
export { WorkQueue, type WorkQueueOptions } from "./work-queue.ts";
