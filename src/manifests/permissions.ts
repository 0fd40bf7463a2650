import type { KubernetesSettings } from "../config/index.ts";
import { driverLeaseName, networkPolicyName, workspaceRoleName } from "./names.ts";

/**
 * What the gateway's ServiceAccount may do: the chart prints its Role and ClusterRole from this table, and a test compares it with the calls
 * that the driver was seen to make. A verb that is not here is not granted.
 */

export type Verb = "get" | "list" | "watch" | "create" | "patch" | "delete" | "bind";

export interface Permission {
  /** `""` is the core group. */
  readonly group: string;
  readonly resources: readonly string[];
  readonly verbs: readonly Verb[];
  /**
   * Names that the verbs are confined to.
   * @default any name: it is not known beforehand, or the verb is create, list or watch, which no name can confine
   */
  readonly names?: (gatewayId: string) => readonly string[];
  /** Why the driver needs it. */
  readonly why: string;
}

/** In the namespace of the sandboxes. */
export const sandboxNamespacePermissions: readonly Permission[] = [
  {
    group: "agents.x-k8s.io",
    resources: ["sandboxes"],
    verbs: ["list", "watch", "create", "patch", "delete"],
    why: "the workload Pod comes from a Sandbox; the generation record is its annotation",
  },
  {
    group: "",
    resources: ["pods"],
    verbs: ["list", "watch", "create", "patch", "delete"],
    why: "supervisor Pods are made and deleted; both Pods are read back, and their gate is removed by patch",
  },
  {
    group: "",
    resources: ["secrets"],
    verbs: ["create", "delete"],
    why: "a generation's two Secrets are written and never read",
  },
  {
    group: "",
    resources: ["services"],
    verbs: ["list", "watch", "create", "patch", "delete"],
    why: "the boundary Service, pointed at each new generation",
  },
  {
    group: "networking.k8s.io",
    resources: ["networkpolicies"],
    verbs: ["list", "watch", "create"],
    why: "the two fences of the namespace, and foreign policies that would open them",
  },
  {
    group: "networking.k8s.io",
    resources: ["networkpolicies"],
    verbs: ["patch"],
    names: (gatewayId) => [networkPolicyName("workload", gatewayId), networkPolicyName("supervisor", gatewayId)],
    why: "a fence that somebody changed is put back; nobody else's policy can be touched",
  },
  {
    group: "",
    resources: ["events"],
    verbs: ["list", "watch"],
    why: "platform events of a sandbox, and the reasons a kubelet gives nowhere else",
  },
  {
    group: "coordination.k8s.io",
    resources: ["leases"],
    verbs: ["create"],
    why: "one driver writes at a time",
  },
  {
    group: "coordination.k8s.io",
    resources: ["leases"],
    verbs: ["get", "patch"],
    names: (gatewayId) => [driverLeaseName(gatewayId)],
    why: "the driver's lease is taken, renewed and given back",
  },
  {
    group: "",
    resources: ["namespaces"],
    verbs: ["get"],
    why: "the UID range on clusters that assign one; in a Role it is this namespace and no other",
  },
];

/** In a namespace that an operator has given to a workspace. */
export const operatorNamespacePermissions: readonly Permission[] = [
  ...sandboxNamespacePermissions.filter(({ group }) => group !== "coordination.k8s.io"),
  {
    group: "",
    resources: ["serviceaccounts"],
    verbs: ["get"],
    why: "the Pods of a pair run under service_account_name, which has to be there",
  },
];

/** In a namespace that the gateway made for a workspace, on top of what it may do in an operator's. */
export const managedNamespaceExtras: readonly Permission[] = [
  {
    group: "",
    resources: ["serviceaccounts"],
    verbs: ["create"],
    why: "the ServiceAccount is made with the namespace",
  },
];

/**
 * In each namespace of a workspace, where workspaces have namespaces of their own: one ClusterRole, named by `workspaceRoleName`, that is
 * bound in each of them and reaches nothing else.
 */
export const workspaceNamespacePermissions: Readonly<Record<"managed" | "operator", readonly Permission[]>> = {
  managed: [...operatorNamespacePermissions, ...managedNamespaceExtras],
  operator: operatorNamespacePermissions,
};

/** In the whole cluster, on top of the others, by `workspace_mode`. */
export const workspaceModePermissions: Readonly<Record<KubernetesSettings["workspace_mode"], readonly Permission[]>> = {
  shared: [],
  managed: [
    {
      group: "",
      resources: ["namespaces"],
      verbs: ["get", "list", "watch", "create", "delete"],
      why: "a namespace is made and deleted with its workspace; an admission policy keeps this to namespaces of this gateway",
    },
    {
      group: "rbac.authorization.k8s.io",
      resources: ["rolebindings"],
      verbs: ["create"],
      why: "in a namespace that it made, the gateway is given the rights of the workspace ClusterRole",
    },
    {
      group: "rbac.authorization.k8s.io",
      resources: ["clusterroles"],
      verbs: ["bind"],
      names: (gatewayId) => [workspaceRoleName(gatewayId)],
      why: "no other role can be given away",
    },
  ],
  operator: [
    {
      group: "",
      resources: ["namespaces"],
      verbs: ["list", "watch"],
      why: "operators say by operator_namespace_label which namespaces are workspaces; a file needs no right",
    },
  ],
};

/** In the whole cluster: nothing here can be written except questions. */
export const clusterPermissions: readonly Permission[] = [
  {
    group: "authentication.k8s.io",
    resources: ["tokenreviews"],
    verbs: ["create"],
    why: "a supervisor's projected token is checked before it gets a session",
  },
  {
    group: "node.k8s.io",
    resources: ["runtimeclasses"],
    verbs: ["list", "watch"],
    why: "a RuntimeClass that is missing is refused before anything is made; its overhead is a tolerated change",
  },
  {
    group: "scheduling.k8s.io",
    resources: ["priorityclasses"],
    verbs: ["list", "watch"],
    why: "an admitted priority is compared with its class",
  },
  {
    group: "",
    resources: ["nodes"],
    verbs: ["list"],
    why: "allocatable GPUs are checked when a sandbox asks for one",
  },
];
