/**
 * Everything a sandbox owns in the cluster, as cdk8s constructs. Pure: (settings, sandbox, generation) -> manifests; the cluster's own facts
 * (UIDs, secrets) are passed in.
 */
export { appArmorProfileOf } from "./_pod-spec.ts";
export { BoundaryService, type BoundaryServiceProps } from "./boundary-service.ts";
export * from "./generation.ts";
export {
  type LabelledObject,
  labelRules,
  labelsOf,
  networkPolicyLabels,
  pairSelector,
  roleSelector,
  workspaceNamespaceLabels,
} from "./labels.ts";
export { type ManagedNamespacesPolicyProps, managedNamespacesPolicySpec } from "./managed-namespaces-policy.ts";
export * from "./names.ts";
export { type FenceProps, SupervisorNetworkPolicy, WorkloadNetworkPolicy } from "./network-policies.ts";
export {
  clusterPermissions,
  type Permission,
  sandboxNamespacePermissions,
  type Verb,
  workspaceModePermissions,
  workspaceNamespacePermissions,
} from "./permissions.ts";
export { affinityOf, foreignAffinity, mergeAffinity, peerTerm } from "./placement.ts";
export { manifestOf, podOwner, redacted, renderGeneration, sandboxOwner, unknownUntilCreated } from "./render.ts";
export { type AgentSandboxApi, runMode, SandboxResource, type SandboxResourceProps } from "./sandbox-resource.ts";
export { SupervisorSecret, type SupervisorSecretFiles, WorkloadSecret, type WorkloadSecretFiles } from "./secrets.ts";
export { SupervisorPod, type SupervisorPodProps, supervisorPodSpec } from "./supervisor-pod.ts";
export { mergeResources, type PodTemplate, workloadPodTemplate, workloadResources } from "./workload-pod.ts";
export {
  type Subject,
  WorkspaceNamespace,
  WorkspaceRoleBinding,
  WorkspaceServiceAccount,
} from "./workspace-namespace.ts";
