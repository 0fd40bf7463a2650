import type { boundary } from "../../wire/index.ts";
import { boundary as wire } from "../../wire/index.ts";
import type { PhaseInput } from "../phase.ts";

/** What the gateway knows of a sandbox through its supervisor, as of the last LaunchEvent. */
export interface SessionView {
  /** A supervisor is connected to this gateway. */
  readonly connected: boolean;
  /** The supervisor is connected to the workload. */
  readonly boundary: { readonly connected: boolean; readonly reason: string; readonly message: string };
  readonly fence: boundary.FenceStatus_State;
  /** What a fence probe reached, when one did. */
  readonly reachable: string;
  readonly mainProcess?: boundary.MainProcessStatus;
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

/** The view once the supervisor is gone: a workload that served is frozen from then on. */
export function lostSession(view: SessionView): SessionView {
  const served = ["up", "ended", "frozen"].includes(sessionState(view));
  return served ? supervisorLost : noSession;
}

export const supervisorLost: SessionView = {
  ...noSession,
  frozen: true,
  frozenReason: "the supervisor's session was lost; the workload is frozen until it is back",
};

/** The view after one event of the launch relay. */
export function withEvent(view: SessionView, { payload }: boundary.LaunchEvent): SessionView {
  switch (payload.case) {
    case "boundary": {
      const { connected, reason, message } = payload.value;
      return { ...view, boundary: { connected, reason, message } };
    }
    case "fence":
      return { ...view, fence: payload.value.state, reachable: payload.value.reachable };
    case "mainProcess":
      return { ...view, mainProcess: payload.value };
    case "tree":
      return { ...view, frozen: payload.value.frozen, frozenReason: payload.value.reason };
    case undefined:
      return view;
  }
}

/** The session's column of the phase table. */
export function sessionState(view: SessionView): PhaseInput["session"] {
  const { FenceStatus_State: Fence, MainProcessStatus_State: Main } = wire;
  if (view.fence === Fence.NOT_ENFORCED) return "not-enforced";
  if (view.frozen || view.fence === Fence.BREACHED) return "frozen";
  if (!view.connected) return "none";
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

/** True once the runtime says that nothing the agent runs can reach the network, or that the check is off. */
export function isFenced(view: SessionView): boolean {
  return view.fence === wire.FenceStatus_State.FENCED || view.fence === wire.FenceStatus_State.UNCHECKED;
}
