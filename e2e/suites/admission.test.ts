import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { referenceOf } from "../../images/references.ts";
import type { Live, Pod } from "../../src/kube/index.ts";
import { labels } from "../../src/manifests/names.ts";
import { openshell } from "../../src/wire/index.ts";
import { Conformance, type Pair, tables } from "../support/conformance.ts";
import { mutating, type PodPatch } from "../support/mutating-policy.ts";
import { objectNames } from "../support/object-names.ts";
import { failed, failureOf, leftOf, said } from "../support/outcome.ts";
import { podSecurity } from "../support/pod-security.ts";

const { SandboxPhase } = openshell;

let suite: Conformance;
let level: AsyncDisposable | undefined;
/** What both Pods look like untouched: the API server is asked about copies of them whether a policy is in force. */
let specimen: Pair;
/** Pods of which a container ran, by UID. */
const ran = new Set<string>();

beforeAll(async () => {
  suite = await Conformance.open({
    [tables.runtime]: { pod_anti_affinity: "required" },
    [`${tables.driver}.admission`]: {
      allowed_image_rewrites: { [referenceOf("busybox")]: referenceOf("glibc") },
    },
  });
  // The cluster's own Pod Security would refuse some of these before they reach us.
  level = await podSecurity(suite, "privileged");
  const note = (pod: Live<Pod>) => {
    if ((pod.status?.containerStatuses ?? []).some(({ state }) => state?.running ?? state?.terminated))
      ran.add(pod.metadata.uid);
  };
  suite.pods.on("added", note);
  suite.pods.on("modified", note);
  await using sandbox = await suite.create();
  specimen = await suite.pair(sandbox);
});

afterAll(async () => {
  await level?.[Symbol.asyncDispose]();
  await suite[Symbol.asyncDispose]();
});

const weaker = {
  podAntiAffinity: {
    preferredDuringSchedulingIgnoredDuringExecution: [
      {
        weight: 100,
        podAffinityTerm: {
          topologyKey: "kubernetes.io/hostname",
          labelSelector: { matchLabels: { [labels.boundaryRole]: "supervisor" } },
        },
      },
    ],
  },
};
const image = "openshell.local/pause:dev";
const container = { name: "extra", image };
const tiny = { requests: { cpu: "1m", memory: "1Mi" } };
const escaped = (key: string) => key.replaceAll("/", "~1");

const highest: readonly PodPatch[] = [
  { op: "add", path: "/spec/priorityClassName", value: "system-cluster-critical" },
  { op: "remove", path: "/spec/priority" },
];
const privileged: readonly PodPatch[] = [
  { op: "replace", path: "/spec/containers/0/securityContext/allowPrivilegeEscalation", value: true },
  { op: "add", path: "/spec/containers/0/securityContext/privileged", value: true },
];
const hostPath: PodPatch = {
  op: "add",
  path: "/spec/volumes/-",
  value: { name: "host", hostPath: { path: "/" } },
};
const hostNetwork: PodPatch = { op: "add", path: "/spec/hostNetwork", value: true };
const anotherAccount: PodPatch = { op: "replace", path: "/spec/serviceAccountName", value: "default" };
const mountedToken: PodPatch = { op: "replace", path: "/spec/automountServiceAccountToken", value: true };
const noGate: PodPatch = { op: "remove", path: "/spec/schedulingGates" };
const anotherClass: PodPatch = { op: "add", path: "/spec/runtimeClassName", value: "conformance-b" };
const anotherImage: PodPatch = { op: "replace", path: "/spec/containers/0/image", value: image };
const lowered: PodPatch = { op: "replace", path: "/spec/containers/0/resources", value: tiny };
const sidecar: PodPatch = { op: "add", path: "/spec/containers/-", value: container };
const noAffinity: PodPatch = { op: "remove", path: "/spec/affinity" };
const pairLabel = `/metadata/labels/${escaped(labels.pairId)}`;

/** What admission did, in which Pod, and what the sandbox has to name: no more than the three fields that a condition has room for. */
const changes: readonly (readonly [string, "workload" | "supervisor", string, readonly PodPatch[]])[] = [
  ["strips the anti-affinity", "workload", "spec.affinity", [noAffinity]],
  ["strips the anti-affinity", "supervisor", "spec.affinity", [noAffinity]],
  [
    "weakens required to preferred",
    "workload",
    "spec.affinity",
    [{ op: "replace", path: "/spec/affinity", value: weaker }],
  ],
  [
    "raises the priority and rewrites the image",
    "workload",
    "spec.priorityClassName, spec.priority, spec.containers[agent].image",
    [...highest, anotherImage],
  ],
  [
    "raises the priority and takes the host's network",
    "supervisor",
    "spec.priorityClassName, spec.priority, spec.hostNetwork",
    [...highest, hostNetwork],
  ],
  [
    "changes the pair's label",
    "supervisor",
    `metadata.labels.${labels.pairId}`,
    [{ op: "replace", path: pairLabel, value: "f".repeat(32) }],
  ],
  ["drops the pair's label", "supervisor", `metadata.labels.${labels.pairId}`, [{ op: "remove", path: pairLabel }]],
  ["swaps the RuntimeClass", "workload", "spec.runtimeClassName", [anotherClass]],
  ["lowers the resources", "workload", "spec.containers[agent].resources", [lowered]],
  [
    "swaps the RuntimeClass, lowers the resources and rewrites the image",
    "supervisor",
    "spec.runtimeClassName, spec.containers[supervisor].resources, spec.containers[supervisor].image",
    [anotherClass, lowered, anotherImage],
  ],
  ["adds a hostPath", "workload", "spec.volumes[host]", [hostPath]],
  ["makes a container privileged", "workload", "spec.containers[agent].securityContext.privileged", privileged],
  [
    "adds a hostPath and makes a container privileged",
    "supervisor",
    "spec.volumes[host], spec.containers[supervisor].securityContext.privileged",
    [hostPath, ...privileged],
  ],
  ["adds a sidecar", "workload", "spec.containers[extra]", [sidecar]],
  ["adds a sidecar", "supervisor", "spec.containers[extra]", [sidecar]],
  ["takes the host's network", "workload", "spec.hostNetwork", [hostNetwork]],
  ["gives another ServiceAccount", "workload", "spec.serviceAccountName", [anotherAccount]],
  ["mounts the ServiceAccount's token", "workload", "spec.automountServiceAccountToken", [mountedToken]],
  ["mounts the ServiceAccount's token", "supervisor", "spec.automountServiceAccountToken", [mountedToken]],
  ["removes the gate", "workload", "spec.schedulingGates", [noGate]],
  [
    "removes the gate and gives another ServiceAccount",
    "supervisor",
    // And `spec.nodeName`, once it has one.
    "spec.schedulingGates, spec.serviceAccountName",
    [noGate, anotherAccount],
  ],
];

describe("admission", () => {
  it.each(changes)(
    "that %s (%s Pod) is refused with %s named; nothing starts and nothing is left",
    async (_what, role, fields, patches) => {
      await using _policy = await mutating(suite, role, patches, specimen[role]);
      const [before, ranBefore] = [await objectNames(suite), new Set(ran)];
      const { text, sandbox } = await failureOf(suite.create());
      await using _made = sandbox;
      for (const field of fields.split(", ")) expect(text).toContain(field);
      if (sandbox !== undefined) expect(text).toContain("AdmissionViolation");
      expect([...ran].filter((uid) => !ranBefore.has(uid))).toEqual([]);
      if (sandbox !== undefined) {
        await suite.pods.until("its Pods to be gone", () => suite.podsOf(sandbox).length === 0, { deadlineMs: 60_000 });
        const left = async () => (await leftOf(suite, sandbox)).filter((object) => !object.startsWith("service/"));
        await expect.poll(left, { timeout: 30_000 }).toEqual([]);
        await sandbox[Symbol.asyncDispose]();
      }
      // What the Sandbox owned is collected after it. Former ones may still be.
      const made = async () => (await objectNames(suite)).filter((name) => !before.includes(name));
      await expect.poll(made, { timeout: 60_000 }).toEqual([]);
    },
  );

  it("that changes the pair's label (workload Pod) is refused by that label, or undone by the Agent Sandbox controller first", async () => {
    const change: PodPatch = { op: "replace", path: pairLabel, value: "f".repeat(32) };
    await using _policy = await mutating(suite, "workload", [change], specimen.workload);
    await using sandbox = await suite.create();
    // The controller puts back what its template says of labels, about when the driver reads the Pod: which comes first is open.
    const { status } = await sandbox.until({
      what: "an end of the start, good or bad",
      withinMs: 120_000,
      test: (now) => [SandboxPhase.READY, SandboxPhase.ERROR].includes(now.status?.phase ?? SandboxPhase.UNSPECIFIED),
    });
    if (status?.phase === SandboxPhase.ERROR) {
      expect(status.conditions.map(({ message }) => message).join()).toMatch(/metadata\.labels.*pair-id/);
    } else {
      const { workload, supervisor } = await suite.pair(sandbox);
      expect(workload.metadata.labels?.[labels.pairId]).toBe(supervisor.metadata.labels?.[labels.pairId]);
    }
  });

  it("that only adds what is harmless, or replaces an image as the operator allows, lets a sandbox pass; another image ends it while it runs", async () => {
    const onLinux = { matchExpressions: [{ key: "kubernetes.io/os", operator: "In", values: ["linux"] }] };
    const nodeAffinity = {
      preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 1, preference: onLinux }],
    };
    const toleration = { key: "conformance.openshell.test/none", operator: "Exists", effect: "NoSchedule" };
    const harmless: readonly PodPatch[] = [
      { op: "add", path: "/metadata/labels/team", value: "research" },
      { op: "add", path: "/spec/affinity/nodeAffinity", value: nodeAffinity },
      { op: "add", path: "/spec/imagePullSecrets", value: [{ name: "registry-of-the-cluster" }] },
      { op: "replace", path: "/spec/containers/0/resources/requests/cpu", value: "150m" },
    ];
    const rewritten = referenceOf("glibc");
    const ofWorkload: readonly PodPatch[] = [
      { op: "add", path: "/spec/tolerations", value: [toleration] },
      { op: "replace", path: "/spec/initContainers/1/image", value: rewritten },
      { op: "replace", path: "/spec/containers/0/image", value: rewritten },
    ];
    const ofSupervisor: readonly PodPatch[] = [{ op: "add", path: "/spec/tolerations/-", value: toleration }];
    await using stack = new AsyncDisposableStack();
    stack.use(await mutating(suite, "workload", [...harmless, ...ofWorkload], specimen.workload));
    stack.use(await mutating(suite, "supervisor", [...harmless, ...ofSupervisor], specimen.supervisor));
    await using sandbox = await suite.create();
    await sandbox.ready();
    const { workload, supervisor } = await suite.pair(sandbox);
    for (const { metadata, spec } of [workload, supervisor]) {
      expect(metadata.labels).toMatchObject({ team: "research" });
      expect(spec?.tolerations).toContainEqual(toleration);
      expect(spec?.containers[0]?.resources?.requests).toMatchObject({ cpu: "150m" });
    }
    expect(await sandbox.exec(["cat", "/sandbox/seed.txt"])).toMatchObject({ stdout: "seeded by glibc\n" });

    const { name, namespace = "" } = workload.metadata;
    await suite.kubectl(["-n", namespace, "set", "image", `pod/${name}`, `agent=${image}`]);
    expect(said(await sandbox.until(failed()))).toMatch(
      /PodsAdmitted AdmissionViolation: somebody changed the workload Pod: spec\.containers\[agent\]\.image/,
    );
  });
});
