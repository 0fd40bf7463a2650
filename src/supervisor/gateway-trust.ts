import { once } from "node:events";
import { isIP } from "node:net";
import { connect } from "node:tls";
import { type Clock, deadline, realClock } from "../common/async.ts";
import type { Logger } from "../common/log.ts";
import type { SupervisorSettings } from "./settings.ts";
import type { End } from "./state.ts";

export interface GatewayTrustOptions {
  /** `ca` is what this supervisor was given when its session began. */
  readonly gateway: Required<Pick<SupervisorSettings["gateway"], "target" | "ca">>;
  /** Whether the session to the gateway is up. */
  isConnected(): boolean;
  readonly log: Logger;
  readonly clock?: Pick<Clock, "sleep">;
  readonly random?: () => number;
}

/** Mean pause between two looks. */
const intervalMs = 30_000;
/** Looks in a row, but for those at a gateway that is away: ten minutes, in which a wrong certificate can be put right. */
const looksBeforeEnd = 20;
const handshakeMs = 10_000;

/** What OpenSSL says of a certificate whose issuer is none of those that were given. Of an expired one nobody's successor knows better. */
const otherIssuer: ReadonlySet<string> = new Set([
  "CERT_SIGNATURE_FAILURE",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
]);

/**
 * Resolves when the gateway, which this supervisor was connected to before, has shown nothing but certificates of an unknown issuer for ten
 * minutes: whoever replaces this supervisor is given today's authority. One that was never connected has no reason to think that another
 * would be, and waits on. (docs/adr/0025-a-supervisor-that-no-longer-knows-its-gateway.md)
 * @throws the signal's reason when it aborts
 */
export async function gatewayDistrusted(options: GatewayTrustOptions, signal: AbortSignal): Promise<End> {
  const { gateway, isConnected, log, clock = realClock, random = Math.random } = options;
  let wasConnected = false;
  for (let looks = 0; looks < looksBeforeEnd; ) {
    await clock.sleep(intervalMs * (0.5 + random()), signal);
    if (isConnected()) {
      wasConnected = true;
      looks = 0;
    } else if (wasConnected) {
      const problem = await problemOf(gateway, signal);
      if (problem === undefined) looks = 0;
      else if (otherIssuer.has(problem)) {
        looks += 1;
        if (looks === 1)
          log.warn({ problem }, "the gateway's certificate is of an issuer that this supervisor does not know");
      }
    }
  }
  return {
    reason: "GatewayDistrusted",
    message: "the gateway's certificate has another issuer than when this session began",
  };
}

/** Code of what a handshake with the gateway fails with; undefined when it does not. */
async function problemOf(
  { target, ca }: GatewayTrustOptions["gateway"],
  signal: AbortSignal,
): Promise<string | undefined> {
  const colon = target.lastIndexOf(":");
  const host = target.slice(0, colon).replace(/^\[|\]$/g, "");
  const name = isIP(host) === 0 ? { servername: host } : {};
  const socket = connect({ host, port: Number(target.slice(colon + 1)), ca, ALPNProtocols: ["h2"], ...name });
  // One that comes while it is destroyed.
  socket.on("error", () => {});
  try {
    await once(socket, "secureConnect", { signal: deadline(handshakeMs, signal) });
    return undefined;
  } catch (error) {
    signal.throwIfAborted();
    return (error as NodeJS.ErrnoException).code ?? "unknown";
  } finally {
    socket.destroy();
  }
}
