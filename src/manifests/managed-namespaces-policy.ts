import { labels, managedNamespaceName, workspaceRoleName } from "./names.ts";

export interface ManagedNamespacesPolicyProps {
  /** It may be a template of the chart: nothing is made of it but longer text. */
  readonly gatewayId: string;
  /** `system:serviceaccount:<namespace>:<name>` of the gateway. */
  readonly username: string;
  /** `managed_namespaces.pod_security`. */
  readonly podSecurity: string;
}

const enforce = "pod-security.kubernetes.io/enforce";

/**
 * RBAC cannot bound the names of what is created, so the rights of managed mode would reach every namespace of the cluster, and a namespace
 * without Pod Security is a way to every node. This ValidatingAdmissionPolicy (admissionregistration.k8s.io/v1) keeps the gateway to
 * namespaces that carry its name, its label and the configured level, and to bindings of the one ClusterRole there to nobody but itself.
 */
export function managedNamespacesPolicySpec({
  gatewayId,
  username,
  podSecurity,
}: ManagedNamespacesPolicyProps): object {
  const prefix = managedNamespaceName(gatewayId, "");
  const label = (key: string, otherwise: string) => `object.metadata.?labels[?"${key}"].orValue("${otherwise}")`;
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
        // One of a former level is deleted all the same.
        expression: `request.resource.resource != "namespaces" || object == null || (${label(enforce, "")} == "${podSecurity}" && ${label(`${enforce}-version`, "latest")} == "latest")`,
        message: `OpenShell's gateway makes namespaces of Pod Security level ${podSecurity} (managed_namespaces.pod_security) and no other`,
        reason: "Forbidden",
      },
      {
        expression: `request.resource.resource != "rolebindings" || (${isOurs("namespaceObject")} && variables.target.roleRef.kind == "ClusterRole" && variables.target.roleRef.name == "${workspaceRoleName(gatewayId)}")`,
        message: `OpenShell's gateway binds only the ClusterRole ${workspaceRoleName(gatewayId)}, in its own namespaces`,
        reason: "Forbidden",
      },
      {
        expression: `request.resource.resource != "rolebindings" || object == null || object.?subjects.orValue([]).all(subject, subject.kind == "ServiceAccount" ? "system:serviceaccount:" + subject.?namespace.orValue("") + ":" + subject.name == request.userInfo.username : subject.kind == "User" && subject.name == request.userInfo.username)`,
        message: "OpenShell's gateway gives rights to nobody but itself",
        reason: "Forbidden",
      },
    ],
  };
}
