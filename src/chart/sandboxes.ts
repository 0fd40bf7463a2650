import type * as k8s from "cdk8s-plus-28/lib/imports/k8s.js";
import { Construct } from "constructs";
import { reservedPrefixes } from "../config/index.ts";
import type { AdmissionPolicyBindingProps, AdmissionPolicyProps } from "./_admission-policy.ts";
import { type ChartGuard, isEmpty } from "./_guard.ts";
import { values } from "./_values.ts";
import { boundsGuards } from "./bounds.ts";
import { effective } from "./gateway-toml.ts";
import { and, call, HelmObject, helm, not, notEqual, or, render, text, toJson } from "./layer/index.ts";
import { fullname, names, objectLabels, sandboxNamespace } from "./names.ts";
import { unlessEmpty } from "./pods.ts";
import { ServiceAccount } from "./service-account.ts";

const labels = objectLabels("sandbox");
const { resourceQuota, limitRange, admissionPolicy } = values;

/** Bounds that make the cluster refuse every container which does not say its share, and the setting that says it for both Pods. */
const countedResources = [
  ["limits.cpu", "limits", "cpu", "default"],
  ["limits.memory", "limits", "memory", "default"],
  ["requests.cpu", "requests", "cpu", "defaultRequest"],
  ["requests.memory", "requests", "memory", "defaultRequest"],
] as const;

export const sandboxGuards: readonly ChartGuard[] = [
  ...boundsGuards(values),
  ...countedResources.map(
    ([bound, part, resource, fallback]): ChartGuard => ({
      refusedWhen: and(
        resourceQuota.enabled,
        call("hasKey", resourceQuota.hard, bound),
        not(and(limitRange.enabled, call("hasKey", limitRange[fallback], resource))),
        or(
          ...(["supervisor_resources", "workload_resources"] as const).map((pod) =>
            // A limit is a request too, where no request is given.
            and(
              ...[...new Set([part, "limits"])].map((kind) =>
                isEmpty(call("toString", effective(`openshell.drivers.kubernetes.${pod}.${kind}.${resource}`))),
              ),
            ),
          ),
        ),
      ),
      sentence: `resourceQuota.hard bounds ${bound}, so the cluster refuses every container without it: set ${part}.${resource} of supervisor_resources and of workload_resources in gatewayConfig, or limitRange.enabled with limitRange.${fallback}.${resource}`,
    }),
  ),
  {
    refusedWhen: and(admissionPolicy.enabled, isEmpty(admissionPolicy.agentSandboxUsers)),
    sentence:
      "admissionPolicy.enabled would refuse every workload Pod: name the Agent Sandbox controller's user in admissionPolicy.agentSandboxUsers",
  },
];

/** The namespace of all sandboxes: apart from the gateway and its keys, and kept on uninstall with what is in it. */
export class SandboxNamespace extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    const level = render(values.sandboxNamespace.podSecurity);
    new HelmObject<k8s.KubeNamespaceProps>(this, "namespace", {
      apiVersion: "v1",
      kind: "Namespace",
      when: and(values.sandboxNamespace.create, notEqual(sandboxNamespace, helm.releaseNamespace)),
      manifest: {
        metadata: {
          name: render(sandboxNamespace),
          labels: {
            ...objectLabels("sandbox", values.sandboxNamespace.labels),
            "pod-security.kubernetes.io/enforce": level,
            "pod-security.kubernetes.io/warn": level,
            "pod-security.kubernetes.io/audit": level,
          },
          annotations: { "helm.sh/resource-policy": "keep" },
        },
      },
    });
  }
}

/** Of the objects that bound the sandboxes' namespace. */
export const sandboxMetadata = {
  name: render(text`${fullname}-sandboxes`),
  namespace: render(sandboxNamespace),
  labels,
} as const;

/** The ServiceAccount of both Pods of a pair. Nothing is bound to it. */
export class SandboxServiceAccount extends ServiceAccount {
  constructor(scope: Construct, id: string) {
    super(scope, id, {
      when: values.sandboxServiceAccount.create,
      metadata: {
        name: render(names.sandboxServiceAccount),
        namespace: render(sandboxNamespace),
        labels,
        annotations: unlessEmpty(values.sandboxServiceAccount.annotations),
      },
    });
  }
}

/**
 * Whoever may patch Pods could move one into or out of the fences by its labels (measured: taking the role away opened a workload's egress
 * in four seconds). This lets nobody but the gateway and the Agent Sandbox controller write them.
 */
export class SandboxLabelsPolicy extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    const apiVersion = "admissionregistration.k8s.io/v1";
    const metadata = { name: render(text`${fullname}-labels-${helm.releaseNamespace}`), labels };
    const gateway = text`system:serviceaccount:${helm.releaseNamespace}:${names.gatewayServiceAccount}`;
    const writers = toJson(call("prepend", admissionPolicy.agentSandboxUsers, gateway));
    const isOurs = `${JSON.stringify(reservedPrefixes)}.exists(prefix, key.startsWith(prefix))`;
    const keeps = (one: string, other: string) =>
      `variables.${one}.all(key, !${isOurs} || (key in variables.${other} && variables.${other}[key] == variables.${one}[key]))`;
    new HelmObject<AdmissionPolicyProps>(this, "policy", {
      apiVersion,
      kind: "ValidatingAdmissionPolicy",
      when: admissionPolicy.enabled,
      manifest: {
        metadata,
        spec: {
          failurePolicy: "Fail",
          matchConstraints: {
            namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": render(sandboxNamespace) } },
            resourceRules: [
              { apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["pods"] },
            ],
          },
          matchConditions: [
            { name: "not-a-writer", expression: render(text`!(request.userInfo.username in ${writers})`) },
          ],
          variables: [
            { name: "before", expression: "oldObject == null ? {} : oldObject.metadata.?labels.orValue({})" },
            { name: "after", expression: "object.metadata.?labels.orValue({})" },
          ],
          validations: [
            {
              expression: `${keeps("before", "after")} && ${keeps("after", "before")}`,
              message: `labels under ${reservedPrefixes.join(", ")} of a Pod are written by OpenShell's gateway and Agent Sandbox only`,
              reason: "Forbidden",
            },
          ],
        },
      },
    });
    new HelmObject<AdmissionPolicyBindingProps>(this, "binding", {
      apiVersion,
      kind: "ValidatingAdmissionPolicyBinding",
      when: admissionPolicy.enabled,
      manifest: { metadata, spec: { policyName: metadata.name, validationActions: ["Deny"] } },
    });
  }
}
