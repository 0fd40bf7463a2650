import { compareQuantities, mergeQuantities, overcommittable, type Resources } from "../config/index.ts";
import {
  appArmorProfileOf,
  type ContainerProps,
  envOf,
  podSpecJson,
  resourcesOf,
  type VolumeProps,
} from "./_pod-spec.ts";
import type { PairProps } from "./generation.ts";
import { labelsOf } from "./labels.ts";
import { bootstrapGate, boundaryPortName, containers, paths, volumes, workloadSecretName } from "./names.ts";
import { affinityOf } from "./placement.ts";
import { containerSecurityContext, emptiedEnvironment, podSecurityContext } from "./security.ts";

/**
 * The runtime gives the agent's processes 30 s between TERM and KILL, and has to report their end afterwards. Never 0: the object would go
 * while the processes write on (measured: 2 s).
 */
const workloadGraceSeconds = 40;
/** Room for the staged bundle (Node and its libraries, about 130 MiB unpacked), asked of the node and given to the volume. */
export const runtimeBundleSize = "256Mi";

const node = [
  `${paths.runtime}/lib/ld-linux-x86-64.so.2`,
  "--library-path",
  `${paths.runtime}/lib`,
  `${paths.runtime}/bin/node`,
  // SIGUSR1 would open the inspector to the agent (measured).
  "--disable-sigusr1",
  `${paths.runtime}/runtime.mjs`,
];

/** The template of the workload Pod, as the CR holds it. */
export interface PodTemplate {
  readonly metadata: { readonly labels: Record<string, string>; readonly annotations: Record<string, string> };
  readonly spec: Record<string, unknown>;
}

export function workloadPodTemplate(pair: PairProps): PodTemplate {
  const { settings, sandbox, generation } = pair;
  const runtimeClassName = sandbox.runtimeClassName || settings.default_runtime_class_name;
  const priorityClassName = sandbox.priorityClassName || settings.workload_priority_class_name;
  const tolerations = [...settings.workload_tolerations, ...sandbox.tolerations];
  const nodeSelector = { ...sandbox.nodeSelector, ...settings.workload_node_selector };
  const affinity = affinityOf(
    "workload",
    settings.sandbox_runtime.pod_anti_affinity,
    generation.id,
    settings.workload_affinity,
    generation.foreignAffinity,
  );
  // A caller may ask for one, but not out of the operator's.
  const hostUsers = settings.enable_user_namespaces || sandbox.userNamespaces ? false : undefined;
  return {
    metadata: {
      labels: { ...sandbox.labels, ...settings.workload_labels, ...labelsOf("workloadPod", pair) },
      annotations: { ...sandbox.annotations, ...settings.workload_annotations },
    },
    spec: podSpecJson({
      serviceAccountName: settings.service_account_name,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      restartPolicy: "Never",
      terminationGracePeriodSeconds: workloadGraceSeconds,
      schedulingGates: [{ name: bootstrapGate }],
      securityContext: podSecurityContext(sandbox.uid, sandbox.gid),
      ...(settings.image_pull_secrets.length > 0 && {
        imagePullSecrets: settings.image_pull_secrets.map((name) => ({ name })),
      }),
      ...(runtimeClassName !== "" && { runtimeClassName }),
      ...(priorityClassName !== "" && { priorityClassName }),
      ...(Object.keys(nodeSelector).length > 0 && { nodeSelector }),
      ...(tolerations.length > 0 && { tolerations: tolerations as object[] }),
      ...(affinity !== undefined && { affinity: affinity as object }),
      ...(hostUsers !== undefined && { hostUsers }),
      // Also when it was seeded: nobody else sees whether the volume is still the one that was.
      initContainers: [stage(pair), seed(pair)],
      containers: [agent(pair)],
      volumes: podVolumes(pair),
    }),
  };
}

/**
 * The caller's amounts over the operator's. A default request above a limit that the caller asks for comes down to it; where Kubernetes wants
 * request and limit to be one, it follows the limit.
 */
export function mergeResources(defaults: Resources, asked: Resources) {
  const requests = mergeQuantities(defaults.requests, asked.requests);
  const limits = mergeQuantities(defaults.limits, asked.limits);
  for (const [name, limit] of Object.entries(asked.limits)) {
    const request = name in asked.requests ? undefined : requests[name];
    if (request === undefined) continue;
    if (!overcommittable.includes(name) || compareQuantities(request, limit) > 0) requests[name] = limit;
  }
  return { requests, limits };
}

/** Resources of the agent's container, GPUs as limits. */
export function workloadResources({ settings, sandbox }: PairProps): Resources {
  const { requests, limits } = mergeResources(settings.workload_resources, sandbox.resources);
  for (const [name, count] of Object.entries(sandbox.gpus)) limits[name] = String(count);
  if (requests["ephemeral-storage"] === undefined && limits["ephemeral-storage"] === undefined) {
    requests["ephemeral-storage"] = runtimeBundleSize;
  }
  return { requests, limits };
}

/** Init containers ask for what the agent asks for: a Pod needs the larger of the two, so this costs nothing and suits any LimitRange. */
function initResources(pair: PairProps): Resources {
  const { requests, limits } = workloadResources(pair);
  const withoutGpus = Object.fromEntries(Object.entries(limits).filter(([name]) => !(name in pair.sandbox.gpus)));
  return { requests, limits: withoutGpus };
}

function stage(pair: PairProps): ContainerProps {
  const { settings, sandbox } = pair;
  const byImage = settings.sandbox_runtime.delivery === "image_volume";
  return {
    name: containers.stage,
    image: settings.sandbox_runtime_image,
    ...pullPolicy(settings.sandbox_runtime_image_pull_policy),
    args: ["stage"],
    env: envOf({
      ...environment(pair),
      OPENSHELL_STAGE: byImage ? "identity" : "all",
      ...(settings.sandbox_runtime.fence_check !== "off" && fenceTargets(pair)),
    }),
    resources: resourcesOf(initResources(pair)),
    securityContext: containerSecurityContext(sandbox.uid, sandbox.gid, { readOnlyRootFilesystem: true }),
    terminationMessagePolicy: "FallbackToLogsOnError",
    volumeMounts: [
      ...(byImage ? [] : [{ name: volumes.runtime, mountPath: paths.runtime }]),
      { name: volumes.identity, mountPath: paths.identity },
      { name: volumes.workloadSecret, mountPath: paths.workloadSecret, readOnly: true },
      { name: volumes.tmp, mountPath: "/tmp" },
    ],
  };
}

function seed(pair: PairProps): ContainerProps {
  return {
    ...ofWorkloadImage(pair),
    name: containers.seed,
    command: [...node, "seed"],
    env: envOf({
      ...environment(pair),
      OPENSHELL_SEED_VOLUME: paths.workspaceRoot,
      OPENSHELL_SEED_EXPECTED: pair.generation.seeded ? "seeded" : "any",
    }),
    resources: resourcesOf(initResources(pair)),
    volumeMounts: [runtimeMount(pair), { name: volumes.workspace, mountPath: paths.workspaceRoot }],
  };
}

function agent(pair: PairProps): ContainerProps {
  const { settings } = pair;
  const appArmorProfile = appArmorProfileOf(settings.app_armor_profile);
  return {
    ...ofWorkloadImage(pair),
    name: containers.agent,
    command: node,
    workingDir: paths.workspace,
    env: envOf({
      ...environment(pair),
      OPENSHELL_BOUNDARY_PORT: String(settings.sandbox_runtime.boundary_port),
      OPENSHELL_FENCE_CHECK: settings.sandbox_runtime.fence_check,
      ...fenceTargets(pair),
      HOME: paths.workspace,
      USER: "sandbox",
    }),
    ports: [{ name: boundaryPortName, containerPort: settings.sandbox_runtime.boundary_port, protocol: "TCP" }],
    resources: resourcesOf(workloadResources(pair)),
    ...(appArmorProfile !== undefined && { appArmorProfile }),
    volumeMounts: [
      runtimeMount(pair),
      { name: volumes.identity, mountPath: paths.identity },
      { name: volumes.workspace, mountPath: paths.workspace, subPath: paths.workspaceDataFolder },
      ...accountMounts(pair),
    ],
  };
}

function ofWorkloadImage({ settings, sandbox }: PairProps) {
  return {
    image: sandbox.image || settings.default_image,
    ...pullPolicy(settings.image_pull_policy),
    securityContext: containerSecurityContext(sandbox.uid, sandbox.gid, { readOnlyRootFilesystem: false }),
    terminationMessagePolicy: "FallbackToLogsOnError",
  };
}

function environment({ sandbox, generation }: PairProps): Record<string, string> {
  return {
    OPENSHELL_SANDBOX_ID: sandbox.id,
    // In the spec as well as in the labels: a template's labels are patched onto a Pod that is still ending (measured), its spec never is.
    OPENSHELL_GENERATION_ID: generation.id,
    OPENSHELL_SANDBOX_UID: String(sandbox.uid),
    OPENSHELL_SANDBOX_GID: String(sandbox.gid),
    OPENSHELL_LOG_LEVEL: sandbox.logLevel,
    ...emptiedEnvironment(),
  };
}

/** What must not be reached; the first container begins to look, the agent's goes on. */
function fenceTargets({ gateway }: PairProps): Record<string, string> {
  return { OPENSHELL_FENCE_TARGETS: gateway.fenceTargets.join(",") };
}

function runtimeMount({ settings }: PairProps) {
  return settings.sandbox_runtime.delivery === "image_volume"
    ? { name: volumes.runtimeImage, mountPath: paths.runtime, subPath: paths.runtimeBundle.slice(1), readOnly: true }
    : { name: volumes.runtime, mountPath: paths.runtime, readOnly: true };
}

/** `stage` writes a passwd and a group with the sandbox's user: without one ssh, git and os.userInfo() fail (measured). */
function accountMounts({ settings }: PairProps) {
  if (settings.sandbox_runtime.delivery === "image_volume") return [];
  return ["passwd", "group"].map((file) => ({
    name: volumes.runtime,
    mountPath: `/etc/${file}`,
    subPath: `etc/${file}`,
    readOnly: true,
  }));
}

function podVolumes({ settings, generation }: PairProps): VolumeProps[] {
  const policy = settings.sandbox_runtime_image_pull_policy;
  const bundle: VolumeProps =
    settings.sandbox_runtime.delivery === "image_volume"
      ? {
          name: volumes.runtimeImage,
          image: { reference: settings.sandbox_runtime_image, ...(policy !== "" && { pullPolicy: policy }) },
        }
      : { name: volumes.runtime, emptyDir: {} };
  // The workspace volume is not here: the controller adds it from the CR's claim template of that name.
  return [
    bundle,
    { name: volumes.identity, emptyDir: { medium: "Memory" } },
    { name: volumes.workloadSecret, secret: { secretName: workloadSecretName(generation.id), defaultMode: 0o440 } },
    { name: volumes.tmp, emptyDir: {} },
  ];
}

function pullPolicy(policy: string): { imagePullPolicy?: string } {
  return policy === "" ? {} : { imagePullPolicy: policy };
}
