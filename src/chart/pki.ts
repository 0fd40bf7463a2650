import type * as k8s from "cdk8s-plus-28/lib/imports/k8s.js";
import { Construct } from "constructs";
import { values } from "./_values.ts";
import { effective } from "./gateway-toml.ts";
import { images, pullPolicy } from "./images.ts";
import { type Expr, each, HelmObject, helm, optional, render, text } from "./layer/index.ts";
import { fullname, names, objectLabels, secrets } from "./names.ts";
import { containerSecurity, placement, podSecurity, quantity, resources } from "./pods.ts";

const namespace = render(helm.releaseNamespace);
const labels = objectLabels("pki");
const rbacGroup = "rbac.authorization.k8s.io";

/** Annotations of an object that exists only while Helm installs or upgrades. */
function hook(weight: number, deletePolicy: string): Record<string, string> {
  return {
    "helm.sh/hook": "pre-install,pre-upgrade",
    "helm.sh/hook-weight": String(weight),
    "helm.sh/hook-delete-policy": deletePolicy,
  };
}

/**
 * The hook that converges certificates and keys before anything needs them (decision 11). It has a ServiceAccount of its own: what may
 * write the gateway's keys is never what serves users.
 */
export class PkiHook extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    this.rights();
    new HelmObject<k8s.KubeJobProps>(this, "job", {
      apiVersion: "batch/v1",
      kind: "Job",
      when: values.pkiInitJob.enabled,
      manifest: {
        metadata: {
          name: render(names.pki),
          namespace,
          labels,
          annotations: hook(-20, "before-hook-creation,hook-succeeded"),
        },
        spec: {
          backoffLimit: 3,
          activeDeadlineSeconds: render(values.pkiInitJob.timeoutSeconds),
          ttlSecondsAfterFinished: 300,
          template: {
            metadata: { labels },
            spec: {
              restartPolicy: "Never",
              serviceAccountName: render(names.pki),
              automountServiceAccountToken: true,
              enableServiceLinks: false,
              securityContext: podSecurity,
              ...placement(),
              containers: [
                {
                  name: "pki",
                  image: render(images.gateway),
                  imagePullPolicy: render(pullPolicy(values.gateway.image)),
                  args: this.args(),
                  resources: resources(values.pkiInitJob.resources),
                  securityContext: containerSecurity,
                  volumeMounts: [{ name: "tmp", mountPath: "/tmp" }],
                },
              ],
              volumes: [{ name: "tmp", emptyDir: { sizeLimit: quantity("16Mi") } }],
            },
          },
        },
      },
    });
  }

  private args(): string[] {
    const dnsName = (name: Expr<string>) => render(text`--dns-name=${name}`);
    const service = text`${fullname}.${helm.releaseNamespace}`;
    return [
      "pki",
      "converge",
      render(text`--namespace=${helm.releaseNamespace}`),
      render(text`--prefix=${fullname}`),
      dnsName(fullname),
      dnsName(service),
      dnsName(text`${service}.svc`),
      dnsName(text`${service}.svc.cluster.local`),
      "--dns-name=localhost",
      each(effective<readonly string[]>("openshell.gateway.server_sans"), dnsName),
      each(values.pkiInitJob.serverDnsNames, dnsName),
      "--ip-address=127.0.0.1",
      each(values.pkiInitJob.serverIpAddresses, (address) => render(text`--ip-address=${address}`)),
      ...Object.values(secrets).map(({ made, given }) => optional(given, render(text`--skip=${made}`))),
    ];
  }

  private rights(): void {
    const metadata = {
      name: render(names.pki),
      namespace,
      labels,
      annotations: hook(-30, "before-hook-creation,hook-succeeded"),
    };
    const when = values.pkiInitJob.enabled;
    const apiVersion = `${rbacGroup}/v1`;
    new HelmObject<k8s.KubeServiceAccountProps>(this, "service-account", {
      apiVersion: "v1",
      kind: "ServiceAccount",
      when,
      manifest: { metadata, automountServiceAccountToken: false },
    });
    new HelmObject<k8s.KubeRoleProps>(this, "role", {
      apiVersion,
      kind: "Role",
      when,
      manifest: { metadata, rules: [{ apiGroups: [""], resources: ["secrets"], verbs: ["get", "create", "patch"] }] },
    });
    new HelmObject<k8s.KubeRoleBindingProps>(this, "role-binding", {
      apiVersion,
      kind: "RoleBinding",
      when,
      manifest: {
        metadata,
        roleRef: { apiGroup: rbacGroup, kind: "Role", name: metadata.name },
        subjects: [{ kind: "ServiceAccount", name: metadata.name, namespace }],
      },
    });
  }
}
