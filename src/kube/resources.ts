import type {
  CoreV1Event,
  V1ConfigMap,
  V1CustomResourceDefinition,
  V1Lease,
  V1Namespace,
  V1NetworkPolicy,
  V1Node,
  V1PersistentVolumeClaim,
  V1Pod,
  V1PriorityClass,
  V1ResourceQuota,
  V1RoleBinding,
  V1RuntimeClass,
  V1Secret,
  V1SelfSubjectReview,
  V1Service,
  V1ServiceAccount,
  V1TokenReview,
} from "@kubernetes/client-node";
import type { KubeObject, Resource, Wire } from "./types.ts";

export type Pod = Wire<V1Pod>;
export type Service = Wire<V1Service>;
export type Secret = Wire<V1Secret>;
export type ConfigMap = Wire<V1ConfigMap>;
export type KubeEvent = Wire<CoreV1Event>;
export type Namespace = Wire<V1Namespace>;
export type Node = Wire<V1Node>;
export type PersistentVolumeClaim = Wire<V1PersistentVolumeClaim>;
export type ResourceQuota = Wire<V1ResourceQuota>;
export type NetworkPolicy = Wire<V1NetworkPolicy>;
export type RuntimeClass = Wire<V1RuntimeClass>;
export type PriorityClass = Wire<V1PriorityClass>;
export type Lease = Wire<V1Lease>;
export type ServiceAccount = Wire<V1ServiceAccount>;
export type RoleBinding = Wire<V1RoleBinding>;
export type SelfSubjectReview = Wire<V1SelfSubjectReview>;
export type TokenReview = Wire<V1TokenReview>;
export type CustomResourceDefinition = Wire<V1CustomResourceDefinition>;

function namespaced<T extends KubeObject>(group: string, kind: string, plural: string): Resource<T> {
  return { group, version: "v1", kind, plural, namespaced: true };
}

function clusterScoped<T extends KubeObject>(group: string, kind: string, plural: string): Resource<T> {
  return { group, version: "v1", kind, plural, namespaced: false };
}

export const pods = namespaced<Pod>("", "Pod", "pods");
export const services = namespaced<Service>("", "Service", "services");
export const secrets = namespaced<Secret>("", "Secret", "secrets");
export const configMaps = namespaced<ConfigMap>("", "ConfigMap", "configmaps");
export const events = namespaced<KubeEvent>("", "Event", "events");
export const persistentVolumeClaims = namespaced<PersistentVolumeClaim>(
  "",
  "PersistentVolumeClaim",
  "persistentvolumeclaims",
);
export const resourceQuotas = namespaced<ResourceQuota>("", "ResourceQuota", "resourcequotas");
export const networkPolicies = namespaced<NetworkPolicy>("networking.k8s.io", "NetworkPolicy", "networkpolicies");
export const leases = namespaced<Lease>("coordination.k8s.io", "Lease", "leases");
export const namespaces = clusterScoped<Namespace>("", "Namespace", "namespaces");
export const nodes = clusterScoped<Node>("", "Node", "nodes");
export const runtimeClasses = clusterScoped<RuntimeClass>("node.k8s.io", "RuntimeClass", "runtimeclasses");
export const priorityClasses = clusterScoped<PriorityClass>("scheduling.k8s.io", "PriorityClass", "priorityclasses");
export const serviceAccounts = namespaced<ServiceAccount>("", "ServiceAccount", "serviceaccounts");
export const roleBindings = namespaced<RoleBinding>("rbac.authorization.k8s.io", "RoleBinding", "rolebindings");
export const selfSubjectReviews = clusterScoped<SelfSubjectReview>(
  "authentication.k8s.io",
  "SelfSubjectReview",
  "selfsubjectreviews",
);
export const tokenReviews = clusterScoped<TokenReview>("authentication.k8s.io", "TokenReview", "tokenreviews");
export const customResourceDefinitions = clusterScoped<CustomResourceDefinition>(
  "apiextensions.k8s.io",
  "CustomResourceDefinition",
  "customresourcedefinitions",
);
