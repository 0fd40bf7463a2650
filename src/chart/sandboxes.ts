import type * as k8s from "cdk8s-plus-28/lib/imports/k8s.js";
import { Construct } from "constructs";
import { values } from "./_values.ts";
import { and, entries, HelmObject, helm, notEqual, render } from "./layer/index.ts";
import { names, objectLabels, sandboxNamespace } from "./names.ts";
import { unlessEmpty } from "./pods.ts";

const labels = objectLabels("sandbox");

/** The namespace of all sandboxes: apart from the gateway and its keys, and kept on uninstall with what is in it (decision 39). */
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
            ...entries(values.sandboxNamespace.labels),
            ...labels,
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

/** The ServiceAccount of both Pods of a pair. Nothing is bound to it. */
export class SandboxServiceAccount extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    new HelmObject<k8s.KubeServiceAccountProps>(this, "service-account", {
      apiVersion: "v1",
      kind: "ServiceAccount",
      when: values.sandboxServiceAccount.create,
      manifest: {
        metadata: {
          name: render(names.sandboxServiceAccount),
          namespace: render(sandboxNamespace),
          labels,
          annotations: unlessEmpty(values.sandboxServiceAccount.annotations),
        },
        automountServiceAccountToken: false,
      },
    });
  }
}
