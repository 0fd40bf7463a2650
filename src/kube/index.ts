/**
 * Access to a Kubernetes cluster: requests with deadlines, errors that keep what the API server said, informers, a
 * keyed work queue and a Lease. Nothing above this folder touches a raw client.
 */
export * from "./agent-sandbox.ts";
export * from "./resources.ts";
export * from "./types.ts";
