import { OpenShellError } from "../common/errors.ts";
import type { boundary } from "../wire/index.ts";

/**
 * Version of openshell.boundary.v1 that this build speaks. Minor grows when a message learns something an older peer may ignore, major
 * when it may not.
 */
export const protocolVersion = { major: 1, minor: 0 } as const;

/** What a program says of itself in its hello. */
export function localVersion(build: string) {
  return { ...protocolVersion, build };
}

/**
 * Refuses a peer whose protocol is not ours: the same major, and a minor at most one away.
 * @throws failed-precondition with reason `VersionSkew`, naming both sides
 */
export function checkVersion(
  peer: Pick<boundary.ProtocolVersion, "major" | "minor" | "build"> | undefined,
  who: string,
): void {
  const own = `${protocolVersion.major}.${protocolVersion.minor}`;
  if (peer === undefined) {
    throw new OpenShellError("failed-precondition", `the ${who} names no protocol version; this side speaks ${own}`, {
      reason: "VersionSkew",
    });
  }
  if (peer.major === protocolVersion.major && Math.abs(peer.minor - protocolVersion.minor) <= 1) return;
  throw new OpenShellError(
    "failed-precondition",
    `the ${who} (build ${peer.build || "unknown"}) speaks openshell.boundary ${peer.major}.${peer.minor}, this side speaks ${own}: use images of one release`,
    { reason: "VersionSkew" },
  );
}

/** What a channel or relay can be opened for (`RelayOpen.service_id`, `ChannelOpen.service_id`). */
export const services = {
  /** Ends in the supervisor: the launch goes down, status events come back. */
  launch: "openshell.boundary.v1/launch",
  exec: "openshell.boundary.v1/exec",
  files: "openshell.boundary.v1/files",
  tcp: "openshell.boundary.v1/tcp",
} as const;

export type ServiceId = (typeof services)[keyof typeof services];

/** Heartbeats of a session: sent by both sides every `intervalMs`; `lostAfterMs` of silence ends it. */
export const heartbeat = { intervalMs: 2_000, missed: 3, lostAfterMs: 6_000 } as const;

/** Bytes of content in one data message; far below the frame limit, and small enough that channels share a connection fairly. */
export const chunkBytes = 64 * 1024;

/**
 * Bytes that a channel takes in one piece: a data message of `chunkBytes` with its head. A limit of `chunkBytes` itself would send each of them as
 * two, the second of a few bytes, and have the reader put them together again.
 */
export const pieceBytes = chunkBytes + 16;

/** Name in the runtime's certificate, which the supervisor asks for instead of the Service's name. */
export function runtimeServerName(generationId: string): string {
  return `runtime.${generationId}.openshell.internal`;
}
