import { createHash } from "node:crypto";
import { k8s } from "cdk8s-plus-28";
import type { Construct } from "constructs";
import type { KubernetesSettings } from "../config/index.ts";
import { workspaceNamespaceLabels } from "./labels.ts";
import { managedNamespaceName, workspaceBindingName, workspaceRoleName } from "./names.ts";

export interface WorkspaceProps {
  readonly gatewayId: string;
  readonly workspace: string;
}

export interface WorkspaceNamespaceProps extends WorkspaceProps {
  readonly settings: KubernetesSettings["managed_namespaces"];
}

/** The namespace of one workspace, where the gateway makes them (`workspace_mode = "managed"`). */
export class WorkspaceNamespace extends k8s.KubeNamespace {
  constructor(scope: Construct, id: string, { gatewayId, workspace, settings }: WorkspaceNamespaceProps) {
    const { pod_security: level, labels, annotations } = settings;
    super(scope, id, {
      metadata: {
        name: managedNamespaceName(gatewayId, workspace),
        labels: {
          ...labels,
          ...workspaceNamespaceLabels(gatewayId, workspace),
          "pod-security.kubernetes.io/enforce": level,
          "pod-security.kubernetes.io/warn": level,
          "pod-security.kubernetes.io/audit": level,
        },
        annotations,
      },
    });
  }
}

/** Who a RoleBinding is for. */
export interface Subject {
  readonly kind: "ServiceAccount" | "User";
  readonly name: string;
  readonly namespace?: string;
  readonly apiGroup?: string;
}

export interface WorkspaceRoleBindingProps extends WorkspaceProps {
  readonly namespace: string;
  readonly subject: Subject;
}

/** The gateway's rights in one namespace: the chart's fixed ClusterRole, which reaches nothing without such a binding. */
export class WorkspaceRoleBinding extends k8s.KubeRoleBinding {
  constructor(scope: Construct, id: string, { gatewayId, workspace, namespace, subject }: WorkspaceRoleBindingProps) {
    super(scope, id, {
      metadata: {
        // A binding's subject is changed by nobody who may only create: another account's is another binding.
        name: `${workspaceBindingName(gatewayId)}-${createHash("sha256")
          .update(JSON.stringify([subject.kind, subject.namespace, subject.name]))
          .digest("hex")
          .slice(0, 8)}`,
        namespace,
        labels: workspaceNamespaceLabels(gatewayId, workspace),
      },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: workspaceRoleName(gatewayId) },
      subjects: [subject],
    });
  }
}

export interface WorkspaceServiceAccountProps extends WorkspaceProps {
  readonly namespace: string;
  readonly name: string;
}

/** Of both Pods of a pair. Nothing is bound to it. */
export class WorkspaceServiceAccount extends k8s.KubeServiceAccount {
  constructor(scope: Construct, id: string, { gatewayId, workspace, namespace, name }: WorkspaceServiceAccountProps) {
    super(scope, id, {
      metadata: { name, namespace, labels: workspaceNamespaceLabels(gatewayId, workspace) },
      automountServiceAccountToken: false,
    });
  }
}
