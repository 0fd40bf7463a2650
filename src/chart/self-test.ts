import type * as k8s from "cdk8s-plus-28/lib/imports/k8s.js";
import { Construct } from "constructs";
import { ports } from "../manifests/names.ts";
import { once, values } from "./_values.ts";
import { mayLackInternalNames, verifiedHost } from "./endpoint.ts";
import { effective, gatewayId } from "./gateway-toml.ts";
import { gatewayPullPolicy, images } from "./images.ts";
import {
  and,
  call,
  type Expr,
  each,
  forEach,
  HelmObject,
  helm,
  not,
  optional,
  render,
  text,
  variable,
  when,
} from "./layer/index.ts";
import { names, objectLabels, sandboxNamespace, secretName, secrets, selectorLabels, serviceHost } from "./names.ts";
import { containerSecurity, pod, port, resources } from "./pods.ts";

const namespace = render(helm.releaseNamespace);
const authority = "/etc/openshell-tls/authority";
const hasTls = not(values.server.disableTls);

const driver = "openshell.drivers.kubernetes";
const mode = effective<string>(`${driver}.workspace_mode`);
const operatorLabel = effective<string>(`${driver}.operator_namespace_label`);
const operatorFile = effective<string>(`${driver}.operator_namespace_file`);

function testHook(weight: number, deletePolicy: string): Record<string, string> {
  return {
    "helm.sh/hook": "test",
    "helm.sh/hook-weight": String(weight),
    "helm.sh/hook-delete-policy": deletePolicy,
  };
}

/** Whether an operator's mount holds the list of namespaces: the test reads the file that the gateway reads. */
const holdsList = (mount: Expr<Record<string, unknown>>) => {
  const path = call<string>("trimSuffix", "/", call("toString", call("get", mount, "mountPath")));
  return and(operatorFile, call("hasPrefix", text`${path}/`, text`${operatorFile}/`));
};

const found = variable<readonly unknown[]>("listVolumes", call("list"));
const listVolumes = once("listVolumes", found, [
  found.declaration,
  forEach<number, Record<string, unknown>>(values.extraVolumeMounts, (mount) => [
    when(holdsList(mount), [found.assign(call("append", found, call("get", mount, "name")))]),
  ]),
]);

const isListVolume = (volume: Expr<Record<string, unknown>>) => call("has", call("get", volume, "name"), listVolumes);
/** An entry of a list of values as the entry of a manifest. */
const of = <T>(entry: Expr<Record<string, unknown>>) => render(entry) as unknown as T;

/** What the Pod that reviews rights is told of the settings. */
const review = [
  render(text`--namespace=${sandboxNamespace}`),
  render(text`--gateway-id=${gatewayId}`),
  render(text`--workspace-mode=${mode}`),
  optional(operatorLabel, render(text`--operator-namespace-label=${operatorLabel}`)),
  optional(operatorFile, render(text`--operator-namespace-file=${operatorFile}`)),
];

/**
 * `helm test`. One Pod, as the gateway's ServiceAccount, asks for the gateway's health and certificate and reviews the driver's rights. Another
 * one, which a NetworkPolicy lets reach the gateway's port and nothing else, shows that the cluster enforces policies: the gateway's health
 * port is open, or it would not be ready, and must be closed to that Pod.
 */
export class GatewaySelfTest extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    this.pod("pod", "test", review, true);
    this.fencePolicy();
    this.directService();
    const direct = text`${names.test}.${helm.releaseNamespace}.svc`;
    this.pod("fence-pod", "test-fence", [render(text`--fenced=${direct}:${values.service.healthPort}`)], false);
  }

  private pod(id: string, component: "test" | "test-fence", args: readonly string[], asGateway: boolean): void {
    new HelmObject<k8s.KubePodProps>(this, id, {
      apiVersion: "v1",
      kind: "Pod",
      when: values.selfTest.enabled,
      manifest: {
        metadata: {
          name: render(names[component]),
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
          ...pod,
          containers: [
            {
              name: "selftest",
              image: render(images.gateway),
              imagePullPolicy: render(gatewayPullPolicy),
              args: [
                "selftest",
                render(text`--endpoint=${serviceHost}:${values.service.port}`),
                optional(hasTls, "--tls"),
                optional(mayLackInternalNames, render(text`--server-name=${verifiedHost}`)),
                optional(hasTls, `--ca=${authority}/ca.crt`),
                ...args,
              ],
              resources: resources(values.pkiInitJob.resources),
              securityContext: containerSecurity,
              volumeMounts: [
                optional(hasTls, { name: "authority", mountPath: authority, readOnly: true }),
                ...(asGateway
                  ? [each(values.extraVolumeMounts, (mount) => optional(holdsList(mount), of<k8s.VolumeMount>(mount)))]
                  : []),
              ],
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
            ...(asGateway
              ? [each(values.extraVolumes, (volume) => optional(isListVolume(volume), of<k8s.Volume>(volume)))]
              : []),
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
          name: render(names.test),
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
          name: render(names["test-fence"]),
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
              // 5353 is where OpenShift's DNS Pods listen: its network plugin judges what a connection to the Service became.
              ports: [53, 5353].flatMap((number) =>
                ["UDP", "TCP"].map((protocol) => ({ port: port(number), protocol })),
              ),
            },
            {
              to: [{ podSelector: { matchLabels: selectorLabels("gateway") } }],
              // A policy is about the Pod's port, whatever the Service's is.
              ports: [{ port: port(ports.gateway), protocol: "TCP" }],
            },
          ],
        },
      },
    });
  }
}
