/**
 * Every name that the chart, the driver and the two programs of a pair agree on: labels, annotations, ports, paths, names of objects.
 * Names of objects are at most 63 characters by construction; the lengths are counted beside each function and tested with the longest input.
 */

/** Labels of the objects that belong to a sandbox. `labels.ts` says which object carries which. */
export const labels = {
  /** Always `openshell`. */
  managedBy: "openshell.ai/managed-by",
  /** The gateway an object belongs to; informers and sweeps select by it. */
  gatewayId: "openshell.ai/gateway-id",
  sandboxId: "openshell.ai/sandbox-id",
  workspace: "openshell.ai/workspace",
  /** The generation; the two Pods of one pair share it. */
  pairId: "openshell.ai/pair-id",
  /** `workload` or `supervisor`. */
  boundaryRole: "openshell.ai/boundary-role",
  appName: "app.kubernetes.io/name",
  appComponent: "app.kubernetes.io/component",
  appManagedBy: "app.kubernetes.io/managed-by",
} as const;

/** Value of `managed-by`, `app.kubernetes.io/name` and `app.kubernetes.io/managed-by`. */
export const managedByValue = "openshell";

export type BoundaryRole = "workload" | "supervisor";

export const annotations = {
  /** On the CR: the generation record, versioned JSON without secrets. */
  generation: "openshell.ai/generation",
  /** On a Pod, written in the same patch that opens its gate: the UID of the other Pod of the pair. */
  peerUid: "openshell.ai/peer-uid",
  /** On a Pod, written with the former: what nobody but the gateway can write there. */
  releaseSeal: "openshell.ai/release-seal",
  /** On the CR: touched to wake the Agent Sandbox controller from its back-off. */
  nudge: "openshell.ai/nudge",
} as const;

/** The scheduling gate that both Pods are born with. */
export const bootstrapGate = "openshell.ai/bootstrap";

export const ports = {
  gateway: 8080,
  gatewayHealth: 8081,
  gatewayMetrics: 9090,
  /** Default of `sandbox_runtime.boundary_port`. */
  boundary: 5500,
} as const;

/** Name of the boundary Service's port. */
export const boundaryPortName = "boundary";

export const containers = {
  /** The workload Pod's main container; PID 1 is the runtime. */
  agent: "agent",
  stage: "stage",
  seed: "seed",
  supervisor: "supervisor",
} as const;

export const volumes = {
  /** The name of the CR's only volume claim template; the PVC is `workspace-<CR name>`. */
  workspace: "workspace",
  runtime: "openshell-runtime",
  runtimeImage: "openshell-runtime-image",
  identity: "openshell-identity",
  workloadSecret: "openshell-workload",
  supervisorSecret: "openshell-supervisor",
  token: "openshell-token",
  tmp: "tmp",
} as const;

/** Paths inside the containers of the two Pods. */
export const paths = {
  /** The staged, relocatable runtime bundle. */
  runtime: "/openshell",
  /** Memory-backed; holds the identity files until the runtime has read and unlinked them. */
  identity: "/run/openshell/identity",
  /** The workload Secret, in `stage` only. */
  workloadSecret: "/etc/openshell/workload",
  supervisorSecret: "/etc/openshell/supervisor",
  /** Folder of the projected ServiceAccount token; the file is `token`. */
  tokenFolder: "/var/run/secrets/openshell",
  /** The agent's home and working directory, `data/` of the PVC. */
  workspace: "/sandbox",
  /** The PVC's root, in `seed` only. */
  workspaceRoot: "/openshell-workspace",
  workspaceDataFolder: "data",
  /** Where the runtime image keeps the bundle that `stage` copies. */
  runtimeBundle: "/opt/openshell",
} as const;

/** Files of the workload Secret. */
export const workloadSecretFiles = {
  certificate: "tls.crt",
  key: "tls.key",
  generationPublicKey: "generation.pub",
  boundaryCa: "boundary-ca.crt",
  identity: "identity.json",
} as const;

/** Files of the supervisor Secret. */
export const supervisorSecretFiles = {
  grant: "grant.jwt",
  certificate: "tls.crt",
  key: "tls.key",
  boundaryCa: "boundary-ca.crt",
  gatewayCa: "gateway-ca.crt",
} as const;

/** DNS name in the runtime's boundary certificate. */
export function runtimeServerName(generationId: string): string {
  return `runtime.${generationId}.openshell.internal`;
}

/** Audience of the supervisor's projected token. */
export function tokenAudience(gatewayId: string): string {
  return `openshell-gateway:${gatewayId}`;
}

/** Longest name of a sandbox or a workspace that the public API accepts. */
export const maxPublicNameLength = 19;
/** A UUID. */
export const maxSandboxIdLength = 36;
/** 128 bits as lower-case hex. */
export const generationIdLength = 32;

/** Grammar of a sandbox id: it is a label value and part of Pod names. */
export const sandboxIdPattern = /^[a-z0-9](?:[a-z0-9-]{0,34}[a-z0-9])?$/;
/** Grammar of sandbox and workspace names: a DNS label without `--`, so that a joined name has one reading only. */
export const publicNamePattern = /^(?!.*--)[a-z0-9](?:[a-z0-9-]{0,17}[a-z0-9])?$/;

/** CR, workload Pod and host name in shared mode. 19 + 2 + 19 = 40; the PVC `workspace-…` 50. */
export function sandboxResourceName(workspace: string, name: string): string {
  return `${workspace}--${name}`;
}

/** 14 + 36 + 2 + 10 = 62. Session 1 has no suffix, so that a sandbox's first supervisor is found by its id alone. */
export function supervisorPodName(sandboxId: string, session: number): string {
  return session === 1 ? `os-supervisor-${sandboxId}` : `os-supervisor-${sandboxId}-s${session}`;
}

/** Whether a name is that of a supervisor Pod of the sandbox, of any session. */
export function isSupervisorPodName(name: string, sandboxId: string): boolean {
  const first = supervisorPodName(sandboxId, 1);
  return name === first || (name.startsWith(first) && /^-s\d+$/.test(name.slice(first.length)));
}

/** 12 + 36 = 48; a DNS-1035 label whatever the id begins with. */
export function boundaryServiceName(sandboxId: string): string {
  return `os-boundary-${sandboxId}`;
}

/** 12 + 32 = 44. */
export function workloadSecretName(generationId: string): string {
  return `os-workload-${generationId}`;
}

/** 14 + 32 + 2 + 10 = 58. */
export function supervisorSecretName(generationId: string, session: number): string {
  return `os-supervisor-${generationId}-s${session}`;
}

/** The namespace's two policies; one pair a gateway, since two gateways may share a namespace. 21 + 33 = 54. */
export function networkPolicyName(role: BoundaryRole, gatewayId: string): string {
  return `openshell-${role}-${gatewayId}`;
}

/** Namespace of a workspace in managed mode. 10 + 33 + 1 + 19 = 63. */
export function managedNamespaceName(gatewayId: string, workspace: string): string {
  return `openshell-${gatewayId}-${workspace}`;
}

/** The ClusterRole that the chart makes and that is bound in each namespace of a workspace (managed, operator). 20 + 33 = 53. */
export function workspaceRoleName(gatewayId: string): string {
  return `openshell-workspace-${gatewayId}`;
}

/** The RoleBinding to it, in each such namespace; one that the gateway makes ends in `-` and 8 hex digits of its subject. 17 + 33 + 9 = 59. */
export function workspaceBindingName(gatewayId: string): string {
  return `openshell-driver-${gatewayId}`;
}

/** Held by the one driver that writes. 17 + 33 = 50. */
export function driverLeaseName(gatewayId: string): string {
  return `openshell-driver-${gatewayId}`;
}

/** Host name by which a supervisor reaches its workload, in the search-free form. */
export function boundaryHost(sandboxId: string, namespace: string): string {
  return `${boundaryServiceName(sandboxId)}.${namespace}.svc`;
}

export function pvcName(sandboxResource: string): string {
  return `${volumes.workspace}-${sandboxResource}`;
}
