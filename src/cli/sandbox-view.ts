/** A sandbox as the command line shows it. Key names of the data form are part of the interface. */
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { openshell } from "../wire/index.ts";
import type { Column } from "./output.ts";

/** `-o json` and `-o yaml`. */
export interface SandboxData {
  readonly id: string;
  readonly name: string;
  readonly workspace: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly resource_version: number;
  /** RFC 3339; null when the gateway did not say. */
  readonly created_at: string | null;
  /** Such as `READY`; the wire's name without its prefix. */
  readonly phase: string;
  readonly current_policy_version: number;
  readonly image: string;
  readonly command: readonly string[];
  readonly agent_pod: string;
  /** Exit code of the main process; null while it has none. */
  readonly exit_code: number | null;
  readonly restart_count: number;
  readonly conditions: readonly ConditionData[];
}

export interface ConditionData {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly message: string;
  readonly transition_time: string | null;
}

export function sandboxData({ metadata, spec, status }: openshell.Sandbox): SandboxData {
  return {
    id: metadata?.id ?? "",
    name: metadata?.name ?? "",
    workspace: metadata?.workspace ?? "",
    labels: { ...metadata?.labels },
    annotations: { ...metadata?.annotations },
    resource_version: Number(metadata?.resourceVersion ?? 0n),
    created_at: timeText(metadata?.createdTime),
    phase: phaseName(status?.phase),
    current_policy_version: status?.currentPolicyVersion ?? 0,
    image: spec?.template?.image ?? "",
    command: spec?.command ?? [],
    agent_pod: status?.agentPod ?? "",
    exit_code: status?.exitCode ?? null,
    restart_count: status?.restartCount ?? 0,
    conditions: (status?.conditions ?? []).map((condition) => ({
      type: condition.type,
      status: condition.status,
      reason: condition.reason,
      message: condition.message,
      transition_time: timeText(condition.transitionTime),
    })),
  };
}

/** `READY` for SANDBOX_PHASE_READY; `UNSPECIFIED` and numbers that this version does not know are `UNKNOWN`. */
export function phaseName(phase: openshell.SandboxPhase | undefined): string {
  return (phase === undefined || phase === 0 ? undefined : openshell.SandboxPhase[phase]) ?? "UNKNOWN";
}

/**
 * Why a sandbox is not where it should be, in one text: the Ready condition, which sums the others up; without it every condition that is not
 * True. Empty when there is nothing to say.
 */
export function reasonsOf(data: SandboxData): string {
  const spoken = data.conditions.filter(({ status, reason, message }) => status !== "True" && (reason || message));
  const ready = spoken.filter(({ type }) => type === "Ready");
  return (ready.length > 0 ? ready : spoken)
    .map(({ reason, message }) => (message === "" ? reason : `${reason}: ${message}`))
    .join("; ");
}

/** Phases that need no reason. */
const settled = ["READY", "COMPLETED", "STOPPED"];

export function sandboxColumns(now: Date, withWorkspace: boolean): Column<SandboxData>[] {
  const workspace: Column<SandboxData> = { heading: "WORKSPACE", cell: (one) => one.workspace };
  return [
    ...(withWorkspace ? [workspace] : []),
    { heading: "NAME", cell: (one) => one.name },
    { heading: "PHASE", cell: (one) => one.phase },
    { heading: "AGE", cell: (one) => ageText(one.created_at, now) },
    { heading: "IMAGE", cell: imageText },
    { heading: "REASON", cell: (one) => (settled.includes(one.phase) ? "" : reasonsOf(one)) },
  ];
}

/** A sandbox that names no image has the operator's, which the gateway does not tell. */
function imageText({ image }: SandboxData): string {
  return image === "" ? "(default)" : image;
}

/** Lines of `sandbox get`. */
export function sandboxProperties(one: SandboxData): (readonly [string, string])[] {
  const pairs = (map: Readonly<Record<string, string>>) =>
    Object.entries(map)
      .map(([key, value]) => `${key}=${value}`)
      .join(", ");
  return [
    ["Name", one.name],
    ["Workspace", one.workspace],
    ["Id", one.id],
    ["Phase", one.phase],
    ["Created", one.created_at ?? ""],
    ["Image", imageText(one)],
    ["Command", one.command.join(" ")],
    ["Pod", one.agent_pod],
    ["Exit code", one.exit_code === null ? "" : String(one.exit_code)],
    ["Labels", pairs(one.labels)],
    ...one.conditions.map(
      ({ type, status, reason, message }) =>
        [type, [status, reason, message].filter((part) => part !== "").join("  ")] as const,
    ),
  ];
}

/** The time since `from` in the largest unit that fits: 42s, 7m, 3h, 12d. */
export function ageText(from: string | null, now: Date): string {
  if (from === null) return "";
  const seconds = Math.max(0, Math.floor((now.getTime() - new Date(from).getTime()) / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 2 * 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

function timeText(time: Timestamp | undefined): string | null {
  return time === undefined ? null : timestampDate(time).toISOString();
}
