import { z } from "zod";
import packageJson from "../../package.json" with { type: "json" };
import { affinity } from "./_affinity.ts";
import {
  allowedNames,
  annotations,
  anyLabels,
  dnsLabelName,
  duration,
  endpoint,
  extendedResource,
  image,
  keyPatterns,
  labelSelector,
  labels,
  namespaceLabels,
  objectName,
  optionalObjectName,
  port,
  quantity,
  toleration,
} from "./_grammar.ts";
import { minimumWorkloadMemory, resources, supervisorDefaults, workloadDefaults } from "./_resources.ts";
import { setting } from "./_setting.ts";

/** Where images come from when nothing is configured: a registry name that no public DNS can answer, so that nobody else's program is ever pulled. */
export const defaultRegistry = "openshell.local";
const version = packageJson.version;

const pullPolicies: Readonly<Record<string, "Always" | "IfNotPresent" | "Never" | "">> = {
  "": "",
  always: "Always",
  if_not_present: "IfNotPresent",
  never: "Never",
  Always: "Always",
  IfNotPresent: "IfNotPresent",
  Never: "Never",
};
const pullPolicy = () =>
  z
    .enum(["", "Always", "IfNotPresent", "Never", "always", "if_not_present", "never"])
    .transform((given) => pullPolicies[given] ?? "")
    .prefault("");

/** What Kubernetes takes for a user or a group. */
export const greatestId = 2_147_483_647;
const id = () => z.int().min(1).max(greatestId);
const names = () => z.array(objectName());

const waitsForClass =
  "Creation fails within seconds when the class does not exist; it is Pending while no node can run it.";

/** The settings that exist once for each Pod of a pair. */
const placement = (whose: string) => ({
  priority_class_name: setting(
    optionalObjectName().default(""),
    `PriorityClass of the ${whose} Pod; empty: the cluster's default.`,
  ),
  node_selector: setting(anyLabels().default({}), `Labels a node must have to run the ${whose} Pod.`, {
    example: { "example.com/pool": "agents" },
    pending: "Pending until a node has all labels.",
  }),
  tolerations: setting(
    z.array(toleration()).default([]),
    `Taints that the ${whose} Pod tolerates, in Kubernetes' own field names.`,
    { example: [{ key: "example.com/agents", operator: "Exists", effect: "NoSchedule" }] },
  ),
  affinity: setting(
    affinity().default({}),
    `Affinity of the ${whose} Pod, in Kubernetes' own field names. pod_anti_affinity is appended to it, never replaces it.`,
    { pending: "Pending while a required term cannot be met." },
  ),
  labels: setting(
    labels().default({}),
    `More labels on the ${whose} Pod. The prefixes openshell.ai/, internal.openshell.ai/ and agents.x-k8s.io/ are refused.`,
    { example: { team: "research" } },
  ),
  annotations: setting(
    annotations().default({}),
    `More annotations on the ${whose} Pod. The prefixes openshell.ai/, internal.openshell.ai/ and agents.x-k8s.io/ are refused.`,
  ),
});

type Prefixed<Prefix extends string, Shape> = { [Key in keyof Shape & string as `${Prefix}${Key}`]: Shape[Key] };

function prefixed<Prefix extends string, Shape extends Record<string, z.ZodType>>(
  prefix: Prefix,
  shape: Shape,
): Prefixed<Prefix, Shape> {
  return Object.fromEntries(Object.entries(shape).map(([key, schema]) => [`${prefix}${key}`, schema])) as Prefixed<
    Prefix,
    Shape
  >;
}

const sandboxRuntime = z.strictObject({
  pod_anti_affinity: setting(
    z.enum(["off", "preferred", "required"]).default("off"),
    'Whether the two Pods of a pair keep to different nodes. preferred: where it is possible. required: READY is never reported while both are on one node. YAML takes a bare off for false: write "off", with the quotes, in values.',
    { pending: "required: Pending while only one suitable node exists; goes on by itself when a second one joins." },
  ),
  boundary_port: setting(
    port(1024).default(5500),
    "TCP port in the workload Pod on which the runtime waits for its supervisor.",
  ),
  fence_check: setting(
    z.enum(["enforce", "off"]).default("enforce"),
    'enforce: no agent process starts until the workload Pod is shown to have no way out. off: for clusters that do not enforce NetworkPolicy; the agent then reaches whatever its node reaches. In YAML "off" has quotes, as in pod_anti_affinity.',
  ),
  delivery: setting(
    z.enum(["copy", "image_volume"]).default("copy"),
    "How the runtime gets into the workload Pod: an init container that copies it, or an image volume (Kubernetes 1.35 or newer, or its feature gate).",
  ),
  tolerated_network_policies: setting(
    names().default([]),
    "Foreign NetworkPolicies, by name, that may select workload Pods. Any other one that opens their fence stops the sandbox.",
  ),
});

const supervisorReplacement = z.strictObject({
  mode: setting(
    z.enum(["resume", "terminate"]).default("resume"),
    "What the loss of a supervisor means for a running generation. resume: the agent's processes are frozen until the next supervisor is there. terminate: the generation ends with reason SupervisorLost.",
  ),
  window_seconds: setting(
    z.int().min(10).max(86_400).default(300),
    "How long a running workload may wait for its next supervisor to run; afterwards the generation ends with reason SupervisorLost.",
    { unit: "seconds" },
  ),
  max_per_hour: setting(
    z.int().min(1).max(1000).default(10),
    "Supervisors of one generation that may be replaced within an hour; one more ends it with reason SupervisorLost.",
  ),
});

const admission = z.strictObject({
  allowed_image_rewrites: setting(
    z.record(z.string().min(1), z.string().min(1)).default({}),
    "Prefixes of image names that an admission webhook of the cluster may replace, each with its replacement. Any other change of an image is refused.",
    { example: { "docker.io/": "mirror.example.com/docker/" } },
  ),
});

const managedNamespaces = z.strictObject({
  pod_security: setting(
    z.enum(["privileged", "baseline", "restricted"]).default("restricted"),
    "Pod Security level of a new namespace. The Pods of a pair fit restricted.",
    { applies: "new-workspaces" },
  ),
  labels: setting(namespaceLabels().default({}), "More labels on a new namespace; none of Pod Security.", {
    example: { "example.com/team": "research" },
    applies: "new-workspaces",
  }),
  annotations: setting(annotations().default({}), "Annotations on a new namespace.", { applies: "new-workspaces" }),
});

/** `[openshell.drivers.kubernetes]` and the tables below it. */
export const kubernetesSchema = z
  .strictObject({
    workspace_mode: setting(
      z.enum(["shared", "managed", "operator"]).default("shared"),
      "How workspaces map to namespaces. shared: all sandboxes in `namespace`. managed: the gateway makes a namespace openshell-<gateway_id>-<workspace> for each workspace and deletes it with the workspace. operator: a workspace is the namespace of its name, which an operator made ready and labelled. Sandboxes that were made under another mode stay where they are.",
      { applies: "gateway-start" },
    ),
    operator_namespace_label: setting(
      labelSelector().default(""),
      'Label, as key or key=value, of the namespaces that are workspaces where workspace_mode is "operator". It is followed while the gateway runs.',
      { example: "example.com/openshell-workspace=true", applies: "gateway-start" },
    ),
    operator_namespace_file: setting(
      z
        .string()
        .regex(/^$|^\//, { error: "empty, or an absolute path" })
        .default(""),
      'Instead of operator_namespace_label: a file with a JSON array of the namespaces that are workspaces where workspace_mode is "operator". It is read every few seconds; a change needs no restart.',
      { example: "/etc/openshell-workspaces/namespaces.json", applies: "gateway-start" },
    ),
    managed_namespaces: setting(
      managedNamespaces.prefault({}),
      'The namespaces that the gateway makes where workspace_mode is "managed".',
      { applies: "gateway-start" },
    ),
    namespace: setting(
      dnsLabelName().default("openshell-sandboxes"),
      'Namespace of all sandboxes, and of the driver\'s Lease. It must exist. Where workspace_mode is not "shared" it keeps the Lease, and sandboxes that were made there before.',
      { applies: "gateway-start" },
    ),
    gateway_id: setting(
      dnsLabelName(33).default("openshell"),
      "Marks what belongs to this gateway. Two gateways that share a namespace, or a cluster in workspace_mode managed or operator, need different ids; a changed id loses sight of existing sandboxes.",
      { applies: "gateway-start" },
    ),
    service_account_name: setting(
      objectName().default("default"),
      "ServiceAccount of the Pods of a pair. It needs no rights; the workload Pod gets no token.",
      { example: "openshell-sandbox" },
    ),
    grpc_endpoint: setting(
      endpoint().default(""),
      "Where supervisors reach the gateway. The chart derives it from its Service; a hand-written file must have it.",
      { example: "https://openshell.openshell.svc:8080" },
    ),
    default_image: setting(
      image("may-be-empty").default(""),
      "Workload image of sandboxes that name none. Empty: a sandbox must name one.",
      { example: "registry.example.com/agents/base:1" },
    ),
    image_pull_policy: setting(pullPolicy(), "Pull policy of workload images; empty: Kubernetes' default.", {
      example: "IfNotPresent",
    }),
    image_pull_secrets: setting(names().default([]), "Pull Secrets, in the sandboxes' namespace, of both Pods.", {
      example: ["registry-credentials"],
    }),
    sandbox_runtime_image: setting(
      image("required").default(`${defaultRegistry}/openshell/runtime:${version}`),
      "Image of the runtime, the trusted process in the workload Pod. Same version as the gateway.",
    ),
    sandbox_runtime_image_pull_policy: setting(
      pullPolicy(),
      "Pull policy of sandbox_runtime_image; empty: Kubernetes' default.",
    ),
    supervisor_image: setting(
      image("required").default(`${defaultRegistry}/openshell/supervisor:${version}`),
      "Image of the supervisor Pod. Same version as the gateway.",
    ),
    supervisor_image_pull_policy: setting(pullPolicy(), "Pull policy of supervisor_image; empty: Kubernetes' default."),
    default_runtime_class_name: setting(
      optionalObjectName().default(""),
      "RuntimeClass of workload Pods whose caller names none, for example kata or gvisor. A caller may name another unless allowed_runtime_class_names forbids it. Never applied to the supervisor.",
      { example: "kata", pending: waitsForClass },
    ),
    supervisor_runtime_class_name: setting(
      optionalObjectName().default(""),
      "RuntimeClass of supervisor Pods. Independent of default_runtime_class_name; empty: the node's default runtime.",
      { example: "runc", pending: waitsForClass },
    ),
    allowed_runtime_class_names: setting(allowedNames(), 'RuntimeClasses that a caller may ask for; "*": any.', {
      example: ["kata", "gvisor"],
    }),
    allowed_priority_class_names: setting(allowedNames(), 'PriorityClasses that a caller may ask for; "*": any.'),
    allowed_pod_labels: setting(
      keyPatterns().default([]),
      'Labels that a caller may give the workload Pod, by their keys: "team", all of a domain as "example.com/*", or "*" for any. The default allows none: a label may make a Service, a NetworkPolicy or a webhook of the cluster select the Pod.',
      { example: ["team", "example.com/*"] },
    ),
    allowed_pod_annotations: setting(
      keyPatterns().default([]),
      "Annotations that a caller may give the workload Pod, as allowed_pod_labels. Those that a container runtime or a CNI plugin acts on are refused whatever stands here.",
      { example: ["example.com/*"] },
    ),
    supervisor_resources: setting(
      resources(supervisorDefaults),
      "Resources of the supervisor container. The defaults keep it out of QoS class BestEffort.",
      { pending: "Pending while no node has the requested resources free." },
    ),
    workload_resources: setting(
      resources(workloadDefaults, { minimumMemoryLimit: minimumWorkloadMemory }),
      "Resources of workload containers whose caller asks for none. The defaults keep them out of QoS class BestEffort.",
      { pending: "Pending while no node has the requested resources free." },
    ),
    gpu_resource_name: setting(
      extendedResource().default("nvidia.com/gpu"),
      "Extended resource that a request for GPUs asks for, as the device plugin of the nodes calls it.",
      { example: "amd.com/gpu", pending: "Pending while the nodes' GPUs are taken; refused when no node has as many." },
    ),
    ...prefixed("supervisor_", placement("supervisor")),
    ...prefixed("workload_", placement("workload")),
    app_armor_profile: setting(
      z
        .string()
        .regex(/^(|Unconfined|RuntimeDefault|Localhost\/.+)$/, {
          error: "empty, Unconfined, RuntimeDefault or Localhost/<profile>",
        })
        .default(""),
      "AppArmor profile of the workload container: empty (the cluster decides), Unconfined, RuntimeDefault or Localhost/<profile>. Pod Security `restricted` refuses Unconfined.",
      { example: "RuntimeDefault" },
    ),
    enable_user_namespaces: setting(
      z.boolean().default(false),
      "Run workload Pods in a user namespace of their own (hostUsers: false); where it is off, a caller may ask for one with template.user_namespaces. Needs Kubernetes 1.33 or newer, and nodes with containerd 2 and runc 1.2 or their like (docs/two-pods.md); a node that cannot ends the sandbox with `NodeRefused`.",
    ),
    sandbox_uid: setting(
      id().optional(),
      "User id of agent processes; supervisors have the next. Default: the namespace's range on OpenShift, else 10001.",
      { example: 10001 },
    ),
    sandbox_gid: setting(id().optional(), "Group id of agent processes. Default: sandbox_uid.", { example: 10001 }),
    workspace_default_storage_size: setting(quantity().default("2Gi"), "Size of the volume that keeps /sandbox.", {
      example: "10Gi",
      pending: "Pending until the volume is bound.",
    }),
    workspace_storage_class: setting(
      optionalObjectName().default(""),
      "StorageClass of that volume; empty: the cluster's default.",
      { pending: "Pending until the volume is bound." },
    ),
    sa_token_ttl_secs: setting(
      z
        .int()
        .transform((given) => (given <= 0 ? 3600 : Math.min(86_400, Math.max(600, given))))
        .prefault(3600),
      "Life of the token with which a supervisor introduces itself. Brought into 600..86400; 0 or less means 3600.",
      { unit: "seconds" },
    ),
    provisioning_timeout: setting(
      duration().default(""),
      "How long a sandbox may wait for capacity before it becomes ERROR; empty: for ever.",
      { example: "30m" },
    ),
    allow_driver_config: setting(
      z.boolean().default(false),
      "Accept a caller's driver_config (node selector, tolerations, classes, resources).",
    ),
    sandbox_runtime: setting(sandboxRuntime.prefault({}), "The pair."),
    supervisor_replacement: setting(
      supervisorReplacement.prefault({}),
      "What happens when a supervisor is lost while its workload runs.",
    ),
    admission: setting(admission.prefault({}), "What admission of the cluster may change in a Pod."),
  })
  .meta({
    description:
      "The Kubernetes driver. Unless a setting says otherwise, a change applies to each sandbox at its next start; running ones keep what they started with.",
  });

/** Settings of the Kubernetes driver, under their TOML names. */
export type KubernetesSettings = z.output<typeof kubernetesSchema>;
