import { connect, isIP } from "node:net";
import { sleep } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { type FenceState, observe, permits, probing } from "./fence.ts";

export interface Target {
  readonly host: string;
  readonly port: number;
}

/** Until the fence stands rounds follow each other closely; afterwards they only have to notice that it fell. */
const intervals = { open: 100, closed: 5_000 } as const;
/** A dropped SYN is never answered; an open path answers within a round trip. */
const connectTimeoutMs = 500;

/**
 * Reads `OPENSHELL_FENCE_TARGETS`: `10.96.0.1:443,[fd00::1]:8080`.
 * @throws invalid-argument unless every target is an IP literal with a port: a name that does not resolve would look like a fence
 */
export function parseTargets(text: string): Target[] {
  return text
    .split(",")
    .map((one) => one.trim())
    .filter((one) => one !== "")
    .map((one) => {
      const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(one);
      const host = match?.[1] ?? match?.[2] ?? "";
      const port = Number(match?.[3]);
      if (isIP(host) === 0 || !(port >= 1 && port <= 65_535)) {
        throw new OpenShellError("invalid-argument", `fence target "${one}" is not IP:PORT or [IPv6]:PORT`);
      }
      return { host, port };
    });
}

/** Probes for as long as the signal allows and tells every new state. */
export async function probeFence(
  targets: readonly Target[],
  tell: (state: FenceState) => void,
  signal: AbortSignal,
  connects: (target: Target) => Promise<boolean> = tryConnect,
): Promise<void> {
  let state = probing(performance.now());
  tell(state);
  while (!signal.aborted) {
    const startedAt = performance.now();
    const reached = await Promise.all(targets.map(connects));
    const first = targets[reached.indexOf(true)];
    const next = observe(state, {
      startedAt,
      endedAt: performance.now(),
      ...(first === undefined ? {} : { reachable: printTarget(first) }),
    });
    if (next.kind !== state.kind) tell(next);
    state = next;
    await sleep(permits(state) ? intervals.closed : intervals.open, signal).catch(() => {});
  }
}

function printTarget({ host, port }: Target): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** True when a TCP connection is established. Refused, rejected, unroutable and unanswered all mean that it is not. */
function tryConnect({ host, port }: Target): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: connectTimeoutMs });
    const done = (connected: boolean) => () => {
      socket.destroy();
      resolve(connected);
    };
    socket.once("connect", done(true));
    socket.once("timeout", done(false));
    socket.once("error", done(false));
  });
}
