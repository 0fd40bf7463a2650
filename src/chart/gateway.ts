import type * as k8s from "cdk8s-plus-28/lib/imports/k8s.js";
import { Construct } from "constructs";
import { ports } from "../manifests/names.ts";
import { values } from "./_values.ts";
import { files, mounts } from "./files.ts";
import { gatewayToml } from "./gateway-toml.ts";
import { gatewayPullPolicy, images } from "./images.ts";
import {
  and,
  call,
  choose,
  each,
  entries,
  HelmObject,
  helm,
  more,
  not,
  notEqual,
  optional,
  orElse,
  type Ref,
  render,
  renderLines,
} from "./layer/index.ts";
import { fullname, names, objectLabels, secretName, secrets, selectorLabels } from "./names.ts";
import { containerSecurity, pod, port, quantity, resources, secretVolume, unlessEmpty } from "./pods.ts";
import { ServiceAccount } from "./service-account.ts";
import type { ChartValues } from "./values-schema.ts";

const hasTls = not(values.server.disableTls);
const hasMetrics = more(values.service.metricsPort, 0);
const namespace = render(helm.releaseNamespace);
const labels = objectLabels("gateway");

/** gateway.toml. */
export class GatewayConfigMap extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    new HelmObject<k8s.KubeConfigMapProps>(this, "config", {
      apiVersion: "v1",
      kind: "ConfigMap",
      manifest: {
        metadata: { name: render(names.config), namespace, labels },
        data: { "gateway.toml": renderLines(gatewayToml) },
      },
    });
  }
}

/** The ServiceAccount that the driver's rights are bound to. */
export class GatewayServiceAccount extends ServiceAccount {
  constructor(scope: Construct, id: string) {
    super(scope, id, {
      when: values.serviceAccount.create,
      metadata: {
        name: render(names.gatewayServiceAccount),
        namespace,
        labels,
        annotations: unlessEmpty(values.serviceAccount.annotations),
      },
    });
  }
}

/** What users and supervisors connect to. */
export class GatewayService extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    const isReachableFromOutside = notEqual(values.service.type, "ClusterIP");
    new HelmObject<k8s.KubeServiceProps>(this, "service", {
      apiVersion: "v1",
      kind: "Service",
      manifest: {
        metadata: { name: render(fullname), namespace, labels, annotations: unlessEmpty(values.service.annotations) },
        spec: {
          type: render(values.service.type),
          externalTrafficPolicy: unlessEmpty(values.service.externalTrafficPolicy),
          loadBalancerClass: unlessEmpty(values.service.loadBalancerClass),
          loadBalancerSourceRanges: unlessEmpty(values.service.loadBalancerSourceRanges) as string[],
          ports: [
            {
              name: "grpc",
              port: render(values.service.port),
              targetPort: port("grpc"),
              protocol: "TCP",
              appProtocol: render(orElse(values.service.appProtocol, choose(hasTls, "https", "kubernetes.io/h2c"))),
              nodePort: optional(
                and(isReachableFromOutside, more(values.service.nodePort, 0)),
                render(values.service.nodePort),
              ),
            },
          ],
          selector: selectorLabels("gateway"),
        },
      },
    });
  }
}

/** What Prometheus scrapes: a Service of its own, because metrics are plain HTTP for everyone, and the other one may be open to the world. */
export class GatewayMetricsService extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    new HelmObject<k8s.KubeServiceProps>(this, "service", {
      apiVersion: "v1",
      kind: "Service",
      when: hasMetrics,
      manifest: {
        metadata: { name: render(names.metrics), namespace, labels: objectLabels("metrics") },
        spec: {
          type: "ClusterIP",
          ports: [
            {
              name: "metrics",
              port: render(values.service.metricsPort),
              targetPort: port("metrics"),
              protocol: "TCP",
              appProtocol: "http",
            },
          ],
          selector: selectorLabels("gateway"),
        },
      },
    });
  }
}

/** The volume of the store: an object of its own, because a claim template of a StatefulSet can never be changed. */
export class GatewayVolume extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    new HelmObject<k8s.KubePersistentVolumeClaimProps>(this, "volume", {
      apiVersion: "v1",
      kind: "PersistentVolumeClaim",
      when: call("empty", values.persistence.existingClaim),
      manifest: {
        metadata: {
          name: render(names.data),
          namespace,
          labels,
          annotations: { ...entries(values.persistence.annotations), "helm.sh/resource-policy": "keep" },
        },
        spec: {
          accessModes: [render(values.persistence.accessMode)],
          storageClassName: unlessEmpty(values.persistence.storageClassName),
          resources: { requests: { storage: quantity(values.persistence.size) } },
        },
      },
    });
  }
}

/** Lets nothing but the gateway's ports be reached. What the gateway itself reaches is the cluster's business. */
export class GatewayNetworkPolicy extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    new HelmObject<k8s.KubeNetworkPolicyProps>(this, "network-policy", {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      when: values.networkPolicy.enabled,
      manifest: {
        metadata: { name: render(fullname), namespace, labels },
        spec: {
          podSelector: { matchLabels: selectorLabels("gateway") },
          policyTypes: ["Ingress"],
          ingress: [
            {
              ports: [
                { port: port(ports.gateway), protocol: "TCP" },
                { port: port(values.service.healthPort), protocol: "TCP" },
                optional(hasMetrics, { port: port(values.service.metricsPort), protocol: "TCP" }),
              ],
            },
          ],
        },
      },
    });
  }
}

/** The gateway process. One replica: the store is a file. */
export class GatewayStatefulSet extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    new HelmObject<k8s.KubeStatefulSetProps>(this, "stateful-set", {
      apiVersion: "apps/v1",
      kind: "StatefulSet",
      manifest: {
        metadata: { name: render(fullname), namespace, labels },
        spec: {
          replicas: render(values.replicaCount),
          // In order, a Pod that never becomes ready would keep the controller from replacing it by one of a better revision.
          podManagementPolicy: "Parallel",
          serviceName: render(fullname),
          selector: { matchLabels: selectorLabels("gateway") },
          template: {
            metadata: {
              labels: objectLabels("gateway", values.podLabels),
              annotations: {
                ...entries(values.podAnnotations),
                // A changed configuration rolls the gateway.
                "checksum/gateway-config": render(call<string>("sha256sum", gatewayToml)),
              },
            },
            spec: {
              serviceAccountName: render(names.gatewayServiceAccount),
              automountServiceAccountToken: true,
              enableServiceLinks: false,
              terminationGracePeriodSeconds: render(values.terminationGracePeriodSeconds),
              ...pod,
              containers: [this.container()],
              volumes: this.volumes(),
            },
          },
        },
      },
    });
  }

  private container(): k8s.Container {
    const probe = (path: string, of: Ref<ChartValues["probes"]["startup"]>): k8s.Probe => ({
      httpGet: { path, port: port("health") },
      periodSeconds: render(of.periodSeconds),
      timeoutSeconds: render(of.timeoutSeconds),
      failureThreshold: render(of.failureThreshold),
    });
    return {
      name: "gateway",
      image: render(images.gateway),
      imagePullPolicy: render(gatewayPullPolicy),
      args: ["serve", "--config", mounts.config, "--db-url", files.database],
      ports: [
        { name: "grpc", containerPort: ports.gateway, protocol: "TCP" },
        { name: "health", containerPort: render(values.service.healthPort), protocol: "TCP" },
        optional(hasMetrics, { name: "metrics", containerPort: render(values.service.metricsPort), protocol: "TCP" }),
      ],
      env: unlessEmpty(values.extraEnv) as unknown as k8s.EnvVar[],
      startupProbe: probe("/healthz", values.probes.startup),
      livenessProbe: probe("/healthz", values.probes.liveness),
      readinessProbe: probe("/readyz", values.probes.readiness),
      lifecycle: unlessEmpty(values.lifecycle) as k8s.Lifecycle,
      resources: resources(values.resources),
      securityContext: containerSecurity,
      volumeMounts: [
        // A file of its own: the gateway refuses the symbolic links of a ConfigMap volume.
        { name: "config", mountPath: mounts.config, subPath: "gateway.toml", readOnly: true },
        optional(hasTls, { name: "server-tls", mountPath: mounts.serverTls, readOnly: true }),
        optional(hasTls, { name: "client-ca", mountPath: mounts.clientCa, readOnly: true }),
        { name: "jwt", mountPath: mounts.jwt, readOnly: true },
        { name: "keys", mountPath: mounts.keys, readOnly: true },
        { name: "data", mountPath: mounts.data },
        { name: "tmp", mountPath: mounts.tmp },
        each(values.extraVolumeMounts, (mount) => render(mount) as unknown as k8s.VolumeMount),
      ],
    };
  }

  private volumes(): k8s.Volume[] {
    return [
      { name: "config", configMap: { name: render(names.config) } },
      optional(hasTls, secretVolume("server-tls", secretName(secrets.serverTls))),
      optional(hasTls, secretVolume("client-ca", secretName(secrets.clientCa), ["ca.crt"])),
      secretVolume("jwt", secretName(secrets.jwt)),
      secretVolume("keys", secretName(secrets.keys)),
      { name: "data", persistentVolumeClaim: { claimName: render(names.data) } },
      { name: "tmp", emptyDir: { sizeLimit: quantity("64Mi") } },
      each(values.extraVolumes, (volume) => render(volume) as unknown as k8s.Volume),
    ];
  }
}

/**
 * Lets a node be drained at any time: one replica is never more than maxUnavailable 1, and a gateway that is not ready may go too. A
 * stricter budget could not be met by one replica and would block every drain.
 */
export class GatewayDisruptionBudget extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    new HelmObject<k8s.KubePodDisruptionBudgetProps>(this, "budget", {
      apiVersion: "policy/v1",
      kind: "PodDisruptionBudget",
      when: values.podDisruptionBudget.enabled,
      manifest: {
        metadata: { name: render(fullname), namespace, labels },
        spec: {
          maxUnavailable: port(1),
          unhealthyPodEvictionPolicy: "AlwaysAllow",
          selector: { matchLabels: selectorLabels("gateway") },
        },
      },
    });
  }
}
