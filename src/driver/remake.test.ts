import { describe, expect, test } from "vitest";
import type { Live, Pod } from "../kube/index.ts";
import { annotations } from "../manifests/index.ts";
import {
  runningStatus,
  suspendedAt,
  testGatewayId,
  testNow,
  testObserved,
  testPod,
  testRecord,
  testResource,
  testService,
  testSettings,
} from "./_testing.ts";
import { type PlanMemory, secretKey, sessionKey } from "./action.ts";
import type { Observed } from "./observed.ts";
import { plan } from "./plan.ts";
import type { GenerationRecord } from "./record.ts";

type Role = "workload" | "supervisor";

const terminating = { ...testSettings().supervisor_replacement, mode: "terminate" as const };
const settings = testSettings({ supervisor_replacement: terminating }, { pod_anti_affinity: "required" });
const record = testRecord({ supervisorUid: "supervisor-uid", resourceUid: "cr-uid" }, settings);
const { id } = record.generation;

function planOf(observed: Observed, memory: Partial<PlanMemory> = {}) {
  return plan(observed, {
    gatewayId: testGatewayId,
    request: undefined,
    rendered: {},
    writtenSecrets: new Set(),
    missingSecrets: new Set(),
    ...memory,
  });
}

/** As a release rendered it that knew of one more variable. */
function former(pod: Live<Pod>): Live<Pod> {
  const [first, ...others] = pod.spec?.containers ?? [];
  const env = [...(first?.env ?? []), { name: "OPENSHELL_FORMER", value: "1" }];
  return { ...pod, spec: { ...pod.spec, containers: [{ ...first, env }, ...others] } } as Live<Pod>;
}

function pairOf(wrong: readonly Role[], change: Partial<Record<Role, object>> = {}, of = record) {
  const pod = (role: Role) => {
    const made = testPod(role, of, change[role] ?? {});
    return wrong.includes(role) ? former(made) : made;
  };
  return { workloads: [pod("workload")], supervisors: [pod("supervisor")] };
}

const violation = {
  do: "suspend",
  record: {
    intent: "failed",
    failure: { reason: "AdmissionViolation", message: expect.stringMatching("FORMER|Gates") },
  },
};

describe("a Pod behind our gate that another build of the gateway rendered", () => {
  test("is made anew with the whole pair where it is the workload: the generation stays, and runs on", () => {
    for (const wrong of [["workload"], ["workload", "supervisor"]] as const) {
      const { actions } = planOf(testObserved(record, pairOf(wrong)));
      const why = expect.stringContaining("OPENSHELL_FORMER");
      const generation = { ...record.generation, session: 2 };
      expect(actions).toMatchObject([{ do: "suspend", record: { intent: "running", generation }, why }]);
      expect(actions[0]).toHaveProperty("record.supervisorUid", undefined);
    }
  });

  test("is made anew alone where it is the supervisor, also of a workload that is released", () => {
    for (const workload of [{}, { gated: false }, { gated: false, node: "a", status: runningStatus }]) {
      const { actions } = planOf(testObserved(record, pairOf(["supervisor"], { workload })));
      const why = expect.stringContaining("OPENSHELL_FORMER");
      expect(actions).toMatchObject([{ do: "record", record: { ...record, outdated: "supervisor-uid" }, why }]);
    }
  });

  test.each<[string, Partial<PlanMemory>]>([
    ["this process rendered it", { rendered: { workload: id, supervisor: id } }],
    [
      "this process has verified it whole",
      {
        writtenSecrets: new Set(Object.values(pairOf([])).flatMap((pods) => pods.map((pod) => secretKey(pod, record)))),
      },
    ],
  ])("is somebody's doing where %s", (_where, memory) => {
    for (const role of ["workload", "supervisor"] as const) {
      expect(planOf(testObserved(record, pairOf([role])), memory).actions[0]).toMatchObject(violation);
    }
  });

  test("is not taken for one where this process rendered those of another generation", () => {
    const rendered = { workload: "b".repeat(32), supervisor: "b".repeat(32) };
    expect(planOf(testObserved(record, pairOf(["workload"])), { rendered }).actions).toMatchObject([
      { do: "suspend", record: { intent: "running" } },
    ]);
  });

  test("excuses nothing of its peer, which this process rendered", () => {
    const observed = testObserved(record, pairOf(["workload", "supervisor"]));
    expect(planOf(observed, { rendered: { supervisor: id } }).actions[0]).toMatchObject(violation);
    expect(planOf(observed, { rendered: { workload: id } }).actions[0]).toMatchObject(violation);
  });

  test.each(["workload", "supervisor"] as const)(
    "is another thing than a gate of the %s that others opened",
    (role) => {
      const bare = { annotations: { [annotations.peerUid]: "x" } };
      for (const wrong of [[], [role], ["workload", "supervisor"]] as const) {
        const opened = pairOf(wrong, { [role]: { gated: false, metadata: bare } });
        expect(planOf(testObserved(record, opened)).actions[0]).toMatchObject(violation);
      }
    },
  );

  test("leaves alone what is released", () => {
    const released = { gated: false, node: "a", status: runningStatus };
    const seeded = testRecord({ ...record, seeded: true }, settings);
    const pods = pairOf(
      ["workload", "supervisor"],
      { workload: released, supervisor: { ...released, node: "b" } },
      seeded,
    );
    expect(planOf(testObserved(seeded, pods)).actions).toEqual([]);
  });
});

describe("a supervisor that is made anew", () => {
  const outdated = testRecord({ ...record, outdated: "supervisor-uid" }, settings);
  const running = { workload: { gated: false, node: "a", status: runningStatus } };
  const { workloads, supervisors } = pairOf(["supervisor"], running);

  test("is deleted once the record says so, whichever process sees it", () => {
    for (const own of [supervisors, pairOf([]).supervisors]) {
      expect(planOf(testObserved(outdated, { workloads, supervisors: own })).actions).toMatchObject([
        { do: "delete-pod", pod: { metadata: { uid: "supervisor-uid" } } },
      ]);
    }
  });

  test("is followed by the next session's at once, and counted by nobody", () => {
    const ending = supervisors.map((pod) => ({
      ...pod,
      metadata: { ...pod.metadata, deletionTimestamp: "2026-12-01T12:00:00Z" },
    }));
    for (const left of [[], ending]) {
      const { actions } = planOf(testObserved(outdated, { workloads, supervisors: left }));
      expect(actions).toMatchObject([{ do: "create-supervisor", record: { generation: { session: 2 } } }]);
      expect(actions[0]).not.toHaveProperty("record.replacedAt");
    }
  });

  test.each([undefined, "workload-uid"])("leaves the record's workload as it is: %s", (workloadUid) => {
    const before = { ...outdated, workloadUid };
    const next = { ...before, generation: { ...before.generation, session: 2 } };
    const made = [testPod("supervisor", next, { uid: "s2" })];
    const { actions } = planOf(testObserved(before, { workloads, supervisors: made }));
    expect(actions).toMatchObject([
      { do: "record", record: { generation: { session: 2 }, supervisorUid: "s2", outdated: undefined, workloadUid } },
    ]);
  });
});

describe("a pair that is made anew", () => {
  const of = testRecord({ ...record, supervisorUid: undefined }, settings);
  const again: GenerationRecord = { ...of, generation: { ...of.generation, session: 2 } };
  const idle = (change: Partial<Observed> = {}) =>
    testObserved(again, { resource: testResource(again, false, suspendedAt(1)), ...change });
  const own = [testPod("supervisor", again, { uid: "s2" })];

  test("is waited for until the former workload is gone and the controller has seen the suspension", () => {
    const { workloads } = pairOf(["workload"]);
    expect(planOf(idle({ workloads })).actions).toEqual([]);
    expect(planOf(idle({ resource: testResource(again, false, suspendedAt(0)) })).actions).toEqual([]);
  });

  test("is waited for no longer than provisioning_timeout", () => {
    const limited = { ...again, settings: { ...again.settings, provisioning_timeout: "30m" } };
    const planAfter = (ms: number) => {
      const { workloads } = pairOf(["workload"]);
      const now = new Date(testNow.getTime() + ms);
      return planOf(testObserved(limited, { resource: testResource(limited, false), workloads, now }));
    };
    expect(planAfter(60_000)).toEqual({ actions: [], againAfterMs: 29 * 60_000 });
    expect(planAfter(30 * 60_000).actions[0]).toMatchObject({
      record: { intent: "failed", failure: { reason: "ProvisioningTimeout" } },
    });
  });

  test("has its former supervisor deleted meanwhile, released or not", () => {
    for (const gated of [true, false]) {
      const { workloads, supervisors } = pairOf(["workload"], { supervisor: { gated } });
      expect(planOf(idle({ workloads, supervisors })).actions).toMatchObject([
        { do: "delete-pod", pod: { metadata: { uid: "supervisor-uid" } } },
      ]);
    }
  });

  test("gets its supervisor, and then runs with this build's template", () => {
    expect(planOf(idle()).actions).toMatchObject([{ do: "create-supervisor", record: { generation: { session: 2 } } }]);
    expect(planOf(idle({ supervisors: own })).actions).toMatchObject([
      { do: "run", newTemplate: true, record: { intent: "running", supervisorUid: "s2", generation: { id } } },
    ]);
  });

  test("keeps what others wrote into the affinity of the Sandbox meanwhile", () => {
    const resource = testResource(again, false, suspendedAt(1));
    const nodeAffinity = {
      preferredDuringSchedulingIgnoredDuringExecution: [
        { weight: 1, preference: { matchExpressions: [{ key: "zone", operator: "Exists" }] } },
      ],
    };
    Object.assign(resource.spec.podTemplate.spec.affinity ?? {}, { nodeAffinity });
    expect(planOf(idle({ resource, supervisors: own })).actions).toMatchObject([
      { do: "run", record: { generation: { foreignAffinity: { nodeAffinity } } } },
    ]);
  });

  test("whose supervisor the cluster refuses asks again within the window", () => {
    const now = idle().now.getTime();
    const failure = { condition: "PodsAdmitted", reason: "QuotaExceeded", message: "exceeded quota: q" } as const;
    const refused = (sinceMs: number, atMs: number) => ({
      refusedReplacement: { of: sessionKey(again), since: now - sinceMs, at: now - atMs, failure },
    });
    expect(planOf(idle(), refused(10_000, 2_000))).toEqual({ actions: [], againAfterMs: 3_000 });
    expect(planOf(idle(), refused(10_000, 5_000)).actions).toMatchObject([{ do: "create-supervisor" }]);
    expect(planOf(idle(), refused(300_000, 5_000)).actions).toMatchObject([
      { do: "suspend", record: { failure: { reason: "SupervisorLost" } } },
    ]);
  });
});

describe("a CR that is to run", () => {
  const fresh = testRecord({}, settings);
  const suspended = (of: GenerationRecord) =>
    testObserved(of, {
      resource: testResource(of, false),
      service: testService(of),
      supervisors: [testPod("supervisor", of)],
    });

  test("gets no template where this process made it, and another where it did not; nothing is waited for", () => {
    expect(planOf(suspended(fresh), { rendered: { workload: id } }).actions).toMatchObject([
      { do: "run", newTemplate: false },
    ]);
    expect(planOf(suspended(fresh)).actions).toMatchObject([{ do: "run", newTemplate: true }]);
  });

  test("and that somebody else suspended is set running as it is", () => {
    expect(planOf(suspended(record)).actions).toMatchObject([{ do: "run", newTemplate: false }]);
  });
});
