/**
 * The one table that says what users see of a sandbox: what is wanted × how the run ended × what the driver reports × where the
 * supervisor's session stands -> phase and the reason of the Ready condition. Pure; printed into the docs by `phaseTableMarkdown`.
 */

/** What is wanted; see sandbox/lifecycle.ts. */
export const desires = ["running", "ended", "stopped", "deleted"] as const;
/** How the run ended, if it did. `lost`: however it ended, nothing is left of the sandbox in the cluster. */
export const outcomes = ["none", "completed", "failed", "lost"] as const;
/** `unknown`: not heard of since the last start. `waiting`: on its way. */
export const driverStates = ["unknown", "waiting", "running", "failed", "stopped"] as const;
/** From no session at all to a runtime that serves. */
export const sessionStates = [
  "none",
  "no-boundary",
  "unfenced",
  "not-enforced",
  "launching",
  "frozen",
  "up",
  "ended",
] as const;
/** Whether the run is the sandbox's first and was never READY. */
export const runs = ["first", "again"] as const;

export interface PhaseInput {
  readonly desired: (typeof desires)[number];
  readonly outcome: (typeof outcomes)[number];
  readonly driver: (typeof driverStates)[number];
  readonly session: (typeof sessionStates)[number];
  readonly run: (typeof runs)[number];
}

export type Phase = "PROVISIONING" | "READY" | "ERROR" | "DELETING" | "STOPPING" | "STOPPED" | "STARTING" | "COMPLETED";

/** Reasons of the Ready condition that the gateway gives; where the driver or the run knows better, theirs is shown. Append only. */
export const readyReasons = [
  "Ready",
  "Deleting",
  "Stopping",
  "Stopped",
  "Completed",
  "Failed",
  "WaitingForDriver",
  "WaitingForWorkload",
  "WaitingForSupervisor",
  "WaitingForBoundary",
  "WaitingForFence",
  "WaitingForMainProcess",
  "ReplacingSupervisor",
  "NetworkPolicyNotEnforced",
  "ResourceDeleted",
] as const;

export type ReadyReason = (typeof readyReasons)[number];

/** A row matches when every column it names holds one of the values it names; the first match decides. */
export interface PhaseRow {
  readonly when: { readonly [K in keyof PhaseInput]?: readonly PhaseInput[K][] };
  readonly phase: Phase;
  readonly reason: ReadyReason;
  /** A sentence for the user. */
  readonly message: string;
}

export const phaseTable: readonly PhaseRow[] = [
  row({ desired: ["deleted"] }, "DELETING", "Deleting", "the sandbox is being deleted"),
  row(
    { outcome: ["lost"] },
    "ERROR",
    "ResourceDeleted",
    "the sandbox's resource was deleted in the cluster, not through the gateway; its files went with it",
  ),
  row(
    { desired: ["stopped"], driver: ["stopped"] },
    "STOPPED",
    "Stopped",
    "the sandbox is stopped; its files are kept",
  ),
  row({ desired: ["stopped"] }, "STOPPING", "Stopping", "the sandbox's Pods are stopping"),
  row({ outcome: ["completed"] }, "COMPLETED", "Completed", "the main process ended with exit code 0"),
  row({ outcome: ["failed"] }, "ERROR", "Failed", "the run failed"),
  row({ driver: ["failed"] }, "ERROR", "Failed", "the sandbox's Pods failed"),
  ...unready({ driver: ["unknown"] }, "WaitingForDriver", "the compute driver has not reported this run yet"),
  ...unready({ driver: ["waiting", "stopped"] }, "WaitingForWorkload", "the sandbox's Pods are on their way"),
  ...unready({ session: ["none"] }, "WaitingForSupervisor", "the supervisor has not connected"),
  row(
    { session: ["not-enforced"] },
    "ERROR",
    "NetworkPolicyNotEnforced",
    "the cluster does not enforce the sandbox's NetworkPolicy",
  ),
  row(
    { session: ["frozen"] },
    "STARTING",
    "ReplacingSupervisor",
    "the workload is frozen until its supervisor is back",
  ),
  ...unready({ session: ["no-boundary"] }, "WaitingForBoundary", "the supervisor has no connection to the workload"),
  ...unready({ session: ["unfenced"] }, "WaitingForFence", "the network fence is not closed yet"),
  ...unready({ session: ["launching"] }, "WaitingForMainProcess", "the main process is being started"),
  row({ session: ["up", "ended"] }, "READY", "Ready", "the sandbox serves"),
];

/** The row that decides; the table is total, which a test proves over every combination. */
export function decidePhase(input: PhaseInput): PhaseRow {
  const found = phaseTable.find((candidate) => matches(candidate, input));
  return found ?? (phaseTable[phaseTable.length - 1] as PhaseRow);
}

export function matches(candidate: PhaseRow, input: PhaseInput): boolean {
  return columns.every((column) => {
    const allowed: readonly string[] | undefined = candidate.when[column];
    return allowed === undefined || allowed.includes(input[column]);
  });
}

/** The table as Markdown, for the reference docs. */
export function phaseTableMarkdown(): string {
  const cell = (values: readonly string[] | undefined) => values?.map((value) => `\`${value}\``).join(", ") ?? "any";
  const lines = phaseTable.map((one) => {
    const cells = columns.map((column) => cell(one.when[column]));
    return `| ${[...cells, `**${one.phase}**`, `\`${one.reason}\``, one.message].join(" | ")} |`;
  });
  const head = ["desired", "outcome", "driver", "session", "run", "phase", "Ready reason", "meaning"];
  return [`| ${head.join(" | ")} |`, `|${"--|".repeat(head.length)}`, ...lines, ""].join("\n");
}

const columns = ["desired", "outcome", "driver", "session", "run"] as const;

function row(when: PhaseRow["when"], phase: Phase, reason: ReadyReason, message: string): PhaseRow {
  return { when, phase, reason, message };
}

/** Not READY yet: PROVISIONING in the first run, STARTING afterwards. */
function unready(when: PhaseRow["when"], reason: ReadyReason, message: string): readonly PhaseRow[] {
  return [
    row({ ...when, run: ["first"] }, "PROVISIONING", reason, message),
    row({ ...when, run: ["again"] }, "STARTING", reason, message),
  ];
}
