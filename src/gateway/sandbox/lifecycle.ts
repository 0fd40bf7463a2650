/** What the gateway wants of a sandbox and how far the driver was told; stored, so that a restarted gateway goes on from here. Pure. */
export interface Lifecycle {
  /** `ended`: the run is over by itself (exit or failure); its Pods are to stop, what it was stays visible. */
  readonly desired: "running" | "ended" | "stopped" | "deleted";
  /** Generation asked for by the last start; "" is the first one, which the driver names itself. */
  readonly generationId: string;
  /** What the driver has accepted. */
  readonly applied: {
    /** `absent`: it has nothing of it, not yet or not any more. `failed`: the driver itself ended the run. */
    readonly state: "absent" | "running" | "failed" | "stopped";
    readonly generationId: string;
    readonly deleting: boolean;
  };
  /** Opaque name of the running pair, from the driver. */
  readonly runtimeIdentity: string;
  /** Why the run failed, when the gateway itself found out. */
  readonly failure?: { readonly reason: string; readonly message: string };
  /** How the main process ended. `finalized` once its output is out and the pair may stop. */
  readonly exit?: { readonly instanceId: string; readonly code: number; readonly finalized: boolean };
  /** The run was READY once, or is not the sandbox's first: it is STARTING, not PROVISIONING, until it is READY. */
  readonly again: boolean;
  /** Generation that was READY last. Absent where none was. */
  readonly served?: string;
}

/** One call to the driver. */
export type DriverAction = "create" | "start" | "stop" | "delete";

export function created(): Lifecycle {
  return {
    desired: "running",
    generationId: "",
    applied: { state: "absent", generationId: "", deleting: false },
    runtimeIdentity: "",
    again: false,
  };
}

/** The next call that brings the driver closer to what is wanted; undefined when it has been told everything. */
export function nextAction({ desired, applied, generationId }: Lifecycle): DriverAction | undefined {
  if (desired === "deleted") return applied.deleting ? undefined : "delete";
  if (applied.state === "absent") return desired === "running" ? "create" : undefined;
  if (desired === "ended") return applied.state === "running" ? "stop" : undefined;
  if (desired === "stopped") return applied.state === "stopped" ? undefined : "stop";
  if (applied.generationId === generationId && applied.state === "running") return undefined;
  return applied.state === "running" ? "stop" : "start";
}

/** After the driver accepted `action`. */
export function afterAction(before: Lifecycle, action: DriverAction, runtimeIdentity = ""): Lifecycle {
  const identity = runtimeIdentity === "" ? before.runtimeIdentity : runtimeIdentity;
  switch (action) {
    case "create":
    case "start":
      return {
        ...before,
        runtimeIdentity: identity,
        applied: { ...before.applied, state: "running", generationId: before.generationId },
      };
    case "stop":
      return { ...before, applied: { ...before.applied, state: "stopped" } };
    case "delete":
      return { ...before, applied: { ...before.applied, deleting: true } };
  }
}

/** The user asks to stop. A stopped or ended sandbox is stopped again without harm. */
export function stopRequested(before: Lifecycle): Lifecycle {
  return before.desired === "deleted" ? before : { ...before, desired: "stopped" };
}

/** The user asks to start: a new generation, unless the sandbox runs already or is being deleted. */
export function startRequested(before: Lifecycle, generationId: string): Lifecycle {
  if (before.desired === "running" || before.desired === "deleted") return before;
  const { failure: _failure, exit: _exit, ...rest } = before;
  return { ...rest, desired: "running", generationId, again: true };
}

export function deleteRequested(before: Lifecycle): Lifecycle {
  return { ...before, desired: "deleted" };
}

/** The main process ended; the first report of a run counts. */
export function exitReported(before: Lifecycle, instanceId: string, code: number): Lifecycle {
  if (before.desired !== "running" || before.exit !== undefined) return before;
  return { ...before, exit: { instanceId, code, finalized: false } };
}

/** Nothing more comes of the main process: the pair may stop. */
export function exitFinalized(before: Lifecycle, instanceId: string): Lifecycle {
  if (before.exit?.instanceId !== instanceId || before.exit.finalized) return before;
  const exit = { ...before.exit, finalized: true };
  return before.desired === "running" ? { ...before, exit, desired: "ended" } : { ...before, exit };
}

/** The run cannot go on; a run that ended already keeps its first reason. */
export function failed(before: Lifecycle, reason: string, message: string): Lifecycle {
  if (before.desired === "deleted" || before.failure !== undefined) return before;
  const desired = before.desired === "running" ? "ended" : before.desired;
  return { ...before, desired, failure: { reason, message } };
}

/** The driver ended the run; its conditions go on saying why, so it is not asked to stop. */
export function failedInDriver(before: Lifecycle, reason: string, message: string): Lifecycle {
  const after = failed(before, reason, message);
  return after.applied.state === "running" ? { ...after, applied: { ...after.applied, state: "failed" } } : after;
}

/** The run is READY. */
export function hasBegunToServe(before: Lifecycle): Lifecycle {
  const { again, generationId } = before;
  return again && hasServed(before) ? before : { ...before, again: true, served: generationId };
}

/** Whether the run was READY once: without its supervisor its workload is frozen, and serves again when that is back. */
export function hasServed({ served, generationId }: Lifecycle): boolean {
  return served === generationId;
}

/** Whether the driver was told of the newest start, so that what it reports is about this run. */
export function isStarted({ desired, applied, generationId }: Lifecycle): boolean {
  return desired === "running" && applied.state === "running" && applied.generationId === generationId;
}

/**
 * The driver has it: what is no longer wanted of it is to be stopped. That is so where no answer ever said that it was made, and where it
 * runs although it was stopped: somebody else started it.
 */
export function found(before: Lifecycle, isRunning: boolean): Lifecycle {
  const isUnwanted = before.desired === "stopped" || before.desired === "ended";
  const isUnheardOf = before.applied.state === "absent" || (isRunning && before.applied.state !== "running");
  return isUnwanted && isUnheardOf ? afterAction(before, "create") : before;
}

const resourceDeleted = "ResourceDeleted";

/**
 * What the driver had is gone though nobody here deleted it, and with it the sandbox's files: that outweighs how the run ended, if it did. The
 * next start makes it anew.
 */
export function vanished(before: Lifecycle): Lifecycle {
  const { failure: former, ...rest } = before;
  const sentence =
    "the sandbox's resource was deleted in the cluster, not through this gateway; its files went with it";
  const message =
    former === undefined || former.reason === resourceDeleted
      ? sentence
      : `${sentence}; before that: ${former.message}`;
  const gone = failed(rest, resourceDeleted, message);
  return { ...gone, applied: { ...gone.applied, state: "absent" } };
}

/** Whether it vanished and was neither found again nor started since. */
export function isLost({ failure, applied }: Lifecycle): boolean {
  return failure?.reason === resourceDeleted && applied.state === "absent";
}
