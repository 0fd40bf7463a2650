/** The session to the gateway. */
export type GatewayLink =
  | { readonly name: "exchanging-token"; readonly attempt: number }
  | { readonly name: "connecting"; readonly epoch: bigint }
  | { readonly name: "connected"; readonly epoch: bigint; readonly sessionId: string }
  | { readonly name: "waiting"; readonly why: string };

/** The boundary to the runtime. */
export type BoundaryLink =
  | { readonly name: "connecting"; readonly attempt: number }
  | { readonly name: "connected"; readonly runtimeInstance: string }
  | { readonly name: "lost"; readonly reason: string; readonly message: string };

export type SupervisorState =
  | { readonly name: "starting" }
  | { readonly name: "running"; readonly gateway: GatewayLink; readonly boundary: BoundaryLink }
  | { readonly name: "ended"; readonly end: End };

/** Why a supervisor ended for good. Its Pod is never restarted: the driver decides on a replacement. */
export type EndReason =
  /** SIGTERM or SIGINT. */
  | "Stopped"
  /** Environment or Secret files are missing or malformed. */
  | "BadSettings"
  /** The runtime did not accept the session grant. */
  | "GrantRefused"
  /** A supervisor with a newer session, or another process of this session, has taken over. */
  | "Superseded"
  /** Supervisor and runtime do not speak the same protocol major version. */
  | "VersionSkew"
  /** The runtime has ended its process tree for good, or was replaced by another runtime process. */
  | "RuntimeEnded"
  /** The gateway refused this session for good. */
  | "SessionRejected"
  /** The session token ran out and the gateway does not issue another to this Pod. */
  | "CredentialLost"
  /** The gateway's certificate has an issuer that was not known when this session began. */
  | "GatewayDistrusted"
  /** A defect; the log line has its cause. */
  | "Unexpected";

export interface End {
  readonly reason: EndReason;
  readonly message: string;
}

/** Process exit code of each end; part of the interface with whoever reads the Pod's status. */
export const exitCodes: Readonly<Record<EndReason, number>> = {
  Stopped: 0,
  Unexpected: 1,
  BadSettings: 2,
  GrantRefused: 10,
  Superseded: 11,
  VersionSkew: 12,
  RuntimeEnded: 13,
  SessionRejected: 14,
  CredentialLost: 15,
  GatewayDistrusted: 16,
};

export const starting = (): SupervisorState => ({ name: "starting" });

export const running = (gateway: GatewayLink, boundary: BoundaryLink): SupervisorState => ({
  name: "running",
  gateway,
  boundary,
});

export const ended = (reason: EndReason, message: string): SupervisorState => ({
  name: "ended",
  end: { reason, message },
});

/** The next state when one link changed; an ended supervisor stays ended. */
export function withLink(
  state: SupervisorState,
  change: { readonly gateway?: GatewayLink; readonly boundary?: BoundaryLink },
): SupervisorState {
  if (state.name === "ended") return state;
  const gateway: GatewayLink = state.name === "running" ? state.gateway : { name: "exchanging-token", attempt: 0 };
  const boundary: BoundaryLink = state.name === "running" ? state.boundary : { name: "connecting", attempt: 0 };
  return running(change.gateway ?? gateway, change.boundary ?? boundary);
}

/** True exactly while both sessions are up. */
export function isReady(state: SupervisorState): boolean {
  return state.name === "running" && state.gateway.name === "connected" && state.boundary.name === "connected";
}
