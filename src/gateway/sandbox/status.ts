import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type compute, openshell } from "../../wire/index.ts";
import { decidePhase, type PhaseInput, type PhaseRow } from "../phase.ts";
import { isFenced, isNotEnforced, type SessionView, sessionState } from "../sessions/view.ts";
import { type ClassifyReason, type DriverView, driverView } from "./driver-state.ts";
import { hasServed, isLost, isStarted, type Lifecycle } from "./lifecycle.ts";

/** Everything a status is made of. */
export interface StatusInput {
  readonly lifecycle: Lifecycle;
  /** Last report of the driver; undefined before the first, and `gone` when it has no such sandbox. */
  readonly driver: compute.DriverSandboxStatus | "gone" | undefined;
  /** A create is under way: nobody knows yet whether the driver has the sandbox. @default false */
  readonly isBeingCreated?: boolean;
  readonly session: SessionView;
  /** The status before, for transition times and for what outlives a session. */
  readonly before: openshell.SandboxStatus | undefined;
  readonly classify: ClassifyReason;
  readonly nowMs: number;
}

export interface DerivedStatus {
  readonly status: openshell.SandboxStatus;
  readonly row: PhaseRow;
  readonly input: PhaseInput;
}

/** What users see of a sandbox, by the phase table. Pure. */
export function deriveStatus(from: StatusInput): DerivedStatus {
  const { lifecycle, session } = from;
  const driver = driverColumn(from);
  const input: PhaseInput = {
    desired: lifecycle.desired,
    outcome: outcomeOf(lifecycle),
    // Until the driver accepted the newest start, a failure it reports is the former run's.
    driver:
      driver.state === "failed" && !isStarted(lifecycle) && lifecycle.desired === "running" ? "waiting" : driver.state,
    session: sessionState(session, hasServed(lifecycle)),
    run: lifecycle.again ? "again" : "first",
  };
  const row = decidePhase(input);
  const status = create(openshell.SandboxStatusSchema, {
    phase: openshell.SandboxPhase[row.phase],
    agentPod: typeof from.driver === "object" ? from.driver.name : (from.before?.agentPod ?? ""),
    conditions: conditionsOf(from, row, driver.because),
    ...mainProcessOf(from),
  });
  return { status, row, input };
}

function driverColumn({ lifecycle, driver, isBeingCreated = false, classify }: StatusInput): DriverView {
  if (driver === "gone") return { state: "stopped" };
  const { desired, applied } = lifecycle;
  // Never taken, and not asked to take it any more: the driver has nothing to report of it.
  const isUntold = driver === undefined && desired === "stopped" && applied.state === "absent" && !isBeingCreated;
  return isUntold ? { state: "stopped" } : driverView(driver, classify);
}

function outcomeOf(lifecycle: Lifecycle): PhaseInput["outcome"] {
  const { failure, exit } = lifecycle;
  if (isLost(lifecycle)) return "lost";
  if (exit !== undefined) return exit.code === 0 ? "completed" : "failed";
  return failure === undefined ? "none" : "failed";
}

type StatusInit = MessageInitShape<typeof openshell.SandboxStatusSchema>;

/** The main process as its session tells; what it was stays visible after the session, until the next start. */
function mainProcessOf({ session: { mainProcess }, before, lifecycle: { exit } }: StatusInput): StatusInit {
  const known = mainProcess ?? {
    instanceId: before?.mainProcessInstanceId ?? "",
    restartCount: before?.restartCount ?? 0,
    startedTime: before?.mainProcessStartedTime,
    nextRestartTime: undefined,
  };
  return {
    mainProcessInstanceId: known.instanceId,
    restartCount: known.restartCount,
    ...(known.startedTime === undefined ? {} : { mainProcessStartedTime: known.startedTime }),
    ...(known.nextRestartTime === undefined ? {} : { nextRestartTime: known.nextRestartTime }),
    ...(exit === undefined ? {} : { exitCode: exit.code }),
  };
}

type Condition = Omit<MessageInitShape<typeof openshell.SandboxConditionSchema>, "$typeName" | "transitionTime">;

function conditionsOf(from: StatusInput, row: PhaseRow, because: compute.DriverCondition | undefined) {
  const driver = typeof from.driver === "object" ? from.driver.conditions : [];
  const reported: Condition[] = driver.map(({ type, status, reason, message }) => ({ type, status, reason, message }));
  const own = [...ofSession(from, row), ready(from.lifecycle, row, because)];
  return [...reported, ...own].map((condition) => ({ ...condition, transitionTime: transitionTime(from, condition) }));
}

function transitionTime({ before, nowMs }: StatusInput, { type, status }: Condition): Timestamp {
  const former = before?.conditions.find((one) => one.type === type);
  return former?.status === status && former?.transitionTime !== undefined
    ? former.transitionTime
    : timestampFromMs(nowMs);
}

/** A run that is over waits for no supervisor and for no fence: what is no longer true is False for the reason that ended the run. */
function ofSession({ lifecycle, session }: StatusInput, row: PhaseRow): Condition[] {
  const conditions = [supervisorConnected(session, hasServed(lifecycle)), fenced(session)];
  const isOver = lifecycle.desired !== "running";
  if (!isOver || session.connected || isNotEnforced(session)) return conditions;
  const message = "the run is over, and its supervisor has left with it";
  return conditions.map((one) => ({ ...one, status: "False", reason: row.reason, message }));
}

function supervisorConnected(view: SessionView, served: boolean): Condition {
  const type = "SupervisorConnected";
  if (view.frozen || (served && !view.connected)) {
    const message = view.connected
      ? view.frozenReason || "the workload is frozen until its supervisor is back"
      : "the supervisor's session was lost; the workload is frozen until it is back";
    return { type, status: "False", reason: "ReplacingSupervisor", message };
  }
  if (!view.connected)
    return { type, status: "False", reason: "WaitingForSupervisor", message: "no supervisor is connected" };
  if (view.boundary.connected) return { type, status: "True", reason: "Connected", message: "" };
  const message = view.boundary.message || "the supervisor is not connected to the workload yet";
  return { type, status: "False", reason: view.boundary.reason || "WaitingForBoundary", message };
}

function fenced(view: SessionView): Condition {
  const reason = isNotEnforced(view) ? "NetworkPolicyNotEnforced" : "WaitingForFence";
  if (isFenced(view)) return { type: "Fenced", status: "True", reason: "Fenced", message: "" };
  const message =
    view.reachable === ""
      ? "the network fence is not proved closed"
      : `${view.reachable} can be reached from the workload`;
  return { type: "Fenced", status: "False", reason, message };
}

/** Why the sandbox is READY or not: that it is lost first, then the run's own failure, then what the driver says of the same, then the table's sentence. */
function ready({ failure, exit }: Lifecycle, row: PhaseRow, because: compute.DriverCondition | undefined): Condition {
  const type = "Ready";
  if (row.phase === "READY") return { type, status: "True", reason: row.reason, message: row.message };
  if (row.phase === "ERROR" && exit !== undefined && row.reason !== "ResourceDeleted") {
    return {
      type,
      status: "False",
      reason: "MainProcessFailed",
      message: `the main process ended with exit code ${exit.code}`,
    };
  }
  if (row.phase === "ERROR" && failure !== undefined) return { type, status: "False", ...failure };
  // Of a stop, too, the driver knows what it waits for, and what is in the way of the next start.
  const tellsMore = ["Failed", "WaitingForWorkload", because?.reason].includes(row.reason);
  if (tellsMore && because !== undefined)
    return { type, status: "False", reason: because.reason, message: because.message };
  return { type, status: "False", reason: row.reason, message: row.message };
}
