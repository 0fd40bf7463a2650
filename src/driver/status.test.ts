import { describe, expect, test } from "vitest";
import {
  calmCluster,
  runningStatus,
  testObserved,
  testPod,
  testRecord,
  testResource,
  testSettings,
} from "./_testing.ts";
import type { Request } from "./action.ts";
import type { Observed } from "./observed.ts";
import { conditionTypes, reasonClass, reasons } from "./reasons.ts";
import { conditionsOf } from "./status.ts";

const record = testRecord();
const said = (observed: Observed, request?: Request) => conditionsOf(observed, { request }).map(({ reason }) => reason);
const pods = (workload: object, supervisor: object = { gated: false, node: "b", status: { phase: "Running" } }) => ({
  workloads: [testPod("workload", record, workload)],
  supervisors: [testPod("supervisor", record, supervisor)],
});
const waitingFor = (reason: string, message = "") => ({
  phase: "Pending",
  containerStatuses: [
    { name: "agent", image: "x", imageID: "", ready: false, restartCount: 0, state: { waiting: { reason, message } } },
  ],
});
const unschedulable = (message: string) => ({
  phase: "Pending",
  conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message }],
});
const late = new Date("2026-12-01T12:01:00Z");
const stoppedRecord = testRecord({ intent: "stopped" });
const failure = { condition: "Scheduled", reason: "PlacementViolated", message: "both on a" } as const;
const failedRecord = testRecord({ intent: "failed", failure });

describe("a Pod that another controller's finalizer holds", () => {
  const held = { deletionTimestamp: late.toISOString(), finalizers: ["kueue.x-k8s.io/managed"] };
  const resource = testResource(stoppedRecord, false);
  const one = /^Pod \S+ waits for the owner of finalizer kueue.x-k8s.io\/managed to remove it$/;
  const messages = (change: Partial<Observed>, request?: Request) =>
    conditionsOf(testObserved(stoppedRecord, { resource, ...change }), { request }).map(({ message }) => message);

  test.each(["workload", "supervisor"] as const)("is named as what the sandbox waits for: %s", (role) => {
    const waits = { [`${role}s`]: [testPod(role, record, { metadata: held })] };
    expect(messages(waits)).toEqual([one, one, one].map((text) => expect.stringMatching(text)));
    expect(messages({ ...waits, resource: undefined })[0]).toMatch(one);
    if (role === "workload") expect(messages(waits, { kind: "start", record })[0]).toMatch(one);
  });

  test("is not, before it is to end", () => {
    expect(messages(pods({ metadata: { finalizers: held.finalizers } }))[0]).toBe("the Pods are being ended");
  });
});

describe("what is said about a sandbox", () => {
  test.each<[string, string[], Observed, Request?]>([
    ["its Pods are being made", ["CreatingPods", "WaitingForAdmission", "WaitingForScheduling"], testObserved(record)],
    [
      "the controller is silent",
      ["ControllerSilent", "WaitingForAdmission", "WaitingForScheduling"],
      testObserved(record, { now: late }),
    ],
    [
      "its Pods are gated",
      ["CreatingPods", "WaitingForAdmission", "WaitingForScheduling"],
      testObserved(record, pods({}, {})),
    ],
    [
      "another controller's gate holds it",
      ["Admitted", "WaitingForGate", "WaitingForScheduling"],
      testObserved(record, pods({ gated: false, spec: { schedulingGates: [{ name: "kueue" }] } })),
    ],
    [
      "no node fits",
      ["Admitted", "Unschedulable", "WaitingForScheduling"],
      testObserved(
        record,
        pods({ gated: false, status: unschedulable("0/2 nodes are available: 2 Insufficient cpu.") }),
      ),
    ],
    [
      "its volume is not bound",
      ["Admitted", "WaitingForVolume", "WaitingForScheduling"],
      testObserved(
        record,
        pods({ gated: false, status: unschedulable("pod has unbound immediate PersistentVolumeClaims") }),
      ),
    ],
    [
      "its image is being pulled in vain",
      ["Admitted", "Scheduled", "PullingImage"],
      testObserved(record, pods({ gated: false, node: "a", status: waitingFor("ImagePullBackOff") })),
    ],
    [
      "its next supervisor cannot be started yet",
      ["Admitted", "Scheduled", "StartingContainers"],
      testObserved(
        record,
        pods(
          { gated: false, node: "a", status: runningStatus },
          { gated: false, node: "b", status: waitingFor("CreateContainerError") },
        ),
      ),
    ],
    [
      "its containers are starting",
      ["Admitted", "Scheduled", "StartingContainers"],
      testObserved(record, pods({ gated: false, node: "a", status: waitingFor("ContainerCreating") })),
    ],
    [
      "it runs",
      ["Admitted", "Scheduled", "WorkloadRunning"],
      testObserved(record, pods({ gated: false, node: "a", status: runningStatus })),
    ],
    [
      "it runs but is ending",
      ["Admitted", "Scheduled", "StartingContainers"],
      testObserved(record, {
        ...pods({ gated: false, node: "a", status: runningStatus }),
        cluster: { ...calmCluster, isDeleted: (uid) => uid === "workload-uid" },
      }),
    ],
    [
      "it is stopping",
      ["Stopping", "Stopping", "Stopping"],
      testObserved(stoppedRecord, { resource: testResource(stoppedRecord, false), ...pods({}) }),
    ],
    [
      "it is stopped",
      ["Stopped", "Stopped", "Stopped"],
      testObserved(stoppedRecord, { resource: testResource(stoppedRecord, false) }),
    ],
    [
      "it is to start but the old Pod is still there",
      ["WaitingForOldPod", "WaitingForAdmission", "WaitingForScheduling"],
      testObserved(stoppedRecord, { resource: testResource(stoppedRecord, false), ...pods({}) }),
      { kind: "start", record },
    ],
    ["it failed", ["GenerationFailed", "PlacementViolated", "GenerationFailed"], testObserved(failedRecord)],
    [
      "its record was damaged",
      ["RecordUnreadable", "GenerationFailed", "GenerationFailed"],
      testObserved(record, { record: { ok: false, problem: "no JSON", wasReadable: true } }),
    ],
    [
      "its record was damaged and its Pods are ended",
      ["Stopped", "Stopped", "Stopped"],
      testObserved(record, {
        resource: testResource(record, false),
        record: { ok: false, problem: "no JSON", wasReadable: true },
      }),
    ],
    [
      "it is being deleted",
      ["Deleting", "Deleting", "Deleting"],
      testObserved(record, { resource: undefined, ...pods({}) }),
    ],
  ])("%s", (_what, expected, observed, request) => {
    expect(said(observed, request)).toEqual(expected);
  });

  test("a workload Pod that was taken away to place the pair anew is no failure, whatever its containers say", () => {
    const terminated = { exitCode: 137, reason: "ContainerStatusUnknown", message: "could not be located" };
    const killed = {
      phase: "Failed",
      initContainerStatuses: [
        { name: "stage", image: "x", imageID: "", ready: false, restartCount: 0, state: { terminated } },
      ],
    };
    const [workload] = pods({ gated: false, node: "a", status: killed }).workloads;
    if (workload === undefined) throw new Error("no workload");
    const evicted = testRecord({ placement: { evicted: [workload.metadata.uid] } });
    const observed = testObserved(evicted, { workloads: [workload] });
    expect(said(observed).map((reason) => reasonClass(reason))).toEqual(["ok", "waiting", "waiting"]);
    expect(said(testObserved(record, { workloads: [workload] }))).toContain("InitFailed");
  });

  test("a refused supervisor is said of the generation that it was to serve, and of no later one", () => {
    const failure = { condition: "PodsAdmitted", reason: "QuotaExceeded", message: "exceeded quota" } as const;
    const refused = (generation: string) => {
      const refusedReplacement = { of: `${generation}/2`, since: 0, at: 0, failure };
      const observed = testObserved(record, pods({}, {}));
      return conditionsOf(observed, { request: undefined, refusedReplacement })[0]?.reason;
    };
    expect(refused(record.generation.id)).toBe("SupervisorRefused");
    expect(refused("b".repeat(32))).toBe("CreatingPods");
  });

  describe("what keeps a node from starting a Pod's containers", () => {
    const sentence = 'Failed to create pod sandbox: RuntimeClass "x" not found';
    const readyOf = (workload: object, supervisor: object, of: string) => {
      const observed = testObserved(record, pods({ gated: false, ...workload }, { gated: false, ...supervisor }));
      const startTroubles = new Map([[of, { message: sentence }]]);
      return conditionsOf(observed, { request: undefined, startTroubles })[2];
    };
    const pending = { phase: "Pending" };
    const begun = { ...pending, conditions: [{ type: "PodReadyToStartContainers", status: "True" }] };
    const notYet = { ...pending, conditions: [{ type: "PodReadyToStartContainers", status: "False" }] };
    const uids = { workload: "workload-uid", supervisor: "supervisor-uid" };

    test("is said in its words, and of which Pod", () => {
      for (const status of [pending, notYet]) {
        expect(readyOf({ node: "a", status }, { node: "b", status }, uids.workload)).toEqual({
          type: "WorkloadReady",
          status: "False",
          reason: "StartingContainers",
          message: `node a cannot start the containers yet: ${sentence}`,
        });
      }
      for (const status of [pending, runningStatus]) {
        expect(readyOf({ node: "a", status }, { node: "b", status: pending }, uids.supervisor)).toMatchObject({
          reason: "StartingContainers",
          message: `supervisor Pod: node b cannot start the containers yet: ${sentence}`,
        });
      }
    });

    test.each<[string, object]>([
      ["its node can start them", begun],
      [
        "one of them ran",
        { ...pending, initContainerStatuses: [{ name: "stage", state: { terminated: { exitCode: 0 } } }] },
      ],
    ])("is not said any more once %s", (_when, status) => {
      expect(readyOf({ node: "a", status }, { node: "b", status: pending }, uids.workload)?.message).toBe(
        "node a is starting the containers",
      );
      const running = { node: "a", status: runningStatus };
      expect(readyOf(running, { node: "b", status }, uids.supervisor)?.reason).toBe("WorkloadRunning");
    });

    test("is not said of a Pod that runs, nor of another one", () => {
      const running = { node: "a", status: runningStatus };
      expect(readyOf(running, { node: "b", status: runningStatus }, uids.workload)?.reason).toBe("WorkloadRunning");
      expect(readyOf({ node: "a", status: pending }, { node: "b", status: pending }, "gone")?.message).toBe(
        "node a is starting the containers",
      );
    });
  });

  test("an unschedulable Pod's message says which Pod and what is missing", () => {
    const observed = testObserved(
      record,
      pods({ gated: false, status: unschedulable("0/2 nodes are available: 2 Insufficient cpu.") }),
    );
    expect(conditionsOf(observed)[1]?.message).toBe(
      "no node fits the workload Pod: 0/2 nodes are available: 2 Insufficient cpu.",
    );
  });

  test("a condition is True exactly when its reason is of class ok", () => {
    const observed = testObserved(record, pods({ gated: false, node: "a", status: runningStatus }));
    for (const { status, reason } of conditionsOf(observed))
      expect(status === "True").toBe(reasonClass(reason) === "ok");
  });

  test("what has no node yet is said to wait for what it waits for", () => {
    const required = testRecord({}, testSettings({}, { pod_anti_affinity: "required" }));
    const pod = (role: "workload" | "supervisor", change: object) => [testPod(role, required, change)];
    const placed = { gated: false, node: "a", status: runningStatus };
    const of = (settled: typeof record, workloads: Observed["workloads"], supervisors: Observed["supervisors"]) =>
      conditionsOf(testObserved(settled, { workloads, supervisors }))[1]?.message;
    expect(of(required, pod("workload", placed), [])).toBe("the supervisor Pod is being replaced");
    expect(of(record, pod("workload", placed), pod("supervisor", {}))).toBe(
      "the supervisor Pod is not released to the scheduler yet",
    );
    const status = unschedulable("0/2 nodes are available: 2 Insufficient cpu.");
    expect(of(required, pod("workload", {}), pod("supervisor", { gated: false, status }))).toBe(
      "no node fits the supervisor Pod: 0/2 nodes are available: 2 Insufficient cpu.",
    );
  });

  test("in required mode the supervisor waits for its workload's node", () => {
    const required = testRecord({}, testSettings({}, { pod_anti_affinity: "required" }));
    const observed = testObserved(required, {
      workloads: [testPod("workload", required, { gated: false, node: "a" })],
      supervisors: [testPod("supervisor", required)],
    });
    expect(conditionsOf(observed)[1]).toMatchObject({ reason: "WaitingForScheduler", status: "False" });
  });
});

test("the vocabulary is closed: every reason belongs to known conditions and has a meaning", () => {
  for (const [name, { of, meaning }] of Object.entries(reasons)) {
    expect(name).toMatch(/^[A-Z][A-Za-z]+$/);
    expect(meaning).not.toBe("");
    for (const type of of) expect(conditionTypes).toContain(type);
  }
  expect(reasonClass("toString")).toBeUndefined();
  // No condition has it any more; whoever kept it still finds what it meant.
  expect(reasonClass("AgentSandboxUnavailable")).toBe("waiting");
});
