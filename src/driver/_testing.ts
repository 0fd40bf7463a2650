import { defaultSettings, type KubernetesSettings } from "../config/index.ts";
import type { AgentSandbox, Live, Pod, Service } from "../kube/index.ts";
import {
  annotations,
  type GatewayFacts,
  generationSettings,
  labels,
  labelsOf,
  pairSelector,
  runMode,
  type SandboxSpec,
  sandboxResourceName,
  supervisorPodName,
  supervisorPodSpec,
  workloadPodTemplate,
} from "../manifests/index.ts";
import type { ClusterFacts, Observed } from "./observed.ts";
import { type GenerationRecord, pairOf, writeRecord } from "./record.ts";
import { ReleaseSeal } from "./release-seal.ts";

export const testGatewayId = "openshell";
export const testSandboxId = "3b9f0a52-7f64-4a62-9b0e-0c1f7f3c2d10";
export const testReleases = new ReleaseSeal(new Uint8Array(32).fill(7), testGatewayId);
export const testNow = new Date("2026-12-01T12:00:00Z");

export const testGateway: GatewayFacts = {
  id: testGatewayId,
  endpoint: "https://gateway.test:8080",
  fenceTargets: ["10.96.0.1:443"],
  hasCa: true,
};

type Runtime = KubernetesSettings["sandbox_runtime"];

export function testSettings(
  change: Partial<KubernetesSettings> = {},
  runtime: Partial<Runtime> = {},
): KubernetesSettings {
  const defaults = defaultSettings().kubernetes;
  return {
    ...defaults,
    namespace: "sandboxes",
    default_image: "registry.test/agents/base:1",
    ...change,
    sandbox_runtime: { ...defaults.sandbox_runtime, ...change.sandbox_runtime, ...runtime },
  };
}

export function testSpec(change: Partial<SandboxSpec> = {}): SandboxSpec {
  return {
    id: testSandboxId,
    name: "blue",
    workspace: "default",
    image: "",
    labels: {},
    annotations: {},
    runtimeClassName: "",
    priorityClassName: "",
    nodeSelector: {},
    tolerations: [],
    resources: { requests: {}, limits: {} },
    gpus: {},
    uid: 10001,
    gid: 10001,
    logLevel: "info",
    ...change,
  };
}

export function testRecord(
  change: Partial<GenerationRecord> = {},
  settings: KubernetesSettings = testSettings(),
): GenerationRecord {
  const { id: _, ...gateway } = testGateway;
  return {
    version: 1,
    intent: "running",
    sandbox: testSpec(),
    settings: generationSettings(settings),
    gateway,
    generation: { id: "a".repeat(32), session: 1, seeded: false, foreignAffinity: {} },
    firstSession: 1,
    masterKid: "0".repeat(16),
    startedAt: testNow.toISOString(),
    seeded: false,
    bindsUids: true,
    ...change,
  };
}

/** What the Agent Sandbox controller says of a CR that it has suspended, as of a generation of the CR. */
export function suspendedAt(observedGeneration: number) {
  const condition = {
    type: "Suspended",
    status: "True",
    reason: "PodTerminated",
    message: "",
    lastTransitionTime: "",
    observedGeneration,
  } as const;
  return { conditions: [condition] };
}

export function testResource(
  record: GenerationRecord,
  running: boolean,
  status: AgentSandbox["status"] = {},
): Live<AgentSandbox> {
  const pair = pairOf(record, testGatewayId);
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: {
      name: sandboxResourceName(record.sandbox.workspace, record.sandbox.name),
      namespace: record.settings.namespace,
      uid: "cr-uid",
      resourceVersion: "100",
      generation: 1,
      labels: labelsOf("sandbox", pair),
      annotations: { [annotations.generation]: writeRecord(record) },
    },
    spec: {
      ...(runMode("v1beta1", running) as { operatingMode: "Running" | "Suspended" }),
      service: false,
      podTemplate: workloadPodTemplate(pair) as unknown as AgentSandbox["spec"]["podTemplate"],
    },
    status,
  };
}

/** A Pod as an API server without any policy of its own admits it. */
export function testPod(
  role: "workload" | "supervisor",
  record: GenerationRecord,
  change: {
    readonly gated?: boolean;
    readonly node?: string;
    readonly uid?: string;
    readonly status?: Pod["status"];
    readonly metadata?: Partial<Live<Pod>["metadata"]>;
    readonly spec?: Record<string, unknown>;
  } = {},
): Live<Pod> {
  const pair = pairOf(record, testGatewayId);
  const isWorkload = role === "workload";
  const rendered = isWorkload ? workloadPodTemplate(pair).spec : supervisorPodSpec(pair);
  const name = isWorkload
    ? sandboxResourceName(record.sandbox.workspace, record.sandbox.name)
    : supervisorPodName(record.sandbox.id, record.generation.session);
  const uid = change.uid ?? `${role}-uid`;
  const spec = structuredClone(rendered) as Record<string, unknown>;
  const volumes = spec.volumes as object[];
  if (isWorkload) volumes.push({ name: "workspace", persistentVolumeClaim: { claimName: `workspace-${name}` } });
  if (change.gated === false) delete spec.schedulingGates;
  return {
    metadata: {
      name,
      namespace: record.settings.namespace,
      uid,
      resourceVersion: "200",
      creationTimestamp: testNow.toISOString(),
      labels: {
        ...labelsOf(isWorkload ? "workloadPod" : "supervisorPod", pair),
        ...(isWorkload && { "agents.x-k8s.io/sandbox-name-hash": "d3be3f67" }),
      },
      annotations: {
        ...(isWorkload && { "agents.x-k8s.io/propagated-labels": "a,b" }),
        ...(change.gated === false && testReleases.write(uid, isWorkload ? "supervisor-uid" : "workload-uid")),
      },
      ownerReferences: [
        {
          apiVersion: "agents.x-k8s.io/v1beta1",
          kind: "Sandbox",
          name: "default--blue",
          uid: "cr-uid",
          ...(isWorkload && { controller: true }),
        },
      ],
      ...change.metadata,
    },
    spec: {
      ...spec,
      dnsPolicy: "ClusterFirst",
      schedulerName: "default-scheduler",
      serviceAccount: "default",
      priority: 0,
      preemptionPolicy: "PreemptLowerPriority",
      tolerations: [
        ...((spec.tolerations as object[] | undefined) ?? []),
        { key: "node.kubernetes.io/memory-pressure", operator: "Exists", effect: "NoSchedule" },
      ],
      ...(change.node !== undefined && { nodeName: change.node }),
      ...change.spec,
    } as unknown as NonNullable<Pod["spec"]>,
    status: change.status ?? { phase: "Pending" },
  };
}

export function testService(record: GenerationRecord): Live<Service> {
  const { boundary_port: port } = record.settings.sandbox_runtime;
  return {
    metadata: { name: "os-boundary", namespace: record.settings.namespace, uid: "service-uid", resourceVersion: "1" },
    spec: {
      selector: pairSelector("workload", record.generation.id),
      ports: [{ name: "boundary", protocol: "TCP", port, targetPort: port }],
      publishNotReadyAddresses: true,
    },
  };
}

export const calmCluster: ClusterFacts = {
  fenceIsUp: true,
  foreignPolicies: [],
  runtimeClass: () => undefined,
  priorityClass: () => undefined,
  imageRewrites: {},
  toleratedPolicies: [],
  sealedPeerOf: (pod) => testReleases.peerOf(pod),
  isDeleted: () => false,
  isGone: () => true,
};

export function testObserved(record: GenerationRecord, change: Partial<Observed> = {}): Observed {
  return {
    sandboxId: record.sandbox.id,
    api: "v1beta1",
    resource: testResource(record, true),
    record: { ok: true, record },
    workloads: [],
    supervisors: [],
    service: testService(record),
    departed: new Set(),
    cluster: calmCluster,
    now: testNow,
    ...change,
  };
}

export const runningStatus: NonNullable<Pod["status"]> = {
  phase: "Running",
  conditions: [{ type: "PodScheduled", status: "True" }],
  containerStatuses: [
    { name: "agent", image: "x", imageID: "", ready: true, restartCount: 0, started: true, state: { running: {} } },
  ],
};

export { labels };
