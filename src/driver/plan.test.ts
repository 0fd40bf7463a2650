import { describe, expect, test } from "vitest";
import type { KubernetesSettings } from "../config/index.ts";
import type { KubeEvent, Live, NetworkPolicy, Pod } from "../kube/index.ts";
import { annotations, labels } from "../manifests/index.ts";
import {
  calmCluster,
  runningStatus,
  suspendedAt,
  testGatewayId,
  testNow,
  testObserved,
  testPod,
  testRecord,
  testReleases,
  testResource,
  testService,
  testSettings,
} from "./_testing.ts";
import { type Action, type RefusedReplacement, type Request, secretKey, sessionKey } from "./action.ts";
import { actedOn } from "./changed-since.ts";
import type { Observed } from "./observed.ts";
import { plan } from "./plan.ts";
import { podWithoutSecret } from "./platform-events.ts";
import type { Failure, GenerationRecord } from "./record.ts";

const required = testSettings({}, { pod_anti_affinity: "required" });
const scheduled = { phase: "Pending", conditions: [{ type: "PodScheduled", status: "True" }] };
const suspended = suspendedAt(1);

function planOf(
  observed: Observed,
  memory: {
    request?: Request;
    written?: readonly string[];
    missing?: readonly string[];
    seen?: ReadonlyMap<string, Readonly<Record<string, string>>>;
    refusedReplacement?: RefusedReplacement;
    troubled?: readonly Live<Pod>[];
    nodeRefusals?: ReadonlyMap<string, string>;
    restored?: ReadonlyMap<string, readonly number[]>;
  } = {},
) {
  const generation = observed.record?.ok ? observed.record.record.generation.id : "";
  return plan(observed, {
    gatewayId: testGatewayId,
    // What other processes made has tests of its own.
    rendered: { workload: generation, supervisor: generation },
    request: memory.request,
    writtenSecrets: new Set(memory.written),
    missingSecrets: new Set(memory.missing),
    ...(memory.seen && { seen: memory.seen }),
    ...(memory.restored && { restored: memory.restored }),
    ...(memory.troubled && { troubled: memory.troubled }),
    ...(memory.nodeRefusals && { nodeRefusals: memory.nodeRefusals }),
    refusedReplacement: memory.refusedReplacement,
  });
}
const verbs = (actions: readonly Action[]) =>
  actions.map((action) => ("role" in action ? `${action.do} ${action.role}` : action.do));
const both = (record: GenerationRecord, change: { workload?: object; supervisor?: object } = {}) => ({
  workloads: [testPod("workload", record, change.workload ?? {})],
  supervisors: [testPod("supervisor", record, change.supervisor ?? {})],
});
const keys = (record: GenerationRecord, ...pods: Live<Pod>[]) => pods.map((pod) => secretKey(pod, record));

describe("a new sandbox", () => {
  const record = testRecord();
  const fresh = (change: Partial<Observed> = {}) =>
    testObserved(record, { resource: testResource(record, false), service: undefined, ...change });

  test("gets its Service and its supervisor at once, while the CR is suspended", () => {
    expect(verbs(planOf(fresh()).actions)).toEqual(["create-service", "create-supervisor"]);
  });

  test("runs once both are there, and the record has the supervisor's UID", () => {
    const { actions } = planOf(fresh({ service: testService(record), supervisors: [testPod("supervisor", record)] }));
    expect(actions).toMatchObject([{ do: "run", newTemplate: false, record: { supervisorUid: "supervisor-uid" } }]);
  });

  test("waits for the controller to make the Pod, and looks again when it is silent", () => {
    const { actions, againAfterMs } = planOf(testObserved(record, { supervisors: [testPod("supervisor", record)] }));
    expect(actions).toEqual([]);
    expect(againAfterMs).toBeGreaterThan(0);
  });

  test("gets both Secrets when both Pods are what was asked for", () => {
    expect(verbs(planOf(testObserved(record, both(record))).actions)).toEqual([
      "write-secret workload",
      "write-secret supervisor",
    ]);
  });

  test("gets no Secret while the fence is down, and what is wrong with its Pods is said all the same", () => {
    const cluster = { ...calmCluster, fenceIsUp: false };
    expect(planOf(testObserved(record, { ...both(record), cluster })).actions).toEqual([]);
    const pods = both(record, { workload: { spec: { hostNetwork: true } } });
    expect(planOf(testObserved(record, { ...pods, cluster })).actions[0]).toMatchObject({
      record: { failure: { reason: "AdmissionViolation", message: expect.stringContaining("spec.hostNetwork") } },
    });
  });

  test("is released with both gates at once where placement does not matter", () => {
    const pods = both(record);
    const written = keys(record, ...pods.workloads, ...pods.supervisors);
    expect(planOf(testObserved(record, pods), { written }).actions).toMatchObject([
      { do: "release", role: "workload", peerUid: "supervisor-uid" },
      { do: "release", role: "supervisor", peerUid: "workload-uid" },
    ]);
  });

  test("is complete when the agent's container runs: the record says seeded, and nothing is left to do", () => {
    const pods = both(record, {
      workload: { gated: false, node: "a", status: runningStatus },
      supervisor: { gated: false, node: "b" },
    });
    expect(planOf(testObserved(record, pods)).actions).toMatchObject([
      { do: "record", record: { seeded: true, workloadUid: "workload-uid" } },
    ]);
    const seeded = testRecord({ seeded: true });
    expect(planOf(testObserved(seeded, pods)).actions).toEqual([]);
  });
});

describe("required anti-affinity", () => {
  const record = testRecord({}, required);
  const written = (pods: ReturnType<typeof both>) => keys(record, ...pods.workloads, ...pods.supervisors);

  test("opens the workload's gate first", () => {
    const pods = both(record);
    expect(verbs(planOf(testObserved(record, pods), { written: written(pods) }).actions)).toEqual(["release workload"]);
  });

  test("opens the supervisor's once the workload has a node, and not before", () => {
    const waiting = both(record, { workload: { gated: false } });
    expect(planOf(testObserved(record, waiting), { written: written(waiting) }).actions).toEqual([]);
    const placed = both(record, { workload: { gated: false, node: "a", status: scheduled } });
    expect(verbs(planOf(testObserved(record, placed), { written: written(placed) }).actions)).toEqual([
      "release supervisor",
    ]);
  });

  describe("with the supervisor blocked by its workload", () => {
    const message =
      "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod anti-affinity rules. preemption: none";
    const lastTransitionTime = new Date(testNow.getTime() - 1_500).toISOString();
    const unschedulable = {
      phase: "Pending",
      conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message, lastTransitionTime }],
    };
    const waiting = (of: GenerationRecord) =>
      both(of, {
        workload: { gated: false, node: "a", status: runningStatus },
        supervisor: { gated: false, status: unschedulable },
      });

    test("goes on mending and recording while it waits for its turn", () => {
      expect(planOf(testObserved(record, { ...waiting(record), service: undefined }))).toMatchObject({
        actions: [{ do: "create-service" }, { do: "record", record: { seeded: true, workloadUid: "workload-uid" } }],
        againAfterMs: 500,
      });
    });

    test("does not sleep past provisioning_timeout", () => {
      const startedAt = new Date(testNow.getTime() - 59_900).toISOString();
      const of = testRecord(
        { seeded: true, startedAt },
        testSettings({ provisioning_timeout: "1m" }, { pod_anti_affinity: "required" }),
      );
      const pods = both(of, {
        workload: { gated: false, node: "a", status: scheduled },
        supervisor: { gated: false, status: unschedulable },
      });
      expect(planOf(testObserved(of, pods))).toEqual({ actions: [], againAfterMs: 100 });
    });
  });

  test("knows the workload that follows one that gave up its node, and ends when that is replaced", () => {
    const moved = testRecord({ seeded: true, placement: { evicted: ["w1", "s1"] } }, required);
    // Released with w1, and it keeps that name.
    const metadata = { annotations: testReleases.write("supervisor-uid", "w1") };
    const supervisors = [testPod("supervisor", moved, { gated: false, node: "b", metadata })];
    const workload = (uid: string, gated = false) =>
      testPod("workload", moved, { uid, gated, ...(gated ? {} : { node: "a", status: runningStatus }) });
    const [known] = planOf(testObserved(moved, { workloads: [workload("w2")], supervisors })).actions;
    expect(known).toMatchObject({ do: "record", record: { workloadUid: "w2", placement: moved.placement } });
    if (known?.do !== "record") expect.fail("nothing recorded");
    const then = (uid: string, gated: boolean) =>
      planOf(testObserved(known.record, { workloads: [workload(uid, gated)], supervisors })).actions;
    expect(then("w2", false)).toEqual([]);
    expect(then("w3", true)[0]).toMatchObject({ record: { failure: { reason: "WorkloadDeleted" } } });
  });

  test("ends a pair that shares a node", () => {
    const pods = both(record, { workload: { gated: false, node: "a" }, supervisor: { gated: false, node: "a" } });
    expect(planOf(testObserved(record, pods)).actions).toMatchObject([
      { do: "suspend", record: { intent: "failed", failure: { reason: "PlacementViolated" } } },
      { do: "delete-pod" },
    ]);
  });
});

describe("after a crash", () => {
  const record = testRecord({}, required);

  test("with both gates closed both Secrets are written anew", () => {
    expect(verbs(planOf(testObserved(record, both(record))).actions)).toEqual([
      "write-secret workload",
      "write-secret supervisor",
    ]);
  });

  test("with the workload released only the other Secret is, and the other gate is opened", () => {
    const pods = both(record, { workload: { gated: false, node: "a", status: scheduled } });
    expect(verbs(planOf(testObserved(record, pods)).actions)).toEqual(["write-secret supervisor"]);
    expect(verbs(planOf(testObserved(record, pods), { written: keys(record, ...pods.supervisors) }).actions)).toEqual([
      "release supervisor",
    ]);
  });

  test("with everything released nothing is written", () => {
    const seeded = testRecord({ seeded: true });
    const pods = both(seeded, {
      workload: { gated: false, node: "a", status: runningStatus },
      supervisor: { gated: false, node: "b" },
    });
    expect(planOf(testObserved(seeded, pods)).actions).toEqual([]);
  });
});

describe("what ends a generation", () => {
  const record = testRecord({ seeded: true });
  const released = (change: { workload?: object; supervisor?: object } = {}) =>
    both(record, {
      workload: { gated: false, node: "a", status: runningStatus, ...change.workload },
      supervisor: { gated: false, node: "b", ...change.supervisor },
    });
  const terminate = { ...record.settings.supervisor_replacement, mode: "terminate" as const };
  const status = (name: string, state: object) => ({
    phase: "Failed",
    containerStatuses: [{ name, image: "x", imageID: "", ready: false, restartCount: 0, state }],
  });

  test("is what the workload said before nothing was left of it; another Pod's word is not its own", () => {
    const conditions = [{ type: "DisruptionTarget", status: "True", reason: "DeletionByPodGC" }];
    const { workloads, supervisors } = released({ workload: { status: { ...runningStatus, conditions } } });
    const endOf = (troubled: readonly Live<Pod>[]) =>
      planOf(testObserved(record, { workloads: [], supervisors }), { troubled }).actions[0];
    expect(endOf(workloads)).toMatchObject({ record: { failure: { reason: "NodeLost" } } });
    const others = workloads.map((pod) => ({ ...pod, metadata: { ...pod.metadata, uid: "another" } }));
    expect(endOf(others)).toMatchObject({ record: { failure: { reason: "WorkloadDeleted" } } });
  });

  test("is what its node says that it can never do for the workload, and no other Pod, nor for one that runs", () => {
    const pending = { phase: "Pending", containerStatuses: [] };
    const endOf = (status: object, uid = "workload-uid") =>
      planOf(testObserved(record, released({ workload: { status } })), {
        nodeRefusals: new Map([[uid, "cannot run the workload in a user namespace"]]),
      }).actions[0];
    expect(endOf(pending)).toMatchObject({
      do: "suspend",
      record: {
        failure: {
          condition: "WorkloadReady",
          reason: "NodeRefused",
          message: "node a cannot run the workload in a user namespace",
        },
      },
    });
    expect(endOf(pending, "supervisor-uid")).not.toMatchObject({ do: "suspend" });
    expect(endOf(runningStatus)).not.toMatchObject({ do: "suspend" });
  });

  test.each<[string, string, ReturnType<typeof both>]>([
    [
      "the workload deleted by hand",
      "WorkloadDeleted",
      released({ workload: { metadata: { deletionTimestamp: "2026-12-01T12:00:00Z" } } }),
    ],
    [
      "the workload drained from its node",
      "Evicted",
      released({
        workload: {
          metadata: { deletionTimestamp: "2026-12-01T12:00:00Z" },
          status: {
            ...runningStatus,
            conditions: [{ type: "DisruptionTarget", status: "True", reason: "EvictionByEvictionAPI" }],
          },
        },
      }),
    ],
    [
      "another workload Pod of the same generation",
      "WorkloadDeleted",
      released({ workload: { uid: "another", gated: true } }),
    ],
    ["no workload Pod although it ran", "WorkloadDeleted", { ...released(), workloads: [] }],
    [
      "the workload out of memory",
      "OutOfMemory",
      released({ workload: { status: status("agent", { terminated: { exitCode: 137, reason: "OOMKilled" } }) } }),
    ],
    [
      "the workload evicted",
      "Evicted",
      released({ workload: { status: { phase: "Failed", reason: "Evicted", message: "low memory" } } }),
    ],
    [
      "an invalid image",
      "InvalidImageName",
      released({
        workload: {
          status: {
            phase: "Pending",
            containerStatuses: [
              {
                name: "agent",
                image: "X",
                imageID: "",
                ready: false,
                restartCount: 0,
                state: { waiting: { reason: "InvalidImageName" } },
              },
            ],
          },
        },
      }),
    ],
    [
      "a supervisor with an invalid image",
      "InvalidImageName",
      released({
        supervisor: {
          status: {
            phase: "Pending",
            containerStatuses: [
              {
                name: "supervisor",
                image: "X",
                imageID: "",
                ready: false,
                restartCount: 0,
                state: { waiting: { reason: "InvalidImageName" } },
              },
            ],
          },
        },
      }),
    ],
    [
      "a failed init container",
      "InitFailed",
      released({
        workload: {
          status: {
            phase: "Failed",
            initContainerStatuses: [
              {
                name: "seed",
                image: "x",
                imageID: "",
                ready: false,
                restartCount: 0,
                state: { terminated: { exitCode: 73, message: "WorkspaceNotWritable" } },
              },
            ],
          },
        },
      }),
    ],
  ])("%s: %s", (_what, reason, pods) => {
    const { actions } = planOf(testObserved(record, pods));
    expect(actions[0]).toMatchObject({ do: "suspend", record: { intent: "failed", failure: { reason } } });
    expect(verbs(actions)).toContain("delete-pod");
  });

  test.each<[string, string]>([
    [
      "QuotaExceeded",
      'Error seen: pods "q" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0',
    ],
    ["PodSecurityRefused", 'Error seen: pods "p" is forbidden: violates PodSecurity "restricted:latest": x'],
    ["RuntimeClassNotFound", 'Error seen: pods "r" is forbidden: pod rejected: RuntimeClass "nope" not found'],
  ])("%s, as the controller tells it on the CR", (reason, message) => {
    const ready = {
      type: "Ready",
      status: "False",
      reason: "ReconcilerError",
      message,
      lastTransitionTime: "",
      observedGeneration: 1,
    };
    const observed = testObserved(record, {
      resource: testResource(record, true, { conditions: [ready] }),
      supervisors: [testPod("supervisor", record)],
    });
    expect(planOf(observed).actions[0]).toMatchObject({ do: "suspend", record: { failure: { reason } } });
  });

  test("QuotaExceeded, of the volume, whose Pod the controller makes all the same; not once that Pod has a node", () => {
    const message =
      'Error seen: persistentvolumeclaims "w" is forbidden: exceeded quota: q, requested: requests.storage=1Gi, used: 0, limited: 0';
    const ready = { type: "Ready", status: "False", reason: "ReconcilerError", message, lastTransitionTime: "" };
    const resource = testResource(record, true, { conditions: [ready] });
    const of = (change: object) =>
      planOf(testObserved(record, { ...both(record, { workload: change }), resource })).actions[0];
    for (const change of [{}, { gated: false }]) {
      expect(of(change)).toMatchObject({
        do: "suspend",
        record: {
          failure: { reason: "QuotaExceeded", message: expect.stringContaining("the workspace volume's claim: ") },
        },
      });
    }
    const conditions = [{ type: "PodScheduled", status: "True" }];
    expect(of({ gated: false, spec: { nodeName: "n" }, status: { conditions } })).not.toMatchObject({ do: "suspend" });
  });

  test.each([
    'failed calling webhook "w.example.com": connect: connection refused',
    'pods is forbidden: User "system:serviceaccount:a:b" cannot create resource "pods" in API group ""',
  ])("a refusal that may be over in a moment, once it lasts: %s", (message) => {
    const ready = { type: "Ready", status: "False", reason: "ReconcilerError", message, lastTransitionTime: "" };
    const planAfter = (ms: number) =>
      planOf(
        testObserved(record, {
          resource: testResource(record, true, { conditions: [ready] }),
          supervisors: [testPod("supervisor", record)],
          now: new Date(testNow.getTime() + ms),
        }),
      );
    expect(planAfter(1_000)).toMatchObject({ actions: [], againAfterMs: 3_000 });
    expect(planAfter(4_000).actions[0]).toMatchObject({ do: "suspend", record: { intent: "failed" } });
  });

  test("a quota that refuses a workload made anew, once it has had time to count the former's end; a first one at once", () => {
    const message = 'pods "q" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2';
    const ready = { type: "Ready", status: "False", reason: "ReconcilerError", message, lastTransitionTime: "" };
    const planAfter = (ms: number, session: number) => {
      const startedAt = new Date(testNow.getTime() - 3_600_000).toISOString();
      const of = { ...record, startedAt, generation: { ...record.generation, session } };
      const resource = testResource(of, true, { conditions: [ready] });
      const supervisors = [testPod("supervisor", of)];
      return planOf(testObserved(of, { resource, supervisors, now: new Date(testNow.getTime() + ms) }));
    };
    const ended = { do: "suspend", record: { failure: { reason: "QuotaExceeded" } } };
    expect(planAfter(1_000, 2).againAfterMs).toBe(3_000);
    expect(verbs(planAfter(1_000, 2).actions)).not.toContain("suspend");
    expect(planAfter(4_000, 2).actions[0]).toMatchObject(ended);
    expect(planAfter(1_000, 1).actions[0]).toMatchObject(ended);
  });

  test("a refusal that the controller's clock says is still to come: it is waited out no longer", () => {
    const planAfter = (ms: number, aheadMs: number) => {
      const lastTransitionTime = new Date(testNow.getTime() + aheadMs).toISOString();
      const message = 'failed calling webhook "w.example.com": connect: connection refused';
      const ready = { type: "Ready", status: "False", reason: "ReconcilerError", message, lastTransitionTime };
      const resource = testResource(record, true, { conditions: [ready] });
      const supervisors = [testPod("supervisor", record)];
      return planOf(testObserved(record, { resource, supervisors, now: new Date(testNow.getTime() + ms) }));
    };
    expect(planAfter(1_000, 3_600_000)).toMatchObject({ actions: [], againAfterMs: 3_000 });
    expect(planAfter(4_000, 3_600_000).actions[0]).toMatchObject({ do: "suspend", record: { intent: "failed" } });
    expect(planAfter(4_000, 2_000)).toMatchObject({ actions: [], againAfterMs: 2_000 });
  });

  test("a Pod of another generation, unless it may be a former one's that is still to end", () => {
    const former = testRecord({ generation: { ...record.generation, id: "f".repeat(32) } });
    const planAfter = (ms: number, madeMs: number, of = former, spec: Record<string, unknown> = {}) => {
      const pod = testPod("workload", of, { spec });
      const creationTimestamp = new Date(testNow.getTime() + madeMs).toISOString();
      const workloads = [{ ...pod, metadata: { ...pod.metadata, creationTimestamp } }];
      const supervisors = [testPod("supervisor", record)];
      return planOf(testObserved(record, { workloads, supervisors, now: new Date(testNow.getTime() + ms) }));
    };
    const ended = [{ do: "suspend", record: { failure: { reason: "AdmissionViolation" } } }, { do: "delete-pod" }];
    expect(planAfter(4_000, -1_000)).toMatchObject({ actions: [], againAfterMs: 6_000 });
    expect(planAfter(10_000, -1_000).actions).toMatchObject(ended);
    expect(planAfter(4_000, 1_000).actions).toMatchObject(ended);
    expect(planAfter(4_000, -1_000, former, { containers: [], initContainers: [] }).actions).toMatchObject(ended);
  });

  test("a stale error of the controller does not", () => {
    const ready = {
      type: "Ready",
      status: "False",
      reason: "ReconcilerError",
      message: "exceeded quota",
      lastTransitionTime: "",
      observedGeneration: 0,
    };
    const observed = testObserved(record, {
      resource: testResource(record, true, { conditions: [ready] }),
      supervisors: [testPod("supervisor", record)],
    });
    expect(planOf(observed).actions).toEqual([]);
  });

  describe("and what may pass, which the controller reports,", () => {
    const error = { type: "Ready", status: "False", reason: "ReconcilerError", message: "x", lastTransitionTime: "" };
    const planAfter = (ms: number, change: { nudgedMs?: number; workloads?: Live<Pod>[] } = {}) => {
      const now = new Date(testNow.getTime() + ms);
      const resource = testResource(record, true, { conditions: [error] });
      const { nudgedMs, workloads = [] } = change;
      const nudged = nudgedMs && { [annotations.nudge]: new Date(testNow.getTime() + nudgedMs).toISOString() };
      const metadata = { ...resource.metadata, annotations: { ...resource.metadata.annotations, ...nudged } };
      const supervisors = [testPod("supervisor", record)];
      return planOf(testObserved(record, { resource: { ...resource, metadata }, workloads, supervisors, now }));
    };

    test("does not: the controller is asked to try again, once in 30 s", () => {
      expect(verbs(planAfter(29_000).actions)).toEqual([]);
      expect(planAfter(29_000).againAfterMs).toBe(1_000);
      expect(verbs(planAfter(30_000).actions)).toEqual(["nudge"]);
      expect(verbs(planAfter(45_000, { nudgedMs: 30_000 }).actions)).toEqual([]);
      expect(verbs(planAfter(60_000, { nudgedMs: 30_000 }).actions)).toEqual(["nudge"]);
    });

    test("is asked although somebody wrote that it will have been", () => {
      expect(verbs(planAfter(30_000, { nudgedMs: 3_600_000 }).actions)).toEqual(["nudge"]);
    });

    test("is asked for as long as the workload has no node: what it cannot make may be the claim", () => {
      expect(verbs(planAfter(30_000, { workloads: [testPod("workload", record)] }).actions)).toContain("nudge");
      const { workloads } = both(record, { workload: { gated: false, node: "a" } });
      expect(verbs(planAfter(30_000, { workloads }).actions)).not.toContain("nudge");
    });
  });

  test("a violation, with the field named", () => {
    const pods = both(testRecord(), { workload: { spec: { hostNetwork: true } } });
    expect(planOf(testObserved(testRecord(), pods)).actions[0]).toMatchObject({
      record: { failure: { reason: "AdmissionViolation", message: expect.stringContaining("spec.hostNetwork") } },
    });
  });

  describe.each(["workload", "supervisor"] as const)("a gate of the %s that somebody else opened", (role) => {
    const peerUid = role === "workload" ? "supervisor-uid" : "workload-uid";
    const bare = { annotations: { [annotations.peerUid]: peerUid } };
    const opened = (of: GenerationRecord, metadata: object, spec: object = {}) =>
      both(of, { [role]: { gated: false, metadata, spec } });

    test.each<[string, object]>([
      ["as our release does", bare],
      ["with another Pod's seal", { annotations: testReleases.write("another", peerUid) }],
      [
        "for another peer",
        { annotations: { ...testReleases.write(`${role}-uid`, "x"), [annotations.peerUid]: peerUid } },
      ],
    ])("%s, ends the generation and gets no Secret", (_how, metadata) => {
      const observed = testObserved(testRecord(), opened(testRecord(), metadata));
      const { actions } = planOf(observed, { missing: [`${role}-uid`] });
      expect(actions[0]).toMatchObject({
        record: { failure: { reason: "AdmissionViolation", message: expect.stringContaining("spec.schedulingGates") } },
      });
      expect(verbs(actions)).not.toContain("write-secret");
    });

    test("is taken for a release of a gateway before seals, if the Pod is what was asked for, and it is looked at on", () => {
      const before = testRecord({ seeded: true, bindsUids: undefined });
      const placed = (spec: object) => {
        const { workloads, supervisors } = opened(before, bare, spec);
        const peers = both(before, { workload: { gated: false }, supervisor: { gated: false } });
        return role === "workload" ? { ...peers, workloads } : { ...peers, supervisors };
      };
      expect(planOf(testObserved(before, placed({}))).actions).toEqual([]);
      expect(planOf(testObserved(before, placed({ hostNetwork: true }))).actions[0]).toMatchObject({
        record: { failure: { reason: "AdmissionViolation", message: expect.stringContaining("spec.hostNetwork") } },
      });
    });
  });

  test("a gate that somebody else took away", () => {
    const pods = both(testRecord(), { workload: { spec: { schedulingGates: undefined } } });
    expect(planOf(testObserved(testRecord(), pods)).actions[0]).toMatchObject({
      record: { failure: { message: expect.stringContaining("spec.schedulingGates") } },
    });
  });

  describe("and what does not, while it is not known who ended the containers", () => {
    const ended = (name: string, exitCode: number) => ({
      ...status(name, { terminated: { exitCode, reason: exitCode === 0 ? "Completed" : "Error" } }),
      phase: "Running",
    });

    test.each([0, 137, 143])("a workload that ended with %i, whatever becomes of its supervisor meanwhile", (code) => {
      const strict = testRecord({ seeded: true }, testSettings({ supervisor_replacement: terminate }));
      const { workloads } = released({ workload: { status: ended("agent", code) } });
      for (const of of [record, strict]) {
        expect(planOf(testObserved(of, { workloads })).actions).toEqual([]);
        const supervisors = [
          testPod("supervisor", of, {
            gated: false,
            node: "b",
            status: { ...ended("supervisor", 13), phase: "Failed" },
          }),
        ];
        expect(planOf(testObserved(of, { workloads, supervisors })).actions).toEqual([]);
      }
    });

    test("a supervisor that ended: it is replaced once its node says that it is over", () => {
      const pods = (phase: string) => released({ supervisor: { status: { ...ended("supervisor", 0), phase } } });
      expect(planOf(testObserved(record, pods("Running"))).actions).toEqual([]);
      for (const phase of ["Succeeded", "Failed"]) {
        expect(verbs(planOf(testObserved(record, pods(phase))).actions)).toEqual(["create-supervisor"]);
      }
    });

    test("a second one that ended, long after the first: the window of the first loss is over for good", () => {
      const replacement = { ...record.settings.supervisor_replacement, window_seconds: 60 };
      const again = testRecord(
        { seeded: true, replacedAt: ["2026-12-01T11:00:00Z"], workloadUid: "workload-uid" },
        testSettings({ supervisor_replacement: replacement }),
      );
      const planned = (phase: string) => {
        const status = { ...ended("supervisor", 0), phase };
        const workloads = [testPod("workload", again, { gated: false, node: "a", status: runningStatus })];
        const supervisors = [testPod("supervisor", again, { gated: false, node: "b", status })];
        return verbs(planOf(testObserved(again, { workloads, supervisors })).actions);
      };
      expect(planned("Running")).toEqual([]);
      expect(planned("Failed")).toEqual(["create-supervisor"]);
    });
  });

  test("provisioning_timeout, and only while it is not running", () => {
    const late = new Date("2026-12-01T12:31:00Z");
    const limited = testRecord({}, testSettings({ provisioning_timeout: "30m" }));
    const pods = both(limited, { workload: { gated: false }, supervisor: { gated: false } });
    expect(planOf(testObserved(limited, { ...pods, now: late })).actions[0]).toMatchObject({
      record: { failure: { reason: "ProvisioningTimeout" } },
    });
    expect(planOf(testObserved(limited, pods))).toMatchObject({ actions: [], againAfterMs: 30 * 60_000 });
    const up = both(limited, {
      workload: { gated: false, node: "a", status: runningStatus },
      supervisor: { gated: false, node: "b" },
    });
    expect(verbs(planOf(testObserved(limited, { ...up, now: late })).actions)).toEqual(["record"]);
    const [agent] = runningStatus.containerStatuses ?? [];
    const state = { terminated: { exitCode: 137, reason: "Error" } };
    const ended = { ...runningStatus, containerStatuses: [{ ...agent, state, started: false }] as never };
    const over = both(limited, {
      workload: { gated: false, node: "a", status: ended },
      supervisor: { gated: false, node: "b" },
    });
    expect(planOf(testObserved(limited, { ...over, now: late })).actions).toEqual([]);
  });
});

describe("stop", () => {
  const record = testRecord({ seeded: true });
  const up = both(record, {
    workload: { gated: false, node: "a", status: runningStatus },
    supervisor: { gated: false, node: "b" },
  });

  test("is two writes at once", () => {
    const { actions } = planOf(testObserved(record, up), { request: { kind: "stop" } });
    expect(actions).toMatchObject([{ do: "suspend", record: { intent: "stopped" } }, { do: "delete-pod" }]);
  });

  test("has nothing left to do afterwards", () => {
    const ended = testRecord({ intent: "stopped" });
    const observed = testObserved(ended, { resource: testResource(ended, false), workloads: up.workloads });
    expect(planOf(observed).actions).toEqual([]);
    expect(planOf(observed, { request: { kind: "stop" } }).actions).toEqual([]);
  });

  test("a CR that somebody set running again is suspended again", () => {
    const ended = testRecord({ intent: "stopped" });
    expect(verbs(planOf(testObserved(ended)).actions)).toEqual(["suspend"]);
  });
});

describe("start", () => {
  const ended = testRecord({ intent: "stopped", seeded: true });
  const next = testRecord({
    generation: { id: "b".repeat(32), session: 2, seeded: true, foreignAffinity: {} },
    firstSession: 2,
    seeded: true,
  });
  const request: Request = { kind: "start", record: next };
  const idle = (change: Partial<Observed> = {}) =>
    testObserved(ended, { resource: testResource(ended, false, suspended), ...change });

  test("waits until the old workload Pod is gone", () => {
    expect(planOf(idle({ workloads: [testPod("workload", ended)] }), { request }).actions).toEqual([]);
  });

  test("waits until the controller has seen this suspension", () => {
    const stale = suspendedAt(0);
    expect(planOf(idle({ resource: testResource(ended, false, stale) }), { request }).actions).toEqual([]);
  });

  test("points the Service and makes the supervisor before the CR runs", () => {
    expect(verbs(planOf(idle(), { request }).actions)).toEqual(["point-service", "create-supervisor"]);
  });

  test("then runs with the new template in one patch", () => {
    const { actions } = planOf(idle({ service: testService(next), supervisors: [testPod("supervisor", next)] }), {
      request,
    });
    expect(actions).toMatchObject([
      { do: "run", newTemplate: true, record: { intent: "running", generation: { id: "b".repeat(32) } } },
    ]);
  });

  test("waits for no controller to end a workload that must not run on", () => {
    const workloads = [testPod("workload", ended, { gated: false, node: "a", status: runningStatus })];
    const planAfter = (reason: Failure["reason"]) => {
      const record = testRecord({
        ...ended,
        intent: "failed",
        failure: { condition: "PodsAdmitted", reason, message: "x" },
      });
      const resource = testResource(record, false);
      return verbs(planOf(testObserved(record, { resource, workloads }), { request }).actions);
    };
    expect(planAfter("AdmissionViolation")).toEqual(["delete-pod"]);
    expect(planAfter("OutOfMemory")).toEqual([]);
  });

  test("deletes supervisors of former generations on the way", () => {
    const { actions } = planOf(idle({ supervisors: [testPod("supervisor", ended)] }), { request });
    expect(verbs(actions)).toContain("delete-pod");
  });
});

describe("a Secret that a node finds missing", () => {
  const record = testRecord({ seeded: true });
  const status = { phase: "Pending" };
  const pods = (workload: object, supervisor: object) =>
    both(record, {
      workload: { gated: false, node: "a", status, ...workload },
      supervisor: { gated: false, node: "b", status, ...supervisor },
    });
  const missing = Object.values(pods({}, {})).flatMap((all) => all.map(({ metadata }) => metadata.uid));
  const written = (of: ReturnType<typeof both>, uids = missing) =>
    planOf(testObserved(record, of), { missing: uids }).actions.filter((action) => action.do === "write-secret");

  test("is written again for a released Pod that has not started, where it is missing", () => {
    const both = ["workload", "supervisor"].map((role) => ({ do: "write-secret", role, ifMissing: true }));
    expect(written(pods({}, {}))).toMatchObject(both);
    expect(written(pods({}, {}), missing.slice(1))).toMatchObject(both.slice(1));
    expect(written(pods({}, {}), [])).toEqual([]);
  });

  test("is no matter of a Pod that runs", () => {
    expect(written(pods({ status: runningStatus }, { status: { ...runningStatus } }))).toEqual([]);
  });

  test("is read from the kubelet's event", () => {
    const event = (message: string, reason = "FailedMount", kind = "Pod") =>
      ({ metadata: {}, involvedObject: { kind, uid: "u" }, reason, message }) as KubeEvent;
    const lost = 'MountVolume.SetUp failed for volume "identity" : secret "os-workload-x" not found';
    expect(podWithoutSecret(event(lost))).toBe("u");
    expect(podWithoutSecret(event(lost, "FailedScheduling"))).toBeUndefined();
    expect(podWithoutSecret(event(lost, "FailedMount", "Sandbox"))).toBeUndefined();
    expect(podWithoutSecret(event('configmap "x" not found'))).toBeUndefined();
  });
});

describe("a lost supervisor", () => {
  const record = testRecord({ seeded: true, supervisorUid: "supervisor-uid" });
  const workload = testPod("workload", record, { gated: false, node: "a", status: runningStatus });
  const next = { ...record, generation: { ...record.generation, session: 2 } };

  test.each<[string, Live<Pod>[]]>([
    ["deleted", []],
    [
      "ending",
      [testPod("supervisor", record, { gated: false, metadata: { deletionTimestamp: "2026-12-01T12:00:00Z" } })],
    ],
    ["failed", [testPod("supervisor", record, { gated: false, status: { phase: "Failed" } })]],
  ])("%s: the next session's Pod is made", (_what, supervisors) => {
    expect(planOf(testObserved(record, { workloads: [workload], supervisors })).actions).toMatchObject([
      { do: "create-supervisor", record: { generation: { session: 2 } } },
    ]);
  });

  test("the record follows once that Pod exists, so that no session number is used twice", () => {
    const observed = testObserved(record, {
      workloads: [workload],
      supervisors: [testPod("supervisor", next, { uid: "s2" })],
    });
    expect(planOf(observed).actions).toMatchObject([
      { do: "record", record: { supervisorUid: "s2", workloadUid: "workload-uid", generation: { session: 2 } } },
    ]);
  });

  test("one that ended where it was is deleted once the record names its successor, and not before", () => {
    const ended = testPod("supervisor", record, { gated: false, status: { phase: "Succeeded" } });
    const successor = testPod("supervisor", next, { gated: false, node: "b" });
    const ofOld = planOf(testObserved(record, { workloads: [workload], supervisors: [ended, successor] })).actions;
    expect(verbs(ofOld)).toEqual(["record"]);
    const adopted = { ...next, supervisorUid: successor.metadata.uid };
    const plannedFor = (...supervisors: Live<Pod>[]) =>
      planOf(testObserved(adopted, { workloads: [workload], supervisors })).actions;
    expect(plannedFor(ended, successor)).toMatchObject([
      { do: "delete-pod", pod: { metadata: { name: ended.metadata.name } } },
    ]);
    expect(plannedFor(successor)).toEqual([]);
  });

  describe("does not leave its workload unwatched", () => {
    const relabelled = {
      ...workload,
      metadata: { ...workload.metadata, labels: { ...workload.metadata.labels, [labels.boundaryRole]: "x" } },
    };
    const open = {
      metadata: { name: "someone-elses", namespace: "sandboxes", uid: "p", resourceVersion: "1" },
      spec: { podSelector: {}, policyTypes: ["Egress"], egress: [{}] },
    } as unknown as Live<NetworkPolicy>;
    const fenceDown = { ...calmCluster, fenceIsUp: false };
    const adopted = { ...next, supervisorUid: "s2", workloadUid: "workload-uid" };
    const gated = testPod("supervisor", next, { uid: "s2" });
    const ending = testPod("supervisor", record, { metadata: { deletionTimestamp: "2026-12-01T12:00:00Z" } });

    test.each<[string, GenerationRecord, Live<Pod>[]]>([
      ["its supervisor's Pod is gone", record, []],
      ["its supervisor's Pod is ending", record, [ending]],
      ["the next one is gated", adopted, [gated]],
    ])("while %s", (_when, of, supervisors) => {
      const planned = (change: Partial<Observed>) =>
        planOf(testObserved(of, { workloads: [workload], supervisors, ...change })).actions;
      const restored = { do: "restore-labels", labels: { [labels.boundaryRole]: "workload" } };
      expect(planned({ workloads: [relabelled] })[0]).toMatchObject(restored);
      expect(planned({ workloads: [relabelled], cluster: fenceDown })[0]).toMatchObject(restored);
      const opened = { record: { failure: { reason: "ForeignNetworkPolicy" } } };
      expect(planned({ cluster: { ...calmCluster, foreignPolicies: [open] } })[0]).toMatchObject(opened);
      expect(planned({ cluster: { ...fenceDown, foreignPolicies: [open] } })[0]).toMatchObject(opened);
      const debugged = { ...workload, spec: { ...workload.spec, ephemeralContainers: [{ name: "d", image: "b" }] } };
      expect(planned({ workloads: [debugged as Live<Pod>] })[0]).toMatchObject({
        record: { failure: { reason: "ForeignContainer" } },
      });
    });
  });

  test("then only the supervisor gets a Secret and is released", () => {
    const replaced = { ...next, supervisorUid: "s2", workloadUid: "workload-uid" };
    const supervisor = testPod("supervisor", next, { uid: "s2" });
    const observed = testObserved(replaced, { workloads: [workload], supervisors: [supervisor] });
    expect(verbs(planOf(observed).actions)).toEqual(["write-secret supervisor"]);
    expect(verbs(planOf(observed, { written: keys(replaced, supervisor) }).actions)).toEqual(["release supervisor"]);
  });

  describe("within supervisor_replacement", () => {
    const ago = (seconds: number) => new Date(testNow.getTime() - seconds * 1000).toISOString();
    const under = (change: Partial<KubernetesSettings["supervisor_replacement"]>, of: Partial<GenerationRecord> = {}) =>
      testRecord(
        { seeded: true, supervisorUid: "supervisor-uid", ...of },
        testSettings({ supervisor_replacement: { ...testSettings().supervisor_replacement, ...change } }),
      );

    test("the time of a replacement goes into the record, and what is older than an hour leaves it", () => {
      const old = under({}, { replacedAt: [ago(3601), ago(60)] });
      const adopted = { ...old, generation: { ...old.generation, session: 2 } };
      const supervisors = [testPod("supervisor", adopted, { uid: "s2" })];
      expect(planOf(testObserved(old, { workloads: [workload], supervisors })).actions).toMatchObject([
        { do: "record", record: { replacedAt: [ago(60), testNow.toISOString()] } },
      ]);
    });

    test("one more than max_per_hour ends the generation", () => {
      const twice = under({ max_per_hour: 2 }, { replacedAt: [ago(600), ago(60)] });
      expect(planOf(testObserved(twice, { workloads: [workload] })).actions[0]).toMatchObject({
        record: {
          failure: {
            reason: "SupervisorLost",
            message: expect.stringContaining("max_per_hour is 2; the last: its Pod was deleted"),
          },
        },
      });
      const longAgo = under({ max_per_hour: 2 }, { replacedAt: [ago(4000), ago(60)] });
      expect(verbs(planOf(testObserved(longAgo, { workloads: [workload] })).actions)).toEqual(["create-supervisor"]);
    });

    test("mode terminate ends it at the first loss, with what happened to the supervisor", () => {
      const terminate = under({ mode: "terminate" });
      const evicted = testPod("supervisor", terminate, {
        gated: false,
        node: "b",
        status: { phase: "Failed", reason: "Evicted", message: "The node was low on resource: memory." },
      });
      expect(
        planOf(testObserved(terminate, { workloads: [workload], supervisors: [evicted] })).actions[0],
      ).toMatchObject({
        record: {
          failure: {
            reason: "SupervisorLost",
            message:
              'the supervisor was lost and supervisor_replacement.mode is "terminate": node b evicted the Pod: The node was low on resource: memory.',
          },
        },
      });
    });

    test("mode terminate does not count a supervisor that gave up its node to its workload", () => {
      const moved = under({ mode: "terminate" }, { placement: { evicted: ["supervisor-uid"] } });
      const waiting = testPod("workload", moved, { gated: false });
      expect(verbs(planOf(testObserved(moved, { workloads: [waiting] })).actions)).toEqual(["create-supervisor"]);
      const next = { ...moved, generation: { ...moved.generation, session: 2 } };
      const supervisors = [testPod("supervisor", next, { uid: "s2" })];
      const [adopted] = planOf(testObserved(moved, { workloads: [waiting], supervisors })).actions;
      // Nor is its workload the one of a session: it may have to move, too.
      expect(adopted).toMatchObject({ do: "record", record: { supervisorUid: "s2", workloadUid: undefined } });
      expect(adopted).not.toHaveProperty("record.replacedAt");
    });

    test("window_seconds ends a running workload whose next supervisor does not come to run, and not before", () => {
      const waiting = (seconds: number) => {
        const of = under({ window_seconds: 60 }, { replacedAt: [ago(seconds)], workloadUid: "workload-uid" });
        const status = {
          phase: "Pending",
          conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message: "0/1 nodes" }],
        };
        const supervisors = [testPod("supervisor", of, { gated: false, status })];
        return planOf(testObserved(of, { workloads: [workload], supervisors }));
      };
      expect(waiting(20)).toMatchObject({ actions: [], againAfterMs: 40_000 });
      expect(waiting(61).actions[0]).toMatchObject({
        do: "suspend",
        record: {
          failure: {
            reason: "SupervisorLost",
            message: "no new supervisor ran within supervisor_replacement.window_seconds (60): 0/1 nodes",
          },
        },
      });
    });

    test.each(["CreateContainerError", "RunContainerError", "InvalidImageName"])(
      "a next supervisor that its node cannot start for %s ends nothing before window_seconds is over",
      (reason) => {
        const waiting = (seconds: number | undefined) => {
          const replacedAt = seconds === undefined ? {} : { replacedAt: [ago(seconds)] };
          const of = under({ window_seconds: 60 }, { workloadUid: "workload-uid", ...replacedAt });
          const state = { waiting: { reason, message: "context deadline exceeded" } };
          const container = { name: "supervisor", image: "x", imageID: "", ready: false, restartCount: 0, state };
          const status = { phase: "Pending", containerStatuses: [container] };
          const supervisors = [testPod("supervisor", of, { gated: false, node: "b", status })];
          return planOf(testObserved(of, { workloads: [workload], supervisors }));
        };
        expect(waiting(20)).toMatchObject({ actions: [], againAfterMs: 40_000 });
        const failure = { reason: "SupervisorLost", message: expect.stringContaining("context deadline exceeded") };
        expect(waiting(60).actions[0]).toMatchObject({ do: "suspend", record: { failure } });
        // The first one has no window.
        expect(waiting(undefined).actions[0]).toMatchObject({
          record: { failure: { reason: expect.not.stringContaining("SupervisorLost") } },
        });
      },
    );

    test("a refused supervisor is asked for again, once in five seconds, until window_seconds is over", () => {
      const of = under({ window_seconds: 60 }, { workloadUid: "workload-uid" });
      const next = { ...of, generation: { ...of.generation, session: of.generation.session + 1 } };
      const failure = { condition: "PodsAdmitted", reason: "QuotaExceeded", message: "exceeded quota: q" } as const;
      const refused = (sinceSeconds: number, atSeconds: number, session = next) => {
        const times = { since: Date.parse(ago(sinceSeconds)), at: Date.parse(ago(atSeconds)) };
        return planOf(testObserved(of, { workloads: [workload] }), {
          refusedReplacement: { of: sessionKey(session), ...times, failure },
        });
      };
      expect(refused(10, 2)).toEqual({ actions: [], againAfterMs: 3_000 });
      expect(refused(58, 0)).toEqual({ actions: [], againAfterMs: 2_000 });
      expect(verbs(refused(10, 5).actions)).toEqual(["create-supervisor"]);
      expect(refused(60, 1).actions[0]).toMatchObject({
        do: "suspend",
        record: {
          failure: {
            reason: "SupervisorLost",
            message: "no new supervisor ran within supervisor_replacement.window_seconds (60): exceeded quota: q",
          },
        },
      });
      // Another session's refusal says nothing about this one.
      expect(verbs(refused(600, 0, of).actions)).toEqual(["create-supervisor"]);
    });

    test("the window is closed by a supervisor that runs", () => {
      const of = under({ window_seconds: 60 }, { replacedAt: [ago(600)], workloadUid: "workload-uid" });
      const [agent] = runningStatus.containerStatuses ?? [];
      const status = { ...runningStatus, containerStatuses: [{ ...agent, name: "supervisor" }] as never };
      const supervisors = [testPod("supervisor", of, { gated: false, node: "b", status })];
      expect(planOf(testObserved(of, { workloads: [workload], supervisors })).actions).toEqual([]);
    });
  });
});

describe("life beside others", () => {
  const record = testRecord({ seeded: true });
  const up = both(record, {
    workload: { gated: false, node: "a", status: runningStatus },
    supervisor: { gated: false, node: "b" },
  });

  test.each(["workload", "supervisor"] as const)(
    "a %s Pod that no watch shows is looked for by name and UID before anything is concluded from it",
    (role) => {
      const known = { ...record, supervisorUid: "supervisor-uid", workloadUid: "workload-uid" };
      const hidden = { ...up, [`${role}s`]: [] };
      const unsure = { ...calmCluster, isGone: () => false };
      const [pod] = up[`${role}s`];
      expect(planOf(testObserved(known, { ...hidden, cluster: unsure })).actions).toMatchObject([
        {
          do: "restore-labels",
          kind: "Pod",
          metadata: { name: pod?.metadata.name, uid: `${role}-uid` },
          labels: {
            [labels.gatewayId]: testGatewayId,
            [labels.boundaryRole]: role,
            [labels.pairId]: known.generation.id,
          },
        },
      ]);
      expect(verbs(planOf(testObserved(known, hidden)).actions)).not.toContain("restore-labels");
    },
  );

  test("a Pod that left our selection gets the labels of the generation that it was made for", () => {
    const next = { ...record, generation: { ...record.generation, id: "b".repeat(32), session: 2 } };
    const departed = new Set(["workload-uid"]);
    expect(planOf(testObserved(next, { ...up, departed })).actions).toMatchObject([
      { do: "restore-labels", labels: { [labels.pairId]: record.generation.id } },
    ]);
  });

  test("labels that somebody changed are put back", () => {
    const [workload] = up.workloads;
    const tampered = {
      ...workload,
      metadata: { ...workload?.metadata, labels: { ...workload?.metadata.labels, [labels.boundaryRole]: "x" } },
    };
    expect(planOf(testObserved(record, { ...up, workloads: [tampered as Live<Pod>] })).actions).toMatchObject([
      { do: "restore-labels", labels: { [labels.boundaryRole]: "workload" } },
    ]);
  });

  describe("labels that are changed again after they were put back", () => {
    const [workload] = up.workloads as [Live<Pod>];
    const relabelled = { ...workload.metadata.labels, [labels.boundaryRole]: "x" };
    const tampered = { ...workload, metadata: { ...workload.metadata, labels: relabelled } };
    const departed = new Set([workload.metadata.uid]);
    const planAfter = (agoMs: readonly number[], seen: Partial<Observed>, request?: Request) =>
      planOf(testObserved(record, { ...up, ...seen }), {
        ...(request && { request }),
        restored: new Map([[workload.metadata.uid, agoMs.map((ms) => testNow.getTime() - ms)]]),
      });

    test.each<[string, Partial<Observed>]>([
      ["as they are seen", { workloads: [tampered] }],
      ["as they hide the Pod", { departed }],
    ])("are put back later and later, %s", (_how, seen) => {
      expect(verbs(planAfter([50], seen).actions)).toEqual([]);
      expect(planAfter([50], seen).againAfterMs).toBe(50);
      expect(verbs(planAfter([100], seen).actions)).toEqual(["restore-labels"]);
      expect(planAfter([900, 100], seen).againAfterMs).toBe(100);
      expect(
        planAfter(
          [7, 6, 5, 4, 3, 2, 1].map((s) => s * 1_000),
          seen,
        ).againAfterMs,
      ).toBe(undefined);
    });

    test("end the generation after the eighth time within a minute, and are put back once more", () => {
      const times = [60, 8, 7, 6, 5, 4, 3, 2].map((s) => s * 1_000);
      expect(verbs(planAfter(times, { workloads: [tampered] }).actions)).toEqual(["restore-labels"]);
      const often = [...times, 1_000];
      for (const seen of [{ workloads: [tampered] }, { departed }]) {
        const { actions } = planAfter(often, seen);
        expect(verbs(actions)).toEqual(["suspend", "delete-pod", "restore-labels"]);
        expect(actions[0]).toMatchObject({ record: { failure: { reason: "AdmissionViolation" } } });
      }
      expect(planAfter(often, { workloads: up.workloads }).actions).toEqual([]);
      expect(verbs(planAfter(often, { departed }, { kind: "stop" }).actions)).toEqual(["restore-labels"]);
    });
  });

  test.each(["workload", "supervisor"] as const)("an ephemeral container in the %s Pod ends the generation", (role) => {
    const debugged = both(record, {
      workload: { gated: false, node: "a", status: runningStatus },
      supervisor: { gated: false, node: "b" },
      [role]: {
        gated: false,
        node: role === "workload" ? "a" : "b",
        status: runningStatus,
        spec: { ephemeralContainers: [{ name: "debugger-x", image: "busybox" }] },
      },
    });
    expect(planOf(testObserved(record, debugged)).actions[0]).toMatchObject({
      do: "suspend",
      record: {
        failure: {
          condition: "PodsAdmitted",
          reason: "ForeignContainer",
          message: `ephemeral container debugger-x (image busybox) was added to the ${role} Pod; debug a copy of the Pod instead (kubectl debug --copy-to)`,
        },
      },
    });
  });

  test.each(["workload", "supervisor"] as const)("a changed image of the %s Pod ends the generation", (role) => {
    const seen = ({ workloads, supervisors }: typeof up) =>
      new Map([...workloads, ...supervisors].map((pod) => [pod.metadata.uid, actedOn(pod)]));
    const withImage = (change: (image: string) => string): typeof up => {
      const pods = structuredClone(up);
      const [container] = pods[`${role}s`][0]?.spec?.containers ?? [];
      if (container !== undefined) container.image = change(container.image ?? "");
      return pods;
    };
    const planned = (now: typeof up, first: ReturnType<typeof seen>, cluster = calmCluster) =>
      planOf(testObserved(record, { ...now, cluster }), { seen: first }).actions;
    const other = withImage(() => "evil.test/agent:1");
    expect(planned(other, seen(up))[0]).toMatchObject({
      do: "suspend",
      record: {
        failure: {
          condition: "PodsAdmitted",
          reason: "AdmissionViolation",
          message: expect.stringMatching(
            new RegExp(
              `^somebody changed the ${role} Pod: spec\\.containers\\[\\w+\\]\\.image is "evil\\.test/agent:1"`,
            ),
          ),
        },
      },
    });
    // What was so when this process began may be by settings that are gone.
    expect(planned(other, seen(other))).toEqual([]);
    expect(planned(other, new Map())).toEqual([]);
    // A digest pins the same image, and an operator may allow a registry to be replaced.
    expect(
      planned(
        withImage((image) => `${image}@sha256:${"0".repeat(64)}`),
        seen(up),
      ),
    ).toEqual([]);
    const [expected = ""] = /^[^:]+/.exec(up[`${role}s`][0]?.spec?.containers[0]?.image ?? "") ?? [];
    const cluster = { ...calmCluster, imageRewrites: { [expected]: "mirror.test/it" } };
    expect(
      planned(
        withImage((image) => image.replace(expected, "mirror.test/it")),
        seen(up),
        cluster,
      ),
    ).toEqual([]);
  });

  describe.each(["workload", "supervisor"] as const)("an annotation of the released %s", (role) => {
    const [pod] = up[`${role}s`] as [Live<Pod>];
    const added = (key: string) => {
      const annotations = { ...pod.metadata.annotations, [key]: "x" };
      const changed = { ...pod, metadata: { ...pod.metadata, annotations } };
      const seen = new Map([[pod.metadata.uid, actedOn(pod)]]);
      return planOf(testObserved(record, { ...up, [`${role}s`]: [changed] }), { seen }).actions;
    };

    test.each([
      "k8s.v1.cni.cncf.io/networks",
      "io.katacontainers.config.hypervisor.path",
      "cni.projectcalico.org/ipAddrs",
    ])("that a node acts on, added while it waits or runs, ends the generation: %s", (key) => {
      const message = expect.stringContaining(`somebody changed the ${role} Pod: metadata.annotations.${key} is "x"`);
      const failure = { condition: "PodsAdmitted", reason: "AdmissionViolation", message };
      expect(added(key)[0]).toMatchObject({ do: "suspend", record: { failure } });
    });

    test.each(["note", "k8s.v1.cni.cncf.io/network-status", "cni.projectcalico.org/podIP", "k8s.ovn.org/pod-networks"])(
      "that nobody acts on, or that a CNI writes, does not: %s",
      (key) => {
        expect(added(key)).toEqual([]);
      },
    );
  });

  test("a foreign policy that opens the fence of a running workload ends the generation, a tolerated one does not", () => {
    const open = {
      metadata: { name: "someone-elses", namespace: "sandboxes", uid: "p", resourceVersion: "1" },
      spec: { podSelector: {}, policyTypes: ["Egress"], egress: [{}] },
    } as unknown as Live<NetworkPolicy>;
    const cluster = { ...calmCluster, foreignPolicies: [open] };
    expect(planOf(testObserved(record, { ...up, cluster })).actions).toMatchObject([
      { do: "suspend", record: { failure: { reason: "ForeignNetworkPolicy" } } },
      { do: "delete-pod" },
    ]);
    const tolerated = { ...cluster, toleratedPolicies: ["someone-elses"] };
    expect(planOf(testObserved(record, { ...up, cluster: tolerated })).actions).toEqual([]);
  });

  describe("a workload that must not run on", () => {
    const planAfter = (reason: Failure["reason"], running: boolean, workload: object = {}) => {
      const failure = { condition: "PodsAdmitted", reason, message: "x" } as const;
      const ended = { ...record, intent: "failed", failure } as const;
      const { workloads } = both(record, { workload: { gated: false, node: "a", status: runningStatus, ...workload } });
      return verbs(planOf(testObserved(ended, { resource: testResource(ended, running), workloads })).actions);
    };

    test.each(["ForeignContainer", "ForeignNetworkPolicy", "PlacementViolated", "AdmissionViolation"] as const)(
      "is deleted once its CR is suspended, since the controller may be away: %s",
      (reason) => {
        expect(planAfter(reason, true)).toEqual(["suspend"]);
        expect(planAfter(reason, false)).toEqual(["delete-pod"]);
      },
    );

    test("is another than one that ended by itself, is gated, is ending, or is somebody else's", () => {
      expect(planAfter("OutOfMemory", false)).toEqual([]);
      expect(planAfter("AdmissionViolation", false, { gated: true })).toEqual([]);
      for (const metadata of [{ deletionTimestamp: testNow.toISOString() }, { ownerReferences: [] }]) {
        expect(planAfter("ForeignContainer", false, { metadata })).toEqual([]);
      }
    });

    test("is also one whose record was damaged", () => {
      const observed = { resource: testResource(record, false), workloads: up.workloads };
      const unreadable = { ok: false, problem: "no JSON", wasReadable: true } as const;
      expect(verbs(planOf(testObserved(record, { ...observed, record: unreadable })).actions)).toEqual(["delete-pod"]);
    });
  });

  test.each<[string, object]>([
    ["one more thing that it selects by", { selector: { ...testService(record).spec?.selector, tier: "x" } }],
    ["another target port", { ports: [{ ...testService(record).spec?.ports?.[0], targetPort: 1 }] }],
    ["another protocol", { ports: [{ ...testService(record).spec?.ports?.[0], protocol: "UDP" }] }],
    ["no addresses before they are ready", { publishNotReadyAddresses: false }],
  ])("a Service to which somebody gave %s is put right", (_what, change) => {
    const service = testService(record);
    const changed = { ...service, spec: { ...service.spec, ...change } };
    expect(verbs(planOf(testObserved(record, { ...up, service: changed })).actions)).toEqual(["point-service"]);
    expect(planOf(testObserved(record, { ...up, service })).actions).toEqual([]);
  });

  test("a Service that somebody deleted is made again", () => {
    expect(verbs(planOf(testObserved(record, { ...up, service: undefined })).actions)).toEqual(["create-service"]);
  });

  test("whose record was readable and is not any more the Pods are ended; where it never was, only a stop does it", () => {
    const unreadable = (wasReadable: boolean) => ({ record: { ok: false, problem: "no JSON", wasReadable } as const });
    const ends = ["suspend", "delete-pod"];
    expect(verbs(planOf(testObserved(record, { ...up, ...unreadable(true) })).actions)).toEqual(ends);
    expect(planOf(testObserved(record, { ...up, ...unreadable(false) })).actions).toEqual([]);
    const stop = planOf(testObserved(record, { ...up, ...unreadable(false) }), { request: { kind: "stop" } });
    expect(stop.actions[0]).toEqual({ do: "suspend", record: undefined });
    expect(verbs(stop.actions)).toEqual(ends);
    const resource = testResource(record, false);
    expect(planOf(testObserved(record, { resource, ...unreadable(true) })).actions).toEqual([]);
  });

  test("a sandbox that is being deleted is left alone", () => {
    const resource = testResource(record, true);
    const going = { ...resource, metadata: { ...resource.metadata, deletionTimestamp: "2026-12-01T12:00:00Z" } };
    expect(planOf(testObserved(record, { resource: going })).actions).toEqual([]);
  });
});
