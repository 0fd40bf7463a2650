import { create } from "@bufbuild/protobuf";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, it } from "vitest";
import { boundary, compute, openshell } from "../../wire/index.ts";
import { newSession, noSession, sessionState, withEvent } from "../sessions/view.ts";
import { type ClassifyReason, driverView } from "./driver-state.ts";
import {
  afterAction,
  created,
  exitFinalized,
  exitReported,
  failed,
  failedInDriver,
  found,
  hasBegunToServe,
  type Lifecycle,
  startRequested,
  stopRequested,
  vanished,
} from "./lifecycle.ts";
import { deriveStatus, type StatusInput } from "./status.ts";

const classify: ClassifyReason = (reason) =>
  (
    ({
      Ok: "ok",
      Unschedulable: "waiting",
      QuotaExceeded: "failed",
      GenerationFailed: "failed",
      Stopping: "stopped",
      Stopped: "stopped",
    }) as const
  )[reason as "Ok"];

function driver(...reasons: string[]): compute.DriverSandboxStatus {
  const types = ["PodsAdmitted", "Scheduled", "WorkloadReady"];
  return create(compute.DriverSandboxStatusSchema, {
    conditions: reasons.map((reason, index) => ({
      type: types[index] ?? "",
      status: reason === "Ok" ? "True" : "False",
      reason,
      message: `because of ${reason}`,
    })),
  });
}

const event = (payload: NonNullable<boundary.LaunchEvent["payload"]>) =>
  create(boundary.LaunchEventSchema, { payload } as never);
const boundaryUp = event({ case: "boundary", value: create(boundary.BoundaryStatusSchema, { connected: true }) });
const fenced = event({
  case: "fence",
  value: create(boundary.FenceStatusSchema, { state: boundary.FenceStatus_State.FENCED }),
});
const idle = event({
  case: "mainProcess",
  value: create(boundary.MainProcessStatusSchema, { state: boundary.MainProcessStatus_State.IDLE, instanceId: "m1" }),
});
const serving = [boundaryUp, fenced, idle].reduce(withEvent, newSession);
const running = afterAction(created(), "create", "r1");
const base: StatusInput = {
  lifecycle: running,
  driver: driver("Ok", "Ok", "Ok"),
  session: serving,
  before: undefined,
  classify,
  nowMs: 1000,
};
const condition = (status: openshell.SandboxStatus, type: string) => status.conditions.find((one) => one.type === type);

describe("the driver's column", () => {
  it("is read from the class of the reasons", () => {
    expect(driverView(undefined, classify).state).toBe("unknown");
    expect(driverView(driver("Ok", "Ok", "Ok"), classify).state).toBe("running");
    expect(driverView(driver("Ok", "Unschedulable", "Ok"), classify)).toMatchObject({
      state: "waiting",
      because: { reason: "Unschedulable" },
    });
    expect(driverView(driver("Stopped", "Stopped", "Stopped"), classify).state).toBe("stopped");
    expect(driverView(driver("Stopping", "Stopping", "Stopped"), classify).state).toBe("waiting");
  });

  it("names the failure itself, not the conditions that fail with it", () => {
    const failed = driver("GenerationFailed", "GenerationFailed", "QuotaExceeded");
    expect(driverView(failed, classify)).toMatchObject({ state: "failed", because: { reason: "QuotaExceeded" } });
  });
});

describe("a session's column", () => {
  it("climbs with what the supervisor tells", () => {
    const steps = [
      noSession,
      newSession,
      withEvent(newSession, boundaryUp),
      [boundaryUp, fenced].reduce(withEvent, newSession),
      serving,
    ];
    expect(steps.map((view) => sessionState(view, false))).toEqual([
      "none",
      "no-boundary",
      "unfenced",
      "launching",
      "up",
    ]);
  });

  it("is frozen after a serving supervisor is lost, and none after one that never served", () => {
    expect(sessionState(noSession, true)).toBe("frozen");
    expect(sessionState(noSession, false)).toBe("none");
    // It is back, and has said nothing yet.
    expect(sessionState(newSession, true)).toBe("no-boundary");
  });

  it("is frozen when the fence is breached", () => {
    const state = boundary.FenceStatus_State.BREACHED;
    const breached = event({ case: "fence", value: create(boundary.FenceStatusSchema, { state }) });
    expect(sessionState(withEvent(serving, breached), true)).toBe("frozen");
  });
});

describe("a status", () => {
  it("completes the driver's conditions with the session's and Ready", () => {
    const { status } = deriveStatus(base);
    expect(status.phase).toBe(openshell.SandboxPhase.READY);
    expect(status.conditions.map(({ type, status: value }) => `${type}=${value}`)).toEqual([
      "PodsAdmitted=True",
      "Scheduled=True",
      "WorkloadReady=True",
      "SupervisorConnected=True",
      "Fenced=True",
      "Ready=True",
    ]);
    expect(status.mainProcessInstanceId).toBe("m1");
  });

  it("keeps a condition's time while its status stays", () => {
    const before = deriveStatus(base).status;
    const { status } = deriveStatus({ ...base, before, session: noSession, nowMs: 5000 });
    const times = Object.fromEntries(
      status.conditions.map(({ type, transitionTime }) => [type, transitionTime && timestampMs(transitionTime)]),
    );
    expect(times).toMatchObject({ PodsAdmitted: 1000, SupervisorConnected: 5000, Ready: 5000 });
  });

  it("says what the driver waits for as the reason of Ready", () => {
    const { status } = deriveStatus({ ...base, driver: driver("Ok", "Unschedulable", "Ok"), session: noSession });
    expect(condition(status, "Ready")).toMatchObject({ reason: "Unschedulable", message: "because of Unschedulable" });
  });

  it("says in the driver's words what a stop waits for, and what is left of the sandbox after it", () => {
    const stopped = { ...base, lifecycle: stopRequested(running), session: noSession };
    const readyOf = (...reasons: string[]) =>
      condition(deriveStatus({ ...stopped, driver: driver(...reasons) }).status, "Ready");
    expect(readyOf("Stopping", "Stopping", "Stopped")).toMatchObject({ message: "because of Stopping" });
    expect(readyOf("Stopped", "Stopped", "Stopped")).toMatchObject({ message: "because of Stopped" });
    expect(readyOf("Ok", "Unschedulable", "Ok")).toMatchObject({
      reason: "Stopping",
      message: expect.stringMatching(/Pods are stopping/),
    });
  });

  it("does not show the former run's failure after a new start", () => {
    const broken = driver("QuotaExceeded", "GenerationFailed", "GenerationFailed");
    expect(deriveStatus({ ...base, driver: broken, session: noSession }).row.phase).toBe("ERROR");
    const again = startRequested(failedInDriver(running, "QuotaExceeded", ""), "g2");
    expect(deriveStatus({ ...base, lifecycle: again, driver: broken, session: noSession }).row.phase).toBe("STARTING");
  });

  it("has the exit code, and says so when it is a failure", () => {
    const { status } = deriveStatus({ ...base, lifecycle: exitReported(running, "m1", 7) });
    expect(status).toMatchObject({ phase: openshell.SandboxPhase.ERROR, exitCode: 7 });
    expect(condition(status, "Ready")).toMatchObject({
      reason: "MainProcessFailed",
      message: "the main process ended with exit code 7",
    });
  });

  it("is STOPPED when the driver never took the sandbox and is not asked to any more, until it turns out to have it", () => {
    const phaseOf = (change: Partial<StatusInput>) =>
      deriveStatus({ ...base, driver: undefined, session: noSession, ...change }).row.phase;
    for (const never of [created(), failed(created(), "DriverRefused", "no such runtime class")]) {
      const lifecycle = stopRequested(never);
      expect(phaseOf({ lifecycle })).toBe("STOPPED");
      expect(phaseOf({ lifecycle: found(lifecycle, true), driver: driver("Ok", "Ok", "Ok") })).toBe("STOPPING");
    }
    expect(phaseOf({ lifecycle: created() })).toBe("PROVISIONING");
    // What the driver took is stopped when it says so.
    expect(phaseOf({ lifecycle: stopRequested(running) })).toBe("STOPPING");
  });

  it.each<[string, Lifecycle]>([
    ["running", running],
    ["stopped", afterAction(stopRequested(running), "stop")],
    ["completed", afterAction(exitFinalized(exitReported(running, "m1", 0), "m1"), "stop")],
    ["ended with 7", afterAction(exitFinalized(exitReported(running, "m1", 7), "m1"), "stop")],
    ["failed, then stopped", afterAction(stopRequested(failedInDriver(running, "Evicted", "")), "stop")],
  ])("says that its files are gone with its resource when it was %s", (_, lifecycle) => {
    const seen = (life: Lifecycle, says: StatusInput["driver"]) =>
      deriveStatus({ ...base, session: noSession, lifecycle: life, driver: says }).status;
    const lost = vanished(lifecycle);
    for (const status of [seen(lost, "gone"), seen(stopRequested(lost), "gone"), seen(lost, undefined)]) {
      expect(status.phase).toBe(openshell.SandboxPhase.ERROR);
      expect(condition(status, "Ready")).toMatchObject({
        status: "False",
        reason: "ResourceDeleted",
        message: expect.stringContaining("its files went with it"),
      });
    }
    const started = startRequested(lost, "g2");
    expect(seen(started, undefined).phase).toBe(openshell.SandboxPhase.STARTING);
    // The driver turns out to have it.
    const stopped = afterAction(found(stopRequested(lost), false), "stop");
    expect(condition(seen(stopped, driver("Stopped", "Stopped", "Stopped")), "Ready")?.reason).not.toBe(
      "ResourceDeleted",
    );
  });

  const over: Record<string, Lifecycle> = {
    Completed: exitFinalized(exitReported(running, "m1", 0), "m1"),
    Failed: exitFinalized(exitReported(running, "m1", 7), "m1"),
    Stopped: stopRequested(running),
    Stopping: stopRequested(running),
  };
  it.each(Object.keys(over))("of a run that is over (%s) speaks of no supervisor that will come back", (reason) => {
    const lifecycle = over[reason] as Lifecycle;
    const gone = driver("Stopped", "Stopped", reason === "Stopping" ? "Stopping" : "Stopped");
    for (const life of [lifecycle, hasBegunToServe(lifecycle)]) {
      const { status } = deriveStatus({ ...base, lifecycle: life, driver: gone, session: noSession });
      const message = expect.stringMatching(/^the run is over/);
      expect(condition(status, "SupervisorConnected")).toMatchObject({ status: "False", reason, message });
      expect(condition(status, "Fenced")).toMatchObject({ status: "False", reason, message });
    }
    // Until the supervisor has gone, it is there.
    const { status } = deriveStatus({ ...base, lifecycle, driver: gone });
    expect(condition(status, "SupervisorConnected")).toMatchObject({ status: "True" });
  });

  it("says why the network fence failed the run, also when the run is over", () => {
    const state = boundary.FenceStatus_State.NOT_ENFORCED;
    const open = event({
      case: "fence",
      value: create(boundary.FenceStatusSchema, { state, reachable: "10.0.0.1:443" }),
    });
    const lifecycle = failed(running, "NetworkPolicyNotEnforced", "the cluster does not enforce it");
    const { status } = deriveStatus({ ...base, lifecycle, session: withEvent(serving, open) });
    expect(condition(status, "Fenced")).toMatchObject({ status: "False", reason: "NetworkPolicyNotEnforced" });
  });

  it("of a run that goes on still says that its supervisor is being replaced", () => {
    const { status } = deriveStatus({ ...base, lifecycle: hasBegunToServe(running), session: noSession });
    expect(condition(status, "SupervisorConnected")).toMatchObject({ reason: "ReplacingSupervisor" });
  });
});
