import { z } from "zod";
import { defaultRegistry, setting } from "../config/index.ts";

const stringMap = () => z.record(z.string(), z.string()).default({});
const anyMap = () => z.record(z.string(), z.unknown()).default({});
const anyList = () => z.array(z.record(z.string(), z.unknown())).default([]);
const policy = () => z.enum(["", "Always", "IfNotPresent", "Never"]).default("");
const nodePort = () => z.int().min(0).max(32_767).default(0);
const port = (fallback: number) => z.int().min(0).max(65_535).default(fallback);

const image = (repository: string, what: string) =>
  setting(
    z
      .strictObject({
        registry: setting(z.string().default(""), "Registry of this image; empty: global.image.registry."),
        repository: setting(z.string().default(repository), "Name of the image below the registry."),
        tag: setting(z.string().default(""), "Tag; empty: global.image.tag."),
        digest: setting(z.string().default(""), "Digest such as sha256:…; it wins over the tag."),
        pullPolicy: setting(policy(), "Pull policy; empty: global.image.pullPolicy."),
      })
      .prefault({}),
    what,
  );

const resources = (cpu: string, memory: string, limit: string, whose: string) =>
  setting(
    z
      .strictObject({
        requests: setting(stringMap().default({ cpu, memory }), "Requests by resource name."),
        limits: setting(stringMap().default({ memory: limit }), "Limits by resource name."),
      })
      .prefault({}),
    `Resources of ${whose}. Non-zero requests keep it out of QoS class BestEffort.`,
  );

const serviceAccount = (whose: string) =>
  setting(
    z
      .strictObject({
        create: setting(z.boolean().default(true), "Make the ServiceAccount. False: it exists already, under `name`."),
        name: setting(z.string().default(""), "Its name; empty: derived from the release."),
        annotations: setting(stringMap(), "Annotations of the ServiceAccount."),
      })
      .prefault({}),
    `ServiceAccount of ${whose}.`,
  );

/** values.yaml: every value with its type, default and help. A value is added here, and used in a construct; nothing else lists values. */
export const valuesSchema = z.strictObject({
  enabled: setting(z.boolean().optional(), "For a parent chart's condition; not read by this chart."),
  global: setting(
    z
      .strictObject({
        image: setting(
          z
            .strictObject({
              registry: setting(
                z.string().default(defaultRegistry),
                "Registry of OpenShell's images. The default is a name that no public DNS answers: nobody else's program is ever pulled.",
              ),
              tag: setting(z.string().default(""), "Tag of OpenShell's images; empty: the chart's appVersion."),
              pullPolicy: setting(
                z.enum(["Always", "IfNotPresent", "Never"]).default("IfNotPresent"),
                "Pull policy of OpenShell's images; not of workload images.",
              ),
            })
            .prefault({}),
          "Where OpenShell's images come from.",
        ),
      })
      .prefault({}),
    "Shared with other charts.",
  ),
  nameOverride: setting(z.string().default(""), "Replaces the chart's name in object names."),
  fullnameOverride: setting(z.string().default(""), "Replaces the whole prefix of object names."),
  replicaCount: setting(z.int().default(1), "Gateway replicas. One until the store is shared; more are refused."),
  gateway: setting(
    z.strictObject({ image: image("openshell/gateway", "Image of the gateway and of the PKI hook.") }).prefault({}),
    "The gateway.",
  ),
  sandboxRuntime: setting(
    z
      .strictObject({
        image: image("openshell/runtime", "Image of the runtime, the trusted process in a workload Pod."),
      })
      .prefault({}),
    "The runtime.",
  ),
  supervisor: setting(
    z.strictObject({ image: image("openshell/supervisor", "Image of supervisor Pods.") }).prefault({}),
    "The supervisor.",
  ),
  sandbox: setting(
    z
      .strictObject({
        image: image(
          "",
          "Workload image of sandboxes that name none; repository empty: a sandbox must name one. Tag and pull policy do not follow global.image.",
        ),
      })
      .prefault({}),
    "Sandboxes.",
  ),
  imagePullSecrets: setting(
    z.array(z.strictObject({ name: z.string() })).default([]),
    "Pull Secrets, in the release's namespace, of the gateway and the hook. Those of sandboxes are image_pull_secrets in gatewayConfig.",
  ),
  serviceAccount: serviceAccount("the gateway"),
  sandboxServiceAccount: serviceAccount("supervisor and workload Pods, in the sandboxes' namespace. It has no rights"),
  rbac: setting(
    z
      .strictObject({
        create: setting(
          z.boolean().default(true),
          "Make the gateway's Role, ClusterRole and bindings. False: somebody with the rights applies them.",
        ),
      })
      .prefault({}),
    "The gateway's rights.",
  ),
  sandboxNamespace: setting(
    z
      .strictObject({
        name: setting(z.string().default(""), "Namespace of all sandboxes; empty: <release namespace>-sandboxes."),
        create: setting(
          z.boolean().default(true),
          "Make the namespace, with Pod Security labels. It is kept on uninstall. False: it exists already.",
        ),
        podSecurity: setting(
          z.enum(["restricted", "baseline", "privileged"]).default("restricted"),
          "Pod Security level that the namespace enforces.",
        ),
        labels: setting(stringMap(), "More labels of the namespace."),
      })
      .prefault({}),
    "Where sandboxes run: apart from the gateway and its keys.",
  ),
  service: setting(
    z
      .strictObject({
        type: setting(
          z.enum(["ClusterIP", "NodePort", "LoadBalancer"]).default("ClusterIP"),
          "Type of the gateway's Service.",
        ),
        port: setting(
          z.int().min(1).max(65_535).default(8080),
          "Port for users and supervisors, of the Service and the Pod.",
        ),
        nodePort: setting(nodePort(), "Fixed node port for type NodePort or LoadBalancer; 0: chosen by the cluster."),
        healthPort: setting(
          z.int().min(1).max(65_535).default(8081),
          "Port of /healthz and /readyz on the Pod; not on the Service.",
        ),
        metricsPort: setting(port(9090), "Port of /metrics; 0: none."),
        annotations: setting(stringMap(), "Annotations of the Service."),
      })
      .prefault({}),
    "How the gateway is reached.",
  ),
  server: setting(
    z
      .strictObject({
        disableTls: setting(
          z.boolean().default(false),
          "Listen in plain text. For development: everything, exec included, can be read on the way.",
        ),
        tls: setting(
          z
            .strictObject({
              certSecretName: setting(
                z.string().default(""),
                "Existing Secret with tls.crt and tls.key (ca.crt too when the issuer is private); empty: the hook makes one.",
              ),
              clientCaSecretName: setting(
                z.string().default(""),
                "Existing Secret with ca.crt, the authority of users' client certificates; empty: the hook makes one.",
              ),
            })
            .prefault({}),
          "Certificates of the listener.",
        ),
        jwtSecretName: setting(
          z.string().default(""),
          "Existing Secret with signing.pem, public.pem and kid; empty: the hook makes one.",
        ),
        keysSecretName: setting(
          z.string().default(""),
          "Existing Secret with master-secret and key-encryption-key; empty: the hook makes one.",
        ),
      })
      .prefault({}),
    "The gateway's listener and keys.",
  ),
  pkiInitJob: setting(
    z
      .strictObject({
        enabled: setting(
          z.boolean().default(true),
          "Make and renew certificates and keys before each install and upgrade. False: every Secret is given.",
        ),
        serverDnsNames: setting(z.array(z.string()).default([]), "More host names of the server certificate."),
        serverIpAddresses: setting(z.array(z.string()).default([]), "More addresses of the server certificate."),
        timeoutSeconds: setting(z.int().min(10).default(120), "How long the hook may take."),
        resources: resources("50m", "96Mi", "256Mi", "the hook"),
      })
      .prefault({}),
    "The hook that makes certificates and keys.",
  ),
  persistence: setting(
    z
      .strictObject({
        size: setting(
          z.string().default("1Gi"),
          "Size of the volume with the gateway's store. It may grow where the StorageClass allows it.",
        ),
        storageClassName: setting(
          z.string().default(""),
          "StorageClass; empty: the cluster's default. A block volume: SQLite does not work on NFS.",
        ),
        existingClaim: setting(
          z.string().default(""),
          "An existing PersistentVolumeClaim; empty: the chart makes one, which is kept on uninstall.",
        ),
      })
      .prefault({}),
    "The gateway's store.",
  ),
  networkPolicy: setting(
    z
      .strictObject({ enabled: setting(z.boolean().default(true), "Let only the gateway's ports be reached.") })
      .prefault({}),
    "NetworkPolicy of the gateway.",
  ),
  resources: resources("100m", "128Mi", "512Mi", "the gateway"),
  terminationGracePeriodSeconds: setting(z.int().min(1).default(30), "How long the gateway may take to end."),
  nodeSelector: setting(stringMap(), "Labels of nodes that run the gateway."),
  tolerations: setting(anyList(), "Tolerations of the gateway."),
  affinity: setting(anyMap(), "Affinity of the gateway."),
  priorityClassName: setting(z.string().default(""), "PriorityClass of the gateway."),
  podLabels: setting(stringMap(), "More labels of the gateway's Pod."),
  podAnnotations: setting(stringMap(), "More annotations of the gateway's Pod."),
  commonLabels: setting(stringMap(), "More labels of every object."),
  gatewayConfig: setting(
    anyMap(),
    "Settings of the gateway, by TOML table: see docs/reference/gateway-config.mdx. null leaves a setting out; strings are literal.",
    { example: { "openshell.drivers.kubernetes.sandbox_runtime": { pod_anti_affinity: "required" } } },
  ),
});

/** The values with every default filled in. */
export type ChartValues = Required<z.output<typeof valuesSchema>>;

/** values.yaml as data. */
export const defaultValues = valuesSchema.parse({}) as ChartValues;
