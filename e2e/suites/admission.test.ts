import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Live, Pod } from "../../src/kube/index.ts";
import { labels } from "../../src/manifests/names.ts";
import { openshell } from "../../src/wire/index.ts";
import { Conformance, type Pair, tables } from "../support/conformance.ts";
import { mutating, type PodPatch } from "../support/mutating-policy.ts";
import { failureOf, leftOf } from "../support/outcome.ts";
import { podSecurity } from "../support/pod-security.ts";

const { SandboxPhase } = openshell;

let suite: Conformance;
let level: AsyncDisposable | undefined;
/** What both Pods look like untouched: the API server is asked about copies of them whether a policy is in force. */
let specimen: Pair;
/** Pods of which a container ran, by UID. */
const ran = new Set<string>();

beforeAll(async () => {
  suite = await Conformance.open({ [tables.runtime]: { pod_anti_affinity: "required" } });
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
const container = { name: "extra", image: "openshell.local/pause:dev" };
const tiny = { requests: { cpu: "1m", memory: "1Mi" } };
const escaped = (key: string) => key.replaceAll("/", "~1");

/** What admission did, in which Pod, and what the sandbox has to name. */
const changes: readonly (readonly [string, "workload" | "supervisor", RegExp, readonly PodPatch[]])[] = [
  ["strips the anti-affinity", "workload", /spec\.affinity/, [{ op: "remove", path: "/spec/affinity" }]],
  ["strips the anti-affinity", "supervisor", /spec\.affinity/, [{ op: "remove", path: "/spec/affinity" }]],
  [
    "weakens required to preferred",
    "workload",
    /spec\.affinity/,
    [{ op: "replace", path: "/spec/affinity", value: weaker }],
  ],
  [
    "changes the pair's label",
    "supervisor",
    /metadata\.labels.*pair-id/,
    [{ op: "replace", path: `/metadata/labels/${escaped(labels.pairId)}`, value: "f".repeat(32) }],
  ],
  [
    "swaps the RuntimeClass",
    "workload",
    /spec\.runtimeClassName/,
    [{ op: "add", path: "/spec/runtimeClassName", value: "conformance-b" }],
  ],
  [
    "lowers the resources",
    "workload",
    /containers\[agent\]\.resources/,
    [{ op: "replace", path: "/spec/containers/0/resources", value: tiny }],
  ],
  [
    "adds a hostPath",
    "workload",
    /spec\.volumes\[host\]/,
    [{ op: "add", path: "/spec/volumes/-", value: { name: "host", hostPath: { path: "/" } } }],
  ],
  [
    "makes a container privileged",
    "workload",
    /containers\[agent\]\.securityContext/,
    [
      { op: "replace", path: "/spec/containers/0/securityContext/allowPrivilegeEscalation", value: true },
      { op: "add", path: "/spec/containers/0/securityContext/privileged", value: true },
    ],
  ],
  [
    "adds a sidecar",
    "workload",
    /spec\.containers\[extra\]/,
    [{ op: "add", path: "/spec/containers/-", value: container }],
  ],
  [
    "adds a sidecar",
    "supervisor",
    /spec\.containers\[extra\]/,
    [{ op: "add", path: "/spec/containers/-", value: container }],
  ],
  [
    "takes the host's network",
    "workload",
    /spec\.hostNetwork/,
    [{ op: "add", path: "/spec/hostNetwork", value: true }],
  ],
  [
    "gives another ServiceAccount",
    "workload",
    /spec\.serviceAccountName/,
    [{ op: "replace", path: "/spec/serviceAccountName", value: "default" }],
  ],
  [
    "mounts the ServiceAccount's token",
    "workload",
    /spec\.automountServiceAccountToken/,
    [{ op: "replace", path: "/spec/automountServiceAccountToken", value: true }],
  ],
  ["removes the gate", "workload", /spec\.schedulingGates/, [{ op: "remove", path: "/spec/schedulingGates" }]],
];

describe("admission", () => {
  it.each(changes)(
    "that %s (%s Pod) is refused with the field %s named; nothing starts and nothing is left",
    async (_what, role, field, patches) => {
      await using _policy = await mutating(suite, role, patches, specimen[role]);
      const before = new Set(ran);
      const { text, sandbox } = await failureOf(suite.create());
      expect(text).toMatch(field);
      if (sandbox !== undefined) expect(text).toContain("AdmissionViolation");
      expect([...ran].filter((uid) => !before.has(uid))).toEqual([]);
      if (sandbox === undefined) return;
      await suite.pods.until("its Pods to be gone", () => suite.podsOf(sandbox).length === 0, { deadlineMs: 60_000 });
      const left = async () => (await leftOf(suite, sandbox)).filter((object) => !object.startsWith("service/"));
      await expect.poll(left, { timeout: 30_000 }).toEqual([]);
      await sandbox[Symbol.asyncDispose]();
      // What the Sandbox owned is collected after it.
      await expect.poll(() => leftOf(suite, sandbox), { timeout: 60_000 }).toEqual([]);
    },
  );

  it("that changes the pair's label (workload Pod) is refused by that label, or undone by the Agent Sandbox controller first", async () => {
    const change: PodPatch = {
      op: "replace",
      path: `/metadata/labels/${escaped(labels.pairId)}`,
      value: "f".repeat(32),
    };
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

  it("that only adds what is harmless lets a sandbox pass", async () => {
    const onLinux = { matchExpressions: [{ key: "kubernetes.io/os", operator: "In", values: ["linux"] }] };
    const nodeAffinity = {
      preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 1, preference: onLinux }],
    };
    await using _policy = await mutating(
      suite,
      "workload",
      [
        { op: "add", path: "/metadata/labels/team", value: "research" },
        { op: "add", path: "/spec/affinity/nodeAffinity", value: nodeAffinity },
        {
          op: "add",
          path: "/spec/tolerations",
          value: [{ key: "conformance.openshell.test/none", operator: "Exists", effect: "NoSchedule" }],
        },
        { op: "add", path: "/spec/imagePullSecrets", value: [{ name: "registry-of-the-cluster" }] },
        { op: "replace", path: "/spec/containers/0/resources/requests/cpu", value: "150m" },
      ],
      specimen.workload,
    );
    await using sandbox = await suite.create();
    await sandbox.ready();
    const { workload } = await suite.pair(sandbox);
    expect(workload.metadata.labels).toMatchObject({ team: "research" });
    expect(workload.spec?.containers[0]?.resources?.requests).toMatchObject({ cpu: "150m" });
  });
});
