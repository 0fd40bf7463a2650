/** What the last round found that keeps the fence from standing. */
interface Finding {
  /** The target that answered, as host:port. */
  readonly reachable?: string;
  /** The error code with which connecting failed on this side, which says nothing about the network. */
  readonly untold?: string;
}

/** Whether the network really is closed around the agent, from rounds of TCP connects that should all fail. */
export type FenceState =
  | ({ readonly kind: "probing"; readonly since: number; readonly closedSince?: number } & Finding)
  | { readonly kind: "fenced" }
  /** Still open after the bound; the cluster enforces no NetworkPolicy, or not this one. */
  | { readonly kind: "not-enforced"; readonly closedSince?: number; readonly reachable: string }
  /** Was fenced, then something could be reached, or for the reason `untold` nobody can tell any more. */
  | ({ readonly kind: "breached"; readonly closedSince?: number } & Finding)
  /** Not looked at, because the operator said so. */
  | { readonly kind: "unchecked" };

/** One connect to every target. Times in milliseconds of one monotonic clock. */
export interface ProbeRound {
  readonly startedAt: number;
  readonly endedAt: number;
  /** The target that answered, as host:port; absent when none did. */
  readonly reachable?: string;
  /** Why a connect that did not succeed says nothing about the network: it failed on this side. */
  readonly untold?: string;
}

/** Failures must last this long: measured, a new Pod reaches the API server for its first 0.5 to 1 s. */
export const closedForMs = 1_000;
/** Open for longer than this is no start-up effect any more. */
export const giveUpMs = 30_000;

/** @param closedSince since when others found it closed */
export function probing(now: number, closedSince?: number): FenceState {
  return { kind: "probing", since: now, ...(closedSince === undefined ? {} : { closedSince }) };
}

/** The state after a round. */
export function observe(state: FenceState, round: ProbeRound): FenceState {
  if (state.kind === "unchecked") return state;
  if (round.reachable !== undefined) return opened(state, round.endedAt, round.reachable);
  if (round.untold !== undefined) return blinded(state, round.untold);
  if (state.kind === "fenced") return state;
  const closedSince = state.closedSince ?? round.startedAt;
  if (round.endedAt - closedSince >= closedForMs) return { kind: "fenced" };
  if (state.kind === "not-enforced") return { ...state, closedSince };
  const { untold: _, ...told } = state;
  return { ...told, closedSince };
}

function opened(state: FenceState, now: number, reachable: string): FenceState {
  switch (state.kind) {
    case "fenced":
    case "breached":
      return { kind: "breached", reachable };
    case "probing":
      if (now - state.since < giveUpMs) return { kind: "probing", since: state.since, reachable };
      return { kind: "not-enforced", reachable };
    default:
      return { kind: "not-enforced", reachable };
  }
}

/** What cannot be looked at counts as open: the agent has our user and can, for example, take our file descriptors away. */
function blinded(state: Exclude<FenceState, { kind: "unchecked" }>, untold: string): FenceState {
  if (state.kind === "fenced") return { kind: "breached", untold };
  const { closedSince: _, ...open } = state;
  return open.kind === "not-enforced" ? open : { ...open, untold };
}

/** Why the last round told nothing; absent when it did. */
export function untoldOf(state: FenceState): string | undefined {
  return "untold" in state ? state.untold : undefined;
}

/** Whether agent processes may run. */
export function permits(state: FenceState): boolean {
  return state.kind === "fenced" || state.kind === "unchecked";
}
