import { z } from "zod";
import { network, optionalQualifiedName, setting } from "../../config/index.ts";
import { annotationMap, labelMap, nodePort, port } from "./_types.ts";

/** As Prometheus and Go both write one. */
const duration = () => z.string().regex(/^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$/);

/** How the gateway is reached inside the cluster, and watched. */
export const serviceValues = {
  service: setting(
    z
      .strictObject({
        type: setting(
          z.enum(["ClusterIP", "NodePort", "LoadBalancer"]).default("ClusterIP"),
          "Type of the gateway's Service.",
        ),
        port: setting(
          z.int().min(1).max(65_535).default(8080),
          "Port of the Service, for users and supervisors; the Pod listens on 8080 whatever it is.",
        ),
        nodePort: setting(nodePort(), "Fixed node port for type NodePort or LoadBalancer; 0: chosen by the cluster.", {
          example: 30_080,
        }),
        healthPort: setting(
          z.int().min(1024).max(65_535).default(8081),
          "Port of /healthz and /readyz on the Pod; not on the Service.",
        ),
        metricsPort: setting(
          port(9090),
          "Port of /metrics, 1024 or higher, on a Service of its own inside the cluster, <fullname>-metrics; 0: none.",
        ),
        annotations: setting(annotationMap(), "Annotations of the gateway's Service."),
        appProtocol: setting(
          optionalQualifiedName().default(""),
          "What proxies are told about the port; empty: https, or kubernetes.io/h2c where server.disableTls is true.",
        ),
        externalTrafficPolicy: setting(
          z.enum(["", "Cluster", "Local"]).default(""),
          "For type NodePort or LoadBalancer: Local keeps the client's address; empty: the cluster's default.",
        ),
        loadBalancerClass: setting(
          optionalQualifiedName().default(""),
          "For type LoadBalancer: which controller serves it. It cannot be changed later.",
        ),
        loadBalancerSourceRanges: setting(
          z.array(network()).default([]),
          "For type LoadBalancer: the networks, IPv4 or IPv6, that may connect; empty: all.",
          { example: ["192.0.2.0/24", "2001:db8::/32"] },
        ),
      })
      .prefault({}),
    "How the gateway is reached.",
  ),
  serviceMonitor: setting(
    z
      .strictObject({
        enabled: setting(z.boolean().default(false), "Make a ServiceMonitor for the Prometheus operator."),
        labels: setting(labelMap(), "More labels, by which a Prometheus selects it."),
        interval: setting(duration().default("30s"), "Time between two scrapes; empty: the Prometheus' own."),
        scrapeTimeout: setting(duration().default("10s"), "How long a scrape may take; empty: the Prometheus' own.", {
          example: "20s",
        }),
      })
      .prefault({}),
    "Metrics of the gateway.",
  ),
} as const;
