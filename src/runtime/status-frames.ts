import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { boundary } from "../wire/index.ts";
import type { FenceState } from "./fence.ts";
import type { Freezer } from "./freezer.ts";
import type { MainProcess } from "./main-process.ts";

export type RuntimeFrame = MessageInitShape<typeof boundary.RuntimeFrameSchema>;

const fenceStates = {
  probing: boundary.FenceStatus_State.PROBING,
  fenced: boundary.FenceStatus_State.FENCED,
  "not-enforced": boundary.FenceStatus_State.NOT_ENFORCED,
  breached: boundary.FenceStatus_State.BREACHED,
  unchecked: boundary.FenceStatus_State.UNCHECKED,
} as const satisfies Record<FenceState["kind"], boundary.FenceStatus_State>;

export function fenceStatus(fence: FenceState): MessageInitShape<typeof boundary.FenceStatusSchema> {
  return { state: fenceStates[fence.kind], reachable: "reachable" in fence ? (fence.reachable ?? "") : "" };
}

export function mainProcessStatus(main: MainProcess): MessageInitShape<typeof boundary.MainProcessStatusSchema> {
  const { state, startedAt, exitCode, restartCount, nextRestartAt, message } = main.status;
  return {
    state,
    restartCount,
    instanceId: main.instanceId,
    message: message ?? "",
    ...(exitCode === undefined ? {} : { exitCode }),
    ...(startedAt === undefined ? {} : { startedTime: timestampFromMs(Math.round(startedAt)) }),
    ...(nextRestartAt === undefined ? {} : { nextRestartTime: timestampFromMs(Math.round(nextRestartAt)) }),
  };
}

export function treeStatus(freezer: Pick<Freezer, "status">): MessageInitShape<typeof boundary.TreeStatusSchema> {
  return { ...freezer.status };
}
