import { create } from "@bufbuild/protobuf";
import { type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { cut, longestText, longestWord } from "../../common/cut.ts";
import type { boundary } from "../../wire/index.ts";
import { boundary as wire } from "../../wire/index.ts";
import type { PhaseInput } from "../phase.ts";

type MainProcess = Pick<
  boundary.MainProcessStatus,
  "state" | "instanceId" | "restartCount" | "startedTime" | "nextRestartTime"
>;

/** What the gateway knows of a sandbox through its supervisor, as of the last LaunchEvent. */
export interface SessionView {
  /** A supervisor is connected to this gateway. */
  readonly connected: boolean;
  /** The supervisor is connected to the workload. */
  readonly boundary: { readonly connected: boolean; readonly reason: string; readonly message: string };
  readonly fence: boundary.FenceStatus_State;
  /** What a fence probe reached, when one did. */
  readonly reachable: string;
  readonly mainProcess?: MainProcess;
  readonly frozen: boolean;
  readonly frozenReason: string;
}

export const noSession: SessionView = {
  connected: false,
  boundary: { connected: false, reason: "", message: "" },
  fence: wire.FenceStatus_State.UNSPECIFIED,
  reachable: "",
  frozen: false,
  frozenReason: "",
};

export const newSession: SessionView = { ...noSession, connected: true };

/** The view after one event of the launch relay. What the event says of the workload is in the end the agent's: nothing is kept at its length. */
export function withEvent(view: SessionView, { payload }: boundary.LaunchEvent): SessionView {
  switch (payload.case) {
    case "boundary": {
      const { connected, reason, message } = payload.value;
      return { ...view, boundary: { connected, reason: cut(reason, longestWord), message: cut(message, longestText) } };
    }
    case "fence":
      return { ...view, fence: payload.value.state, reachable: cut(payload.value.reachable, longestWord) };
    case "mainProcess":
      return { ...view, mainProcess: mainProcessOf(payload.value) };
    case "tree":
      return { ...view, frozen: payload.value.frozen, frozenReason: cut(payload.value.reason, longestText) };
    case undefined:
      return view;
  }
}

function mainProcessOf(told: boundary.MainProcessStatus): MainProcess {
  const startedTime = timeOf(told.startedTime);
  const nextRestartTime = timeOf(told.nextRestartTime);
  return {
    state: told.state,
    instanceId: cut(told.instanceId, longestWord),
    restartCount: told.restartCount,
    ...(startedTime === undefined ? {} : { startedTime }),
    ...(nextRestartTime === undefined ? {} : { nextRestartTime }),
  };
}

/** 9999-12-31T23:59:59Z, in seconds. */
const lastSecond = 253_402_300_799n;

/** Undefined also for a time that protobuf JSON cannot print: it would keep a client from printing the whole list. */
function timeOf(told: Timestamp | undefined): Timestamp | undefined {
  const { seconds = -1n, nanos = 0 } = told ?? {};
  const isTime = seconds >= 0n && seconds <= lastSecond && nanos >= 0 && nanos < 1e9;
  return isTime ? create(TimestampSchema, { seconds, nanos }) : undefined;
}

/**
 * The session's column of the phase table.
 * @param served whether the run was READY once: without its supervisor its workload is frozen
 */
export function sessionState(view: SessionView, served: boolean): PhaseInput["session"] {
  const { FenceStatus_State: Fence, MainProcessStatus_State: Main } = wire;
  if (isNotEnforced(view)) return "not-enforced";
  if (view.frozen || view.fence === Fence.BREACHED) return "frozen";
  if (!view.connected) return served ? "frozen" : "none";
  if (!view.boundary.connected) return "no-boundary";
  if (view.fence !== Fence.FENCED && view.fence !== Fence.UNCHECKED) return "unfenced";
  switch (view.mainProcess?.state) {
    case Main.RUNNING:
    case Main.IDLE:
    case Main.RESTARTING:
      return "up";
    case Main.EXITED:
    case Main.FAILED_TO_START:
      return "ended";
    default:
      return "launching";
  }
}

/** True once the runtime says that the cluster does not enforce the NetworkPolicy. */
export function isNotEnforced(view: SessionView): boolean {
  return view.fence === wire.FenceStatus_State.NOT_ENFORCED;
}

/** True once the runtime says that nothing the agent runs can reach the network, or that the check is off. */
export function isFenced(view: SessionView): boolean {
  return view.fence === wire.FenceStatus_State.FENCED || view.fence === wire.FenceStatus_State.UNCHECKED;
}
