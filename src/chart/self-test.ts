import type * as k8s from "cdk8s-plus-28/lib/imports/k8s.js";
import { Construct } from "constructs";
import { values } from "./_values.ts";
import { gatewayId } from "./gateway-toml.ts";
import { images, pullPolicy } from "./images.ts";
import { HelmObject, helm, not, optional, render, text } from "./layer/index.ts";
import { fullname, names, objectLabels, sandboxNamespace, secretName, secrets, selectorLabels } from "./names.ts";
import { containerSecurity, placement, podSecurity, port, resources } from "./pods.ts";

const namespace = render(helm.releaseNamespace);
const authority = "/etc/openshell-tls/authority";
const hasTls = not(values.server.disableTls);

function testHook(weight: number, deletePolicy: string): Record<string, string> {
  return {
    "helm.sh/hook": "test",
    "helm.sh/hook-weight": String(weight),
    "helm.sh/hook-delete-policy": deletePolicy,
  };
}

/**
 * `helm test`. One Pod, as the gateway's ServiceAccount, asks for the gateway's health and certificate and reviews the driver's rights. Another
 * one, which a NetworkPolicy lets reach the gateway's port and nothing else, shows that the cluster enforces policies: the gateway's health
 * port is open, or it would not be ready, and must be closed to that Pod.
 */
export class GatewaySelfTest extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    this.pod(
      "pod",
      "test",
      [render(text`--namespace=${sandboxNamespace}`), render(text`--gateway-id=${gatewayId}`)],
      true,
    );
    this.fencePolicy();
    this.directService();
    const direct = text`${fullname}-test.${helm.releaseNamespace}.svc.cluster.local`;
    this.pod("fence-pod", "test-fence", [render(text`--fenced=${direct}:${values.service.healthPort}`)], false);
  }

  private pod(id: string, component: "test" | "test-fence", args: readonly string[], asGateway: boolean): void {
    const service = text`${fullname}.${helm.releaseNamespace}.svc.cluster.local`;
    new HelmObject<k8s.KubePodProps>(this, id, {
      apiVersion: "v1",
      kind: "Pod",
      when: values.selfTest.enabled,
      manifest: {
        metadata: {
          name: render(text`${fullname}-${component}`),
          namespace,
          labels: objectLabels(component),
          // It stays until the next test, for helm test --logs.
          annotations: testHook(0, "before-hook-creation"),
        },
        spec: {
          restartPolicy: "Never",
          serviceAccountName: asGateway ? render(names.gatewayServiceAccount) : "default",
          automountServiceAccountToken: asGateway,
          enableServiceLinks: false,
          activeDeadlineSeconds: 120,
          securityContext: podSecurity,
          ...placement(),
          containers: [
            {
              name: "selftest",
              image: render(images.gateway),
              imagePullPolicy: render(pullPolicy(values.gateway.image)),
              args: [
                "selftest",
                render(text`--endpoint=${service}:${values.service.port}`),
                optional(hasTls, "--tls"),
                optional(hasTls, `--ca=${authority}/ca.crt`),
                ...args,
              ],
              resources: resources(values.pkiInitJob.resources),
              securityContext: containerSecurity,
              volumeMounts: [optional(hasTls, { name: "authority", mountPath: authority, readOnly: true })],
            },
          ],
          volumes: [
            // A public issuer leaves no ca.crt: the test then asks the authorities that everyone knows.
            optional(hasTls, {
              name: "authority",
              secret: {
                secretName: render(secretName(secrets.serverTls)),
                optional: true,
                defaultMode: 0o440,
                items: [{ key: "ca.crt", path: "ca.crt" }],
              },
            }),
          ],
        },
      },
    });
  }

  /** The name of the gateway's Pod itself, with every port it has. */
  private directService(): void {
    new HelmObject<k8s.KubeServiceProps>(this, "service", {
      apiVersion: "v1",
      kind: "Service",
      when: values.selfTest.enabled,
      manifest: {
        metadata: {
          name: render(text`${fullname}-test`),
          namespace,
          labels: objectLabels("test"),
          annotations: testHook(-10, "before-hook-creation,hook-succeeded,hook-failed"),
        },
        spec: {
          // The L1 type calls it clusterIp, which the API server does not know.
          ...({ clusterIP: "None" } as k8s.ServiceSpec),
          ports: [{ name: "health", port: render(values.service.healthPort), protocol: "TCP" }],
          selector: selectorLabels("gateway"),
        },
      },
    });
  }

  private fencePolicy(): void {
    new HelmObject<k8s.KubeNetworkPolicyProps>(this, "policy", {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      when: values.selfTest.enabled,
      manifest: {
        metadata: {
          name: render(text`${fullname}-test-fence`),
          namespace,
          labels: objectLabels("test-fence"),
          annotations: testHook(-10, "before-hook-creation,hook-succeeded,hook-failed"),
        },
        spec: {
          podSelector: { matchLabels: selectorLabels("test-fence") },
          policyTypes: ["Ingress", "Egress"],
          ingress: [],
          egress: [
            {
              ports: [
                { port: port(53), protocol: "UDP" },
                { port: port(53), protocol: "TCP" },
              ],
            },
            {
              to: [{ podSelector: { matchLabels: selectorLabels("gateway") } }],
              ports: [{ port: port(values.service.port), protocol: "TCP" }],
            },
          ],
        },
      },
    });
  }
}
