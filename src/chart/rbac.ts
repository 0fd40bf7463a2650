import type * as k8s from "cdk8s-plus-28/lib/imports/k8s.js";
import { Construct } from "constructs";
import { clusterPermissions, type Permission, sandboxNamespacePermissions } from "../manifests/permissions.ts";
import { values } from "./_values.ts";
import { gatewayId } from "./gateway-toml.ts";
import { HelmObject, helm, render, text } from "./layer/index.ts";
import { names, objectLabels, sandboxNamespace } from "./names.ts";

const labels = objectLabels("gateway");
const apiGroup = "rbac.authorization.k8s.io";
const apiVersion = `${apiGroup}/v1`;

/** Stands for the gateway's id where a name is put together; no name contains it. */
const placeholder = "\0";

/** A name as the driver puts it together. */
function withGatewayId(name: string): string {
  const [before = "", after = ""] = name.split(placeholder);
  return render(text`${before}${gatewayId}${after}`);
}

function rules(of: readonly Permission[]): k8s.PolicyRule[] {
  return of.map(({ group, resources, verbs, names: confined }) => ({
    apiGroups: [group],
    resources: [...resources],
    ...(confined === undefined ? {} : { resourceNames: confined(placeholder).map(withGatewayId) }),
    verbs: [...verbs],
  }));
}

/** The driver's rights: exactly the table of src/manifests, in the sandboxes' namespace and, for what has no namespace, in the cluster. */
export class DriverRights extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    const subjects: k8s.Subject[] = [
      { kind: "ServiceAccount", name: render(names.gatewayServiceAccount), namespace: render(helm.releaseNamespace) },
    ];
    const when = values.rbac.create;
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
      manifest: { metadata: clusterMetadata, rules: rules(clusterPermissions) },
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
