import type { KubeObject } from "../../src/kube/index.ts";
import {
  managedNamespacesPolicySpec,
  type Permission,
  workspaceModePermissions,
  workspaceNamespacePermissions,
  workspaceRoleName,
} from "../../src/manifests/index.ts";
import type { Release } from "./release.ts";

const rbac = "rbac.authorization.k8s.io";
const admission = "admissionregistration.k8s.io/v1";

/** What a gateway needs in the cluster for a workspace mode, from the driver's own tables. */
export function workspaceRights(
  release: Release,
  gatewayId: string,
  mode: "managed" | "operator",
): readonly (KubeObject & object)[] {
  const metadata = { name: `${release.name}-${mode}-${release.namespace}` };
  const rules = (table: readonly Permission[]) =>
    table.map(({ group, resources, verbs, names }) => ({
      apiGroups: [group],
      resources,
      verbs,
      ...(names && { resourceNames: names(gatewayId) }),
    }));
  const username = `system:serviceaccount:${release.namespace}:${release.name}`;
  const objects: object[] = [
    {
      apiVersion: `${rbac}/v1`,
      kind: "ClusterRole",
      metadata: { name: workspaceRoleName(gatewayId) },
      rules: rules(workspaceNamespacePermissions),
    },
    { apiVersion: `${rbac}/v1`, kind: "ClusterRole", metadata, rules: rules(workspaceModePermissions[mode]) },
    {
      apiVersion: `${rbac}/v1`,
      kind: "ClusterRoleBinding",
      metadata,
      roleRef: { apiGroup: rbac, kind: "ClusterRole", name: metadata.name },
      subjects: [{ kind: "ServiceAccount", name: release.name, namespace: release.namespace }],
    },
    ...(mode === "managed"
      ? [
          {
            apiVersion: admission,
            kind: "ValidatingAdmissionPolicy",
            metadata,
            spec: managedNamespacesPolicySpec({ gatewayId, username }),
          },
          {
            apiVersion: admission,
            kind: "ValidatingAdmissionPolicyBinding",
            metadata,
            spec: { policyName: metadata.name, validationActions: ["Deny"] },
          },
        ]
      : []),
  ];
  return objects as (KubeObject & object)[];
}
