import { describe, expect, test } from "vitest";
import type { Live, Pod } from "../kube/index.ts";
import { annotations, bootstrapGate, labels } from "../manifests/index.ts";
import { calmCluster, testObserved, testPod, testRecord, testSettings } from "./_testing.ts";
import { admissionRules } from "./admission-rules.ts";
import { admissionFailure, violationsOf } from "./verify-pods.ts";

const required = testRecord({}, testSettings({}, { pod_anti_affinity: "required" }));

/** Fields that are found at fault after `tamper` changed an admitted Pod. */
function faults(role: "workload" | "supervisor", tamper: (pod: never) => void, record = required): string[] {
  const pod = structuredClone(testPod(role, record));
  tamper(pod as never);
  return violationsOf(role, pod, record, "openshell", calmCluster).map(({ field }) => field);
}

type AnyPod = {
  metadata: {
    labels: Record<string, string | undefined>;
    annotations: Record<string, string>;
    ownerReferences: object[];
  };
  // biome-ignore lint/suspicious/noExplicitAny: the tests write what no type allows
  spec: any;
};

describe.each(["workload", "supervisor"] as const)("an admitted %s Pod", (role) => {
  test("is accepted as a plain API server makes it", () => {
    expect(faults(role, () => undefined)).toEqual([]);
  });

  test.each<[string, (pod: AnyPod) => void]>([
    ["more labels", (pod) => Object.assign(pod.metadata.labels, { team: "x", "injected.example.com/by": "y" })],
    ["more annotations", (pod) => Object.assign(pod.metadata.annotations, { "kubernetes.io/limit-ranger": "cpu" })],
    ["more tolerations", (pod) => pod.spec.tolerations.push({ key: "spot", operator: "Exists" })],
    [
      "node affinity",
      (pod) =>
        Object.assign(pod.spec.affinity, {
          nodeAffinity: {
            requiredDuringSchedulingIgnoredDuringExecution: {
              nodeSelectorTerms: [{ matchExpressions: [{ key: "a", operator: "Exists" }] }],
            },
          },
        }),
    ],
    [
      "raised resources",
      (pod) =>
        Object.assign(pod.spec.containers[0].resources, {
          requests: { cpu: "2", memory: "4Gi", "ephemeral-storage": "1Gi" },
          limits: { memory: "8Gi" },
        }),
    ],
    ["pull secrets", (pod) => Object.assign(pod.spec, { imagePullSecrets: [{ name: "added" }] })],
    ["an image pull policy of Always", (pod) => Object.assign(pod.spec.containers[0], { imagePullPolicy: "Always" })],
    [
      "a digest",
      (pod) =>
        Object.assign(pod.spec.containers[0], { image: `${pod.spec.containers[0].image}@sha256:${"0".repeat(64)}` }),
    ],
    ["no shared process namespace, as an earlier gateway made it", (pod) => delete pod.spec.shareProcessNamespace],
    ["another controller's gate", (pod) => pod.spec.schedulingGates.push({ name: "kueue.x-k8s.io/admission" })],
    [
      "another controller's finalizer",
      (pod) => Object.assign(pod.metadata, { finalizers: ["kueue.x-k8s.io/managed"] }),
    ],
    ["an SELinux level", (pod) => Object.assign(pod.spec.securityContext, { seLinuxOptions: { level: "s0:c1,c2" } })],
  ])("may have %s", (_what, change) => {
    expect(faults(role, change as never)).toEqual([]);
  });

  test.each<[string, string, (pod: AnyPod) => void]>([
    ["anti-affinity stripped", "spec.affinity", (pod) => delete pod.spec.affinity],
    [
      "required weakened to preferred",
      "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
      (pod) =>
        Object.assign(pod.spec.affinity, {
          podAntiAffinity: {
            preferredDuringSchedulingIgnoredDuringExecution: [
              { weight: 1, podAffinityTerm: { topologyKey: "kubernetes.io/hostname" } },
            ],
          },
        }),
    ],
    ["a priority raised", "spec.priority", (pod) => Object.assign(pod.spec, { priority: 1000 })],
    [
      "a pair label changed",
      `metadata.labels.${labels.pairId}`,
      (pod) => Object.assign(pod.metadata.labels, { [labels.pairId]: "other" }),
    ],
    [
      "a role label dropped",
      `metadata.labels.${labels.boundaryRole}`,
      (pod) => delete pod.metadata.labels[labels.boundaryRole],
    ],
    [
      "a reserved label added",
      "metadata.labels.openshell.ai/new",
      (pod) => Object.assign(pod.metadata.labels, { "openshell.ai/new": "x" }),
    ],
    [
      "an owner added",
      "metadata.ownerReferences",
      (pod) => pod.metadata.ownerReferences.push({ kind: "ConfigMap", name: "x", uid: "x", apiVersion: "v1" }),
    ],
    ["a RuntimeClass swapped", "spec.runtimeClassName", (pod) => Object.assign(pod.spec, { runtimeClassName: "weak" })],
    [
      "resources lowered",
      role === "supervisor" ? "spec.containers[supervisor].resources" : "spec.containers[agent].resources",
      (pod) => Object.assign(pod.spec.containers[0], { resources: {} }),
    ],
    [
      "a device added",
      role === "supervisor" ? "spec.containers[supervisor].resources" : "spec.containers[agent].resources",
      (pod) => {
        const { resources } = pod.spec.containers[0];
        resources.limits = { ...resources.limits, "devices.example.com/kvm": "1" };
      },
    ],
    ["a hostPath", "spec.volumes[host]", (pod) => pod.spec.volumes.push({ name: "host", hostPath: { path: "/" } })],
    [
      "the token's audience changed",
      role === "supervisor" ? "spec.volumes[openshell-token]" : "spec.volumes[openshell-identity]",
      (pod) => Object.assign(pod.spec.volumes[1], { projected: { sources: [] } }),
    ],
    [
      "a privileged container",
      role === "supervisor"
        ? "spec.containers[supervisor].securityContext.privileged"
        : "spec.containers[agent].securityContext.privileged",
      (pod) => Object.assign(pod.spec.containers[0].securityContext, { privileged: true }),
    ],
    ["the host's network", "spec.hostNetwork", (pod) => Object.assign(pod.spec, { hostNetwork: true })],
    [
      "another ServiceAccount",
      "spec.serviceAccountName",
      (pod) => Object.assign(pod.spec, { serviceAccountName: "admin" }),
    ],
    [
      "a mounted token",
      "spec.automountServiceAccountToken",
      (pod) => Object.assign(pod.spec, { automountServiceAccountToken: true }),
    ],
    ["our gate removed", "spec.schedulingGates", (pod) => delete pod.spec.schedulingGates],
    ["a sidecar", "spec.containers[spy]", (pod) => pod.spec.containers.push({ name: "spy", image: "spy" })],
    [
      "an init container",
      role === "supervisor" ? "spec.initContainers" : "spec.initContainers[spy]",
      (pod) =>
        Object.assign(pod.spec, {
          initContainers: [...(pod.spec.initContainers ?? []), { name: "spy", image: "spy" }],
        }),
    ],
    [
      "an ephemeral container",
      "spec.ephemeralContainers",
      (pod) => Object.assign(pod.spec, { ephemeralContainers: [{ name: "spy", image: "spy" }] }),
    ],
    [
      "a command",
      role === "supervisor" ? "spec.containers[supervisor].command" : "spec.containers[agent].command",
      (pod) => Object.assign(pod.spec.containers[0], { command: ["sh"] }),
    ],
    [
      "an environment variable",
      role === "supervisor"
        ? "spec.containers[supervisor].env[NODE_OPTIONS].value"
        : "spec.containers[agent].env[NODE_OPTIONS].value",
      (pod) =>
        Object.assign(
          pod.spec.containers[0].env.find(({ name }: { name: string }) => name === "NODE_OPTIONS"),
          { value: "--inspect" },
        ),
    ],
    [
      "environment from elsewhere",
      role === "supervisor" ? "spec.containers[supervisor].envFrom" : "spec.containers[agent].envFrom",
      (pod) => Object.assign(pod.spec.containers[0], { envFrom: [{ secretRef: { name: "x" } }] }),
    ],
    [
      "another image",
      role === "supervisor" ? "spec.containers[supervisor].image" : "spec.containers[agent].image",
      (pod) => Object.assign(pod.spec.containers[0], { image: "evil:1" }),
    ],
    ["a node chosen", "spec.nodeName", (pod) => Object.assign(pod.spec, { nodeName: "n1" })],
    ["a node selector", "spec.nodeSelector", (pod) => Object.assign(pod.spec, { nodeSelector: { a: "b" } })],
    ["another scheduler", "spec.schedulerName", (pod) => Object.assign(pod.spec, { schedulerName: "mine" })],
    ["DNS settings", "spec.dnsConfig", (pod) => Object.assign(pod.spec, { dnsConfig: { nameservers: ["1.1.1.1"] } })],
    [
      "host aliases",
      "spec.hostAliases",
      (pod) => Object.assign(pod.spec, { hostAliases: [{ ip: "1.1.1.1", hostnames: ["x"] }] }),
    ],
    [
      "a process namespace of another kind",
      "spec.shareProcessNamespace",
      (pod) => Object.assign(pod.spec, { shareProcessNamespace: role === "workload" }),
    ],
    [
      "an SELinux type",
      "spec.securityContext.seLinuxOptions",
      (pod) => Object.assign(pod.spec.securityContext, { seLinuxOptions: { level: "s0:c1,c2", type: "spc_t" } }),
    ],
    [
      "an SELinux type of a container",
      `spec.containers[${role === "supervisor" ? "supervisor" : "agent"}].securityContext.seLinuxOptions`,
      (pod) => Object.assign(pod.spec.containers[0].securityContext, { seLinuxOptions: { type: "spc_t" } }),
    ],
    ["restarts", "spec.restartPolicy", (pod) => Object.assign(pod.spec, { restartPolicy: "Always" })],
    ["a field nobody thought of", "spec.brandNew", (pod) => Object.assign(pod.spec, { brandNew: 1 })],
    [
      "an annotation for the CNI",
      "metadata.annotations.k8s.v1.cni.cncf.io/networks",
      (pod) => Object.assign(pod.metadata.annotations, { "k8s.v1.cni.cncf.io/networks": "other" }),
    ],
    [
      "an annotation for the runtime",
      "metadata.annotations.io.katacontainers.config.hypervisor.path",
      (pod) => Object.assign(pod.metadata.annotations, { "io.katacontainers.config.hypervisor.path": "/x" }),
    ],
  ])("may not have %s: %s is named", (_what, field, change) => {
    expect(faults(role, change as never)).toContain(field);
  });
});

test.each(["workload", "supervisor"] as const)(
  "a %s Pod of which no affinity was asked for may get node affinity, and no other",
  (role) => {
    const anywhere = testRecord({}, testSettings({}, { pod_anti_affinity: "off" }));
    const given = (affinity: object) => faults(role, (pod: AnyPod) => Object.assign(pod.spec, { affinity }), anywhere);
    expect(testPod(role, anywhere).spec?.affinity).toBeUndefined();
    const nodeAffinity = {
      requiredDuringSchedulingIgnoredDuringExecution: {
        nodeSelectorTerms: [{ matchExpressions: [{ key: "a", operator: "Exists" }] }],
      },
    };
    const term = { topologyKey: "kubernetes.io/hostname" };
    const podAffinity = { requiredDuringSchedulingIgnoredDuringExecution: [term] };
    expect(given({})).toEqual([]);
    expect(given({ nodeAffinity })).toEqual([]);
    expect(given({ nodeAffinity, podAffinity })).toEqual(["spec.affinity.podAffinity"]);
    expect(given({ podAntiAffinity: podAffinity })).toEqual(["spec.affinity.podAntiAffinity"]);
  },
);

describe.each(["workload", "supervisor"] as const)("the selectors of an operator's affinity for the %s", (role) => {
  const hard = "requiredDuringSchedulingIgnoredDuringExecution";
  const soft = "preferredDuringSchedulingIgnoredDuringExecution";
  const term = (selectors: object) => ({ topologyKey: "kubernetes.io/hostname", ...selectors });
  const everywhere = { labelSelector: {}, namespaceSelector: {} };
  const affinityOf = (selectors: object) => ({
    podAntiAffinity: { [hard]: [term(selectors)], [soft]: [{ weight: 1, podAffinityTerm: term(selectors) }] },
  });
  const given = (asked: object, admitted: object) => {
    const record = testRecord(
      {},
      testSettings({ [`${role}_affinity`]: affinityOf(asked) }, { pod_anti_affinity: "off" }),
    );
    const change = (pod: AnyPod) => Object.assign(pod.spec, { affinity: affinityOf(admitted) });
    return faults(role, change as never, record).sort();
  };
  const all = ["labelSelector", "namespaceSelector"].flatMap((selector) => [
    `spec.affinity.podAntiAffinity.${soft}[0].podAffinityTerm.${selector}`,
    `spec.affinity.podAntiAffinity.${hard}[0].${selector}`,
  ]);

  test("may not go, nor come, when they are empty: that is everything, and absent is not", () => {
    expect(given(everywhere, everywhere)).toEqual([]);
    expect(given(everywhere, {})).toEqual(all.sort());
    expect(given({}, everywhere)).toEqual(all.sort());
  });
});

describe("changes that a class explains", () => {
  const record = testRecord(
    {},
    testSettings({ default_runtime_class_name: "kata", workload_priority_class_name: "high" }),
  );
  const cluster = {
    ...calmCluster,
    runtimeClass: (name: string) =>
      name === "kata"
        ? ({
            handler: "kata",
            overhead: { podFixed: { memory: "160Mi" } },
            scheduling: { nodeSelector: { kata: "true" } },
          } as never)
        : undefined,
    priorityClass: (name: string) =>
      (name === "high" ? { metadata: { name }, value: 1000, preemptionPolicy: "Never" } : undefined) as never,
  };
  const faultsWith = (spec: Record<string, unknown>) =>
    violationsOf("workload", testPod("workload", record, { spec }), record, "openshell", cluster).map(
      ({ field }) => field,
    );

  test("overhead, node selector and priority of the requested classes are accepted", () => {
    expect(
      faultsWith({
        overhead: { memory: "160Mi" },
        nodeSelector: { kata: "true" },
        priority: 1000,
        preemptionPolicy: "Never",
      }),
    ).toEqual([]);
  });

  test("others are not", () => {
    expect(
      faultsWith({
        overhead: { memory: "1Mi" },
        nodeSelector: { kata: "false" },
        priority: 5,
        preemptionPolicy: "PreemptLowerPriority",
      }).sort(),
    ).toEqual(["spec.nodeSelector", "spec.overhead", "spec.preemptionPolicy", "spec.priority"]);
  });
});

test("an operator's image rewrite is accepted, and only that", () => {
  const cluster = { ...calmCluster, imageRewrites: { "registry.test/": "mirror.test/cache/" } };
  const images = (image: string) => {
    const pod = testPod("workload", required) as Live<Pod> & { spec: { containers: { image: string }[] } };
    for (const container of pod.spec.containers) container.image = image;
    return violationsOf("workload", pod, required, "openshell", cluster).map(({ field }) => field);
  };
  expect(images("mirror.test/cache/agents/base:1")).toEqual([]);
  expect(images("mirror.test/agents/base:1")).toEqual(["spec.containers[agent].image"]);
});

describe("what the two Pods mean together", () => {
  const pods = (
    change: { workload?: Record<string, unknown>; supervisor?: Record<string, unknown> } = {},
    record = required,
  ) => ({
    workload: testPod("workload", record, { gated: false, spec: change.workload ?? {} }),
    supervisor: testPod("supervisor", record, { gated: false, spec: change.supervisor ?? {} }),
  });
  const failure = (given: ReturnType<typeof pods>, record = required, cluster = calmCluster) =>
    admissionFailure(testObserved(record, { cluster }), record, { gatewayId: "openshell" }, given, "workload")?.reason;

  test("a supervisor that could preempt its workload is refused in required mode", () => {
    expect(failure(pods({ supervisor: { priority: 10 } }))).toBe("PriorityWouldPreemptPeer");
    expect(failure(pods({ supervisor: { priority: 10, preemptionPolicy: "Never" } }))).toBeUndefined();
    expect(failure(pods({ workload: { priority: 10 } }))).toBeUndefined();
    expect(failure(pods({ supervisor: { priority: 10 } }, testRecord()), testRecord())).toBeUndefined();
  });

  test("a foreign policy that opens the fence is named", () => {
    const policy = (spec: object) =>
      ({ metadata: { name: "allow-all", uid: "1", resourceVersion: "1" }, spec }) as never;
    const cluster = (spec: object, tolerated: string[] = []) => ({
      ...calmCluster,
      foreignPolicies: [policy(spec)],
      toleratedPolicies: tolerated,
    });
    const everything = { podSelector: {}, policyTypes: ["Egress"], egress: [{}] };
    expect(failure(pods(), required, cluster(everything))).toBe("ForeignNetworkPolicy");
    expect(failure(pods(), required, cluster(everything, ["allow-all"]))).toBeUndefined();
  });
});

test("a template field that the CRD pruned is told apart from admission", () => {
  const record = testRecord({}, testSettings({ enable_user_namespaces: true }));
  const observed = testObserved(record);
  const stored = observed.resource?.spec.podTemplate.spec as { hostUsers?: boolean };
  delete stored.hostUsers;
  const workload = testPod("workload", record, { spec: { hostUsers: undefined } });
  const given = { workload, supervisor: testPod("supervisor", record) };
  expect(admissionFailure(observed, record, { gatewayId: "openshell" }, given, "workload")).toMatchObject({
    reason: "AgentSandboxSchemaTooOld",
    message: expect.stringContaining("spec.hostUsers"),
  });
});

test("every rule says why", () => {
  for (const [field, { why }] of Object.entries(admissionRules)) expect(why, field).not.toBe("");
  expect(bootstrapGate).toBe("openshell.ai/bootstrap");
  expect(annotations.peerUid).toBe("openshell.ai/peer-uid");
});
