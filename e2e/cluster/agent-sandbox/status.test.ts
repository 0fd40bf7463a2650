import { describe, expect, test } from "vitest";
import type { AgentSandbox, Pod } from "../../../src/kube/index.ts";
import { now, observed, podOf, sandbox, settled, unownedPod } from "./_examples.ts";
import { serviceFor } from "./objects.ts";
import type { Observed } from "./plan.ts";
import { differs, statusOf } from "./status.ts";

type PodStatus = NonNullable<Pod["status"]>;

/** `Type=Status Reason "message"` of one condition; `-` when it is absent. */
function shown(state: Observed, type: string, errors: string[] = []): string {
  const condition = statusOf(state, errors)?.conditions?.find((each) => each.type === type);
  return condition ? `${condition.status} ${condition.reason}` : "-";
}

const scheduled = { type: "PodScheduled", status: "True" };
const ready = { type: "Ready", status: "True" };
const gated = { type: "PodScheduled", status: "False", reason: "SchedulingGated", message: "gated" };
const unschedulable = { type: "PodScheduled", status: "False", reason: "Unschedulable", message: "0/2 nodes" };
const suspended = { operatingMode: "Suspended" } as const;
const past = new Date(now.getTime() - 1000).toISOString();

function before(...conditions: [string, string, string][]): NonNullable<AgentSandbox["status"]> {
  return {
    conditions: conditions.map(([type, status, reason]) => ({
      type,
      status,
      reason,
      message: "",
      lastTransitionTime: "2025-01-01T00:00:00Z",
      observedGeneration: 1,
    })),
  };
}

const cr = sandbox();
const dying = { deletionTimestamp: past };
const pods = (status: PodStatus) => settled(status);

/** The contract's table: Suspended, PodScheduled, Ready, Finished. */
const table: [string, Observed, string[], string, string, string, string][] = [
  [
    "the scheduler is silent",
    pods({ phase: "Pending" }),
    [],
    "False NotSuspended",
    "Unknown PodSchedulingUnknown",
    "False DependenciesNotReady",
    "-",
  ],
  [
    "the Pod is gated",
    pods({ phase: "Pending", conditions: [gated] }),
    [],
    "False NotSuspended",
    "False SchedulingGated",
    "False DependenciesNotReady",
    "-",
  ],
  [
    "no node fits",
    pods({ phase: "Pending", conditions: [unschedulable] }),
    [],
    "False NotSuspended",
    "False Unschedulable",
    "False DependenciesNotReady",
    "-",
  ],
  [
    "the Pod is starting",
    pods({ phase: "Pending", conditions: [scheduled] }),
    [],
    "False NotSuspended",
    "True PodScheduled",
    "False DependenciesNotReady",
    "-",
  ],
  [
    "the Pod runs and is not ready",
    pods({ phase: "Running", conditions: [scheduled] }),
    [],
    "False NotSuspended",
    "True PodScheduled",
    "False DependenciesNotReady",
    "-",
  ],
  [
    "the Pod is ready",
    pods({ phase: "Running", conditions: [scheduled, ready] }),
    [],
    "False NotSuspended",
    "True PodScheduled",
    "True DependenciesReady",
    "-",
  ],
  [
    "the Pod failed",
    pods({ phase: "Failed", conditions: [scheduled] }),
    [],
    "False NotSuspended",
    "True PodScheduled",
    "False PodFailed",
    "True PodFailed",
  ],
  [
    "the Pod succeeded",
    pods({ phase: "Succeeded", conditions: [scheduled] }),
    [],
    "False NotSuspended",
    "True PodScheduled",
    "False PodSucceeded",
    "True PodSucceeded",
  ],
  [
    "the Pod was refused",
    observed(cr),
    ["no"],
    "False NotSuspended",
    "Unknown PodSchedulingUnknown",
    "False ReconcilerError",
    "-",
  ],
  [
    "another's Pod has the name",
    observed(cr, { pods: [unownedPod({})] }),
    ["no"],
    "False NotSuspended",
    "Unknown PodSchedulingUnknown",
    "False ReconcilerError",
    "-",
  ],
  [
    "two Pods are owned",
    observed(cr, { pods: [podOf(cr), podOf(cr, {}, { uid: "2" })] }),
    [],
    "False NotSuspended",
    "Unknown PodSchedulingUnknown",
    "False MultiplePods",
    "-",
  ],
  [
    "it is being suspended",
    observed(sandbox(suspended, {}, before(["PodScheduled", "True", "PodScheduled"])), {
      pods: [podOf(cr, { phase: "Running", conditions: [ready] }, dying)],
    }),
    [],
    "False PodTerminating",
    "True PodScheduled",
    "False SandboxSuspended",
    "-",
  ],
  [
    "it is being suspended and the process was killed",
    observed(sandbox(suspended), { pods: [podOf(cr, { phase: "Failed" }, dying)] }),
    [],
    "False PodTerminating",
    "-",
    "False SandboxSuspended",
    "True PodFailed",
  ],
  [
    "it is suspended",
    observed(sandbox(suspended, {}, before(["PodScheduled", "True", "PodScheduled"]))),
    [],
    "True PodTerminated",
    "-",
    "False SandboxSuspended",
    "-",
  ],
  [
    "it is suspended and another's Pod has the name",
    observed(sandbox(suspended), { pods: [unownedPod({})] }),
    [],
    "False PodNotOwned",
    "-",
    "False SandboxSuspended",
    "-",
  ],
  [
    "it is suspended and owns two Pods",
    observed(sandbox(suspended), { pods: [podOf(cr), podOf(cr, {}, { uid: "2" })] }),
    [],
    "Unknown PodStateUnknown",
    "Unknown PodSchedulingUnknown",
    "False MultiplePods",
    "-",
  ],
  [
    "it is resumed while the old Pod is terminating",
    observed(cr, { pods: [podOf(cr, { phase: "Running", conditions: [scheduled, ready] }, dying)] }),
    [],
    "False NotSuspended",
    "True PodScheduled",
    "True DependenciesReady",
    "-",
  ],
  [
    "it expired",
    observed(
      sandbox(
        { shutdownTime: past },
        {},
        before(
          ["Suspended", "False", "NotSuspended"],
          ["PodScheduled", "True", "PodScheduled"],
          ["Finished", "True", "PodFailed"],
        ),
      ),
    ),
    [],
    "False NotSuspended",
    "-",
    "False SandboxExpired",
    "True PodFailed",
  ],
];

describe("the conditions", () => {
  test.each(table)("when %s", (_, state, errors, ...expected) => {
    const types = ["Suspended", "PodScheduled", "Ready", "Finished"];
    expect(types.map((type) => shown(state, type, errors))).toEqual(expected);
  });

  test("are frozen while the sandbox is being deleted", () => {
    expect(statusOf(observed(sandbox({}, dying)), [])).toBeUndefined();
  });

  test("show the API server's text", () => {
    const text = 'pods "plain" is forbidden: exceeded quota: q';
    expect(statusOf(observed(cr), [text])?.conditions).toContainEqual(
      expect.objectContaining({ type: "Ready", message: `Error seen: ${text}`, observedGeneration: 3 }),
    );
  });

  test("keep the time of their last transition while their status stays", () => {
    const state = settled({ phase: "Running" });
    const earlier = {
      ...state.sandbox,
      status: before(["Ready", "False", "ReconcilerError"], ["Suspended", "True", "x"]),
    };
    const times = statusOf({ ...state, sandbox: earlier }, [])?.conditions?.map((c) => [c.type, c.lastTransitionTime]);
    expect(times).toContainEqual(["Ready", "2025-01-01T00:00:00Z"]);
    expect(times).toContainEqual(["Suspended", "2026-01-01T12:00:00Z"]);
  });
});

describe("the rest of the status", () => {
  test("has addresses, node, selector and Service of a ready Pod", () => {
    const state = settled({ phase: "Running", podIPs: [{ ip: "10.0.0.1" }], conditions: [ready] }, { service: true });
    const service = serviceFor(state.sandbox);
    const pods = state.pods.map((pod) => ({ ...pod, spec: { containers: [], nodeName: "n1" } }));
    const status = statusOf(
      {
        ...state,
        pods,
        service: { ...service, metadata: { name: "", uid: "", resourceVersion: "", ...service.metadata } },
      },
      [],
    );
    expect(status).toMatchObject({
      podIPs: ["10.0.0.1"],
      nodeName: "n1",
      selector: "agents.x-k8s.io/sandbox-name-hash=d3be3f67",
      service: "plain",
      serviceFQDN: "plain.ns.svc.cluster.local",
    });
    expect(status?.conditions?.find((c) => c.type === "Ready")?.message).toBe("Pod is Ready; Service Exists");
  });

  test("is nothing but conditions after expiry", () => {
    expect(Object.keys(statusOf(observed(sandbox({ shutdownTime: past })), []) ?? {})).toEqual(["conditions"]);
  });

  test("keeps the selector while suspended", () => {
    const status = statusOf(observed(sandbox(suspended)), []);
    expect(Object.keys(status ?? {})).toEqual(["conditions", "selector"]);
  });
});

describe("a status", () => {
  const state = settled({ phase: "Pending", conditions: [scheduled] });
  const status = statusOf(state, []) ?? {};

  test("that is there already is not written, in whatever order its fields are", () => {
    const stored = {
      ...state.sandbox,
      status: {
        ...status,
        conditions: status.conditions?.map((c) => Object.fromEntries(Object.entries(c).reverse()) as typeof c) ?? [],
      },
    };
    expect(differs(stored, status)).toBe(false);
    expect(differs(state.sandbox, status)).toBe(true);
  });

  test("with nothing new but a node name waits until the Pod is ready", () => {
    const stored = { ...state.sandbox, status };
    expect(differs(stored, { ...status, nodeName: "n1" })).toBe(false);
    const isReady = statusOf(settled({ phase: "Running", conditions: [ready] }), []) ?? {};
    expect(differs({ ...state.sandbox, status: isReady }, { ...isReady, nodeName: "n1" })).toBe(true);
  });
});
