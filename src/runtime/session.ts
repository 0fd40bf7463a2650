import type { SessionGrant } from "../boundary/index.ts";

/** What the runtime knows of the supervisor it obeys. */
export type SessionState =
  /** No supervisor has come yet. */
  | { readonly kind: "waiting" }
  /** A supervisor has the session; `connection` is the one connection that speaks for it. */
  | (Holder & { readonly kind: "active"; readonly connection: number })
  /** Its connection is gone; it, or a newer session, may come back. */
  | (Holder & { readonly kind: "lost" })
  /** The end was asked for; nothing is accepted any more. */
  | { readonly kind: "terminated" };

interface Holder {
  readonly session: number;
  /** The supervisor process that has the session, pinned by its first hello. */
  readonly instanceId: string;
  /** Hash of its TLS key; channels are accepted from this key only. */
  readonly tls: string;
}

/** A supervisor's hello whose grant has been verified. */
export interface Claim {
  readonly grant: Pick<SessionGrant, "session" | "tls">;
  readonly instanceId: string;
  readonly connection: number;
}

export type Refusal = "OLDER_SESSION" | "OTHER_INSTANCE" | "TERMINATED";

export type ClaimResult =
  | { readonly accepted: true; readonly state: SessionState; readonly replaced: number | undefined }
  | { readonly accepted: false; readonly refusal: Refusal; readonly message: string };

export function waiting(): SessionState {
  return { kind: "waiting" };
}

/**
 * Decides about a hello: a strictly newer session wins, within one session only the first instance does, and of one instance the newest
 * connection does (its older one is dead before we notice).
 */
export function claim(state: SessionState, { grant, instanceId, connection }: Claim): ClaimResult {
  if (state.kind === "terminated") {
    return refuse("TERMINATED", "this sandbox is ending and accepts no supervisor any more");
  }
  if (state.kind !== "waiting") {
    if (grant.session < state.session) {
      return refuse("OLDER_SESSION", `session ${grant.session} was replaced by session ${state.session}`);
    }
    if (grant.session === state.session && instanceId !== state.instanceId) {
      return refuse("OTHER_INSTANCE", `session ${grant.session} belongs to another supervisor process`);
    }
  }
  return {
    accepted: true,
    state: { kind: "active", session: grant.session, instanceId, tls: grant.tls, connection },
    replaced: state.kind === "active" ? state.connection : undefined,
  };
}

/** A connection ended; only the one that speaks for the session matters. */
export function disconnect(state: SessionState, connection: number): SessionState {
  if (state.kind !== "active" || state.connection !== connection) return state;
  const { session, instanceId, tls } = state;
  return { kind: "lost", session, instanceId, tls };
}

/** Final. */
export function terminate(): SessionState {
  return { kind: "terminated" };
}

/** Whether a channel over a connection with this TLS key is the session's. */
export function mayOpenChannel(state: SessionState, tls: string): boolean {
  return state.kind === "active" && state.tls === tls;
}

function refuse(refusal: Refusal, message: string): ClaimResult {
  return { accepted: false, refusal, message };
}
