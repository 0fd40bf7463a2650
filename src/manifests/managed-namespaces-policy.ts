import { labels, managedNamespaceName, workspaceRoleName } from "./names.ts";

export interface ManagedNamespacesPolicyProps {
  /** It may be a template of the chart: nothing is made of it but longer text. */
  readonly gatewayId: string;
  /** `system:serviceaccount:<namespace>:<name>` of the gateway. */
  readonly username: string;
}

/**
 * RBAC cannot bound the names of what is created, so the rights of managed mode would reach every namespace of the cluster. This
 * ValidatingAdmissionPolicy (admissionregistration.k8s.io/v1) keeps the gateway to namespaces that carry its name and its label, and to
 * the one ClusterRole there.
 */
export function managedNamespacesPolicySpec({ gatewayId, username }: ManagedNamespacesPolicyProps): object {
  const prefix = managedNamespaceName(gatewayId, "");
  const isOurs = (object: string) =>
    `${object}.metadata.name.startsWith("${prefix}") && ${object}.metadata.?labels[?"${labels.gatewayId}"].orValue("") == "${gatewayId}"`;
  return {
    failurePolicy: "Fail",
    matchConstraints: {
      resourceRules: [
        { apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE", "UPDATE", "DELETE"], resources: ["namespaces"] },
        {
          apiGroups: ["rbac.authorization.k8s.io"],
          apiVersions: ["v1"],
          operations: ["CREATE", "UPDATE", "DELETE"],
          resources: ["rolebindings"],
        },
      ],
    },
    matchConditions: [{ name: "the-gateway", expression: `request.userInfo.username == "${username}"` }],
    variables: [{ name: "target", expression: "object == null ? oldObject : object" }],
    validations: [
      {
        expression: `request.resource.resource != "namespaces" || (${isOurs("variables.target")})`,
        message: `OpenShell's gateway makes and deletes only namespaces ${prefix}<workspace> with its label`,
        reason: "Forbidden",
      },
      {
        expression: `request.resource.resource != "rolebindings" || (${isOurs("namespaceObject")} && variables.target.roleRef.kind == "ClusterRole" && variables.target.roleRef.name == "${workspaceRoleName(gatewayId)}")`,
        message: `OpenShell's gateway binds only the ClusterRole ${workspaceRoleName(gatewayId)}, in its own namespaces`,
        reason: "Forbidden",
      },
    ],
  };
}
