import { z } from "zod";
import { positiveQuantityPattern, setting, toleration } from "../../config/index.ts";
import { annotationMap, anyList, anyMap, labelMap, objectNameOrNone, resources } from "./_types.ts";

const probe = (periodSeconds: number, timeoutSeconds: number, failureThreshold: number, what: string) =>
  setting(
    z
      .strictObject({
        periodSeconds: setting(z.int().min(1).default(periodSeconds), "Seconds between two questions."),
        timeoutSeconds: setting(z.int().min(1).default(timeoutSeconds), "Seconds that an answer may take."),
        failureThreshold: setting(z.int().min(1).default(failureThreshold), "Failures in a row that count."),
      })
      .prefault({}),
    what,
  );

/** The gateway's Pod and its volume. */
export const podValues = {
  persistence: setting(
    z
      .strictObject({
        size: setting(
          z.string().regex(positiveQuantityPattern).default("1Gi"),
          "Size of the volume with the gateway's store. It may grow where the StorageClass allows it.",
        ),
        storageClassName: setting(
          objectNameOrNone(),
          "StorageClass; empty: the cluster's default. A block volume: SQLite does not work on NFS. It cannot be changed later.",
        ),
        accessMode: setting(
          z.enum(["ReadWriteOnce", "ReadWriteOncePod"]).default("ReadWriteOnce"),
          "Access mode. ReadWriteOncePod lets the cluster prove that one process owns the store. It cannot be changed later.",
        ),
        annotations: setting(annotationMap(), "Annotations of the claim."),
        existingClaim: setting(
          objectNameOrNone(),
          "An existing PersistentVolumeClaim; empty: the chart makes one, which is kept on uninstall.",
        ),
      })
      .prefault({}),
    "The gateway's store.",
  ),
  resources: resources("100m", "128Mi", "512Mi", "the gateway"),
  probes: setting(
    z
      .strictObject({
        startup: probe(1, 1, 60, "How long the gateway may take to start: the product of period and failures."),
        liveness: probe(10, 3, 6, "When a gateway that no longer answers is restarted."),
        readiness: probe(2, 2, 3, "When a gateway gets no new connections."),
      })
      .prefault({}),
    "Probes of the gateway, on /healthz and /readyz of service.healthPort.",
  ),
  podDisruptionBudget: setting(
    z
      .strictObject({
        enabled: setting(
          z.boolean().default(false),
          "Make a PodDisruptionBudget with maxUnavailable 1. It is never stricter, because a budget that one replica cannot meet blocks every drain of its node.",
        ),
      })
      .prefault({}),
    "Voluntary disruption of the gateway.",
  ),
  terminationGracePeriodSeconds: setting(z.int().min(1).default(30), "How long the gateway may take to end."),
  nodeSelector: setting(labelMap(), "Labels of nodes that run the gateway."),
  tolerations: setting(z.array(toleration()).default([]), "Tolerations of the gateway.", {
    example: [{ key: "example.com/gateway", operator: "Exists" }],
  }),
  affinity: setting(anyMap(), "Affinity of the gateway.", {
    example: {
      nodeAffinity: {
        requiredDuringSchedulingIgnoredDuringExecution: {
          nodeSelectorTerms: [{ matchExpressions: [{ key: "example.com/gateway", operator: "Exists" }] }],
        },
      },
    },
  }),
  priorityClassName: setting(objectNameOrNone(), "PriorityClass of the gateway."),
  fixedUserIds: setting(
    z.boolean().default(true),
    "Run as user, group and fsGroup 65532. False: the cluster gives the numbers, as OpenShift's restricted-v2 wants it.",
  ),
  podSecurityContext: setting(
    anyMap(),
    "Fields over the gateway's and the hook's Pod security context, which satisfies Pod Security `restricted`.",
    { example: { fsGroupChangePolicy: "OnRootMismatch" } },
  ),
  securityContext: setting(anyMap(), "Fields over the security context of their containers.", {
    example: { seLinuxOptions: { level: "s0:c1,c2" } },
  }),
  extraEnv: setting(
    anyList(),
    "More environment of the gateway, such as HTTPS_PROXY; nothing that begins with OPENSHELL_.",
    { example: [{ name: "HTTPS_PROXY", value: "http://proxy.example.com:3128" }] },
  ),
  extraVolumes: setting(anyList(), "More volumes of the gateway's Pod.", {
    example: [{ name: "proxy-ca", configMap: { name: "proxy-ca" } }],
  }),
  extraVolumeMounts: setting(anyList(), "More volume mounts of the gateway.", {
    example: [{ name: "proxy-ca", mountPath: "/etc/proxy-ca", readOnly: true }],
  }),
  lifecycle: setting(anyMap(), "Lifecycle hooks of the gateway's container.", {
    example: { preStop: { sleep: { seconds: 5 } } },
  }),
  podLabels: setting(labelMap(), "More labels of the gateway's Pod."),
  podAnnotations: setting(annotationMap(), "More annotations of the gateway's Pod."),
} as const;
