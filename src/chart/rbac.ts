import type * as k8s from "cdk8s-plus-28/lib/imports/k8s.js";
import { Construct } from "constructs";
import { managedNamespacesPolicySpec } from "../manifests/managed-namespaces-policy.ts";
import { workspaceRoleName } from "../manifests/names.ts";
import {
  clusterPermissions,
  managedNamespaceExtras,
  operatorNamespacePermissions,
  type Permission,
  sandboxNamespacePermissions,
  workspaceModePermissions,
} from "../manifests/permissions.ts";
import type { AdmissionPolicyBindingProps, AdmissionPolicyProps } from "./_admission-policy.ts";
import { values } from "./_values.ts";
import { effective, gatewayId } from "./gateway-toml.ts";
import { and, type Expr, equal, HelmObject, helm, notEqual, optional, render, text } from "./layer/index.ts";
import { names, objectLabels, sandboxNamespace } from "./names.ts";

const labels = objectLabels("gateway");
const apiGroup = "rbac.authorization.k8s.io";
const apiVersion = `${apiGroup}/v1`;
const mode = effective<string>("openshell.drivers.kubernetes.workspace_mode");
const operatorLabel = effective<string>("openshell.drivers.kubernetes.operator_namespace_label");
const create = values.rbac.create;

/** Each stands for what only a rendering knows, where src/manifests puts names together; no name contains one. */
const placeholders: ReadonlyMap<string, Expr<string>> = new Map([
  ["\0id\0", gatewayId],
  ["\0user\0", text`system:serviceaccount:${helm.releaseNamespace}:${names.gatewayServiceAccount}`],
  ["\0level\0", effective<string>("openshell.drivers.kubernetes.managed_namespaces.pod_security")],
]);
const [idPlaceholder = "", userPlaceholder = "", levelPlaceholder = ""] = placeholders.keys();

/** A text of src/manifests with everything filled in. */
function filled(value: string): string {
  const parts = value.split(/(\0\w+\0)/);
  if (parts.length === 1) return value;
  const whole = parts.reduce<Expr<string>>((all, part) => text`${all}${placeholders.get(part) ?? part}`, text``);
  return render(whole);
}

function filledWithin<T>(value: T): T {
  if (typeof value === "string") return filled(value) as T;
  if (Array.isArray(value)) return value.map(filledWithin) as T;
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, filledWithin(inner)])) as T;
}

function rules(of: readonly Permission[]): k8s.PolicyRule[] {
  return of.map(({ group, resources, verbs, names: confined }) => ({
    apiGroups: [group],
    resources: [...resources],
    ...(confined === undefined ? {} : { resourceNames: confined(idPlaceholder).map(filled) }),
    verbs: [...verbs],
  }));
}

/** Where each workspace has a namespace of its own: the rights that are bound in each of them, and what bounds where. */
export class WorkspaceRights extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    new HelmObject<k8s.KubeClusterRoleProps>(this, "role", {
      apiVersion,
      kind: "ClusterRole",
      when: and(create, notEqual(mode, "shared")),
      manifest: {
        metadata: { name: filled(workspaceRoleName(idPlaceholder)), labels },
        rules: [
          ...rules(operatorNamespacePermissions),
          ...rules(managedNamespaceExtras).map((rule) => optional(equal(mode, "managed"), rule)),
        ],
      },
    });
    const admission = "admissionregistration.k8s.io/v1";
    const metadata = { name: render(text`${names.clusterRole}-namespaces`), labels };
    const spec = managedNamespacesPolicySpec({
      gatewayId: idPlaceholder,
      username: userPlaceholder,
      podSecurity: levelPlaceholder,
    });
    const when = and(create, equal(mode, "managed"));
    new HelmObject<AdmissionPolicyProps>(this, "policy", {
      apiVersion: admission,
      kind: "ValidatingAdmissionPolicy",
      when,
      manifest: { metadata, spec: filledWithin(spec) as AdmissionPolicyProps["spec"] },
    });
    new HelmObject<AdmissionPolicyBindingProps>(this, "binding", {
      apiVersion: admission,
      kind: "ValidatingAdmissionPolicyBinding",
      when,
      manifest: { metadata, spec: { policyName: metadata.name, validationActions: ["Deny"] } },
    });
  }
}

/** The driver's rights: exactly the table of src/manifests, in the sandboxes' namespace and, for what has no namespace, in the cluster. */
export class DriverRights extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    const subjects: k8s.Subject[] = [
      { kind: "ServiceAccount", name: render(names.gatewayServiceAccount), namespace: render(helm.releaseNamespace) },
    ];
    const when = create;
    const metadata = { name: render(names.driver), namespace: render(sandboxNamespace), labels };
    const clusterMetadata = { name: render(names.clusterRole), labels };
    new HelmObject<k8s.KubeRoleProps>(this, "role", {
      apiVersion,
      kind: "Role",
      when,
      manifest: { metadata, rules: rules(sandboxNamespacePermissions) },
    });
    new HelmObject<k8s.KubeRoleBindingProps>(this, "role-binding", {
      apiVersion,
      kind: "RoleBinding",
      when,
      manifest: { metadata, roleRef: { apiGroup, kind: "Role", name: metadata.name }, subjects },
    });
    new HelmObject<k8s.KubeClusterRoleProps>(this, "cluster-role", {
      apiVersion,
      kind: "ClusterRole",
      when,
      manifest: {
        metadata: clusterMetadata,
        rules: [
          ...rules(clusterPermissions),
          ...rules(workspaceModePermissions.managed).map((rule) => optional(equal(mode, "managed"), rule)),
          // A list in a file needs no watch of the cluster's namespaces.
          ...rules(workspaceModePermissions.operator).map((rule) => optional(operatorLabel, rule)),
        ],
      },
    });
    new HelmObject<k8s.KubeClusterRoleBindingProps>(this, "cluster-role-binding", {
      apiVersion,
      kind: "ClusterRoleBinding",
      when,
      manifest: {
        metadata: clusterMetadata,
        roleRef: { apiGroup, kind: "ClusterRole", name: clusterMetadata.name },
        subjects,
      },
    });
  }
}
