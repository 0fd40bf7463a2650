import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Duration } from "@bufbuild/protobuf/wkt";
import { Watchdog } from "../boundary/index.ts";
import { AsyncQueue, type BackoffOptions, backoffMs, failuresAfter, sleep } from "../common/async.ts";
import { hasCode, OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import type { Client, openshell } from "../wire/index.ts";
import type { End, GatewayLink } from "./state.ts";
import type { SessionToken } from "./token.ts";

type SupervisorMessage = MessageInitShape<typeof openshell.SupervisorMessageSchema>;

export interface GatewayOptions {
  readonly gateway: { readonly client: Pick<Client<typeof openshell.OpenShell>, "connectSupervisor">; close(): void };
  readonly token: SessionToken;
  readonly sandboxId: string;
  /** Pinned by the gateway within one session. */
  readonly instanceId: string;
  readonly log: Logger;
  /** Before the next session begins. */
  readonly backoff?: BackoffOptions;
  /** Milliseconds of a clock that nobody sets. @default performance.now */
  readonly now?: () => number;
  onLink(link: GatewayLink): void;
  onRelayOpen(open: openshell.RelayOpen): void;
  onRelayClose(close: openshell.RelayClose): void;
}

/** The cap is what a supervisor waits at most after a gateway is back. */
const backoff = { initialMs: 100, maxMs: 2000 };
const defaultHeartbeatMs = 10_000;
const missedHeartbeats = 3;
/** Wait for the gateway's answer to hello: short at first, since a packet to a Pod that is gone is never answered. */
const firstHelloMs = 2500;
const longestHelloMs = 15_000;
/** Rejections in a row after which a session is given up: a gateway that just started may not have seen this Pod yet. */
const rejectionsBeforeEnd = 10;

/** The session to the gateway: keeps one ConnectSupervisor stream up, each with a higher epoch than the one before. */
export class GatewaySession {
  readonly #options: GatewayOptions;
  #epoch = 0n;
  #out: AsyncQueue<SupervisorMessage> | undefined;
  #attemptEnd: AbortController | undefined;

  constructor(options: GatewayOptions) {
    this.#options = options;
  }

  /** Sends a message on the session; dropped when it is down, since whatever it answers is gone too. */
  send(message: SupervisorMessage): void {
    this.#out?.offer(message);
  }

  /** Ends the stream that is up or on its way; `run` begins another, with another token when this one was invalidated. */
  reconnect(why: string): void {
    this.#attemptEnd?.abort(why);
  }

  /** Connects, and connects again, until the gateway rejects for good or `signal` aborts (which throws). */
  async run(signal: AbortSignal): Promise<End> {
    const { log, onLink, token } = this.#options;
    const timing = { ...backoff, ...this.#options.backoff };
    let rejections = 0;
    for (let failures = 0; ; failures += 1) {
      try {
        await token.ensure(signal);
      } catch (error) {
        if (!(error instanceof OpenShellError) || error.details.reason !== "CredentialLost") throw error;
        return { reason: "CredentialLost", message: error.message };
      }
      const outcome = await this.#attempt(signal, Math.min(longestHelloMs, firstHelloMs * 1.5 ** failures));
      signal.throwIfAborted();
      // Back at once after a session that lived; a gateway that accepts and drops is asked less and less often.
      if (outcome.accepted) failures = failuresAfter(failures, outcome.livedMs);
      // A lost session's connection may still carry relays; one over which none could be had is of no use.
      else if (!outcome.rejected) this.#options.gateway.close();
      rejections = outcome.rejected ? rejections + 1 : 0;
      if (rejections >= rejectionsBeforeEnd) return { reason: "SessionRejected", message: outcome.why };
      log[failures % 20 === 0 ? "warn" : "debug"]({ failures }, `gateway session: ${outcome.why}`);
      onLink({ name: "waiting", why: outcome.why });
      await sleep(backoffMs(failures, timing), signal);
    }
  }

  async #attempt(outer: AbortSignal, helloMs: number): Promise<Outcome> {
    const { gateway, instanceId, now = () => performance.now(), onLink, sandboxId, token } = this.#options;
    this.#epoch += 1n;
    const epoch = this.#epoch;
    onLink({ name: "connecting", epoch });
    const out = new AsyncQueue<SupervisorMessage>();
    const attemptEnd = new AbortController();
    this.#attemptEnd = attemptEnd;
    const signal = AbortSignal.any([outer, attemptEnd.signal]);
    let watchdog = new Watchdog(helloMs, () => attemptEnd.abort("the gateway did not answer hello"));
    let heartbeat: NodeJS.Timeout | undefined;
    let acceptedAt: number | undefined;
    const ended = (why: string, rejected = false): Outcome => {
      const livedMs = acceptedAt === undefined ? 0 : now() - acceptedAt;
      return { accepted: acceptedAt !== undefined, livedMs, rejected, why };
    };
    try {
      out.offer({ payload: { case: "hello", value: { sandboxId, instanceId, connectionEpoch: epoch } } });
      for await (const { payload } of gateway.client.connectSupervisor(out, { headers: token.headers(), signal })) {
        watchdog.touch();
        switch (payload.case) {
          case "sessionAccepted": {
            // Each would start heartbeats.
            if (acceptedAt !== undefined) return ended("the gateway accepted the session twice");
            acceptedAt = now();
            token.sessionAccepted();
            this.#out = out;
            const intervalMs = millisecondsOf(payload.value.heartbeatInterval) || defaultHeartbeatMs;
            watchdog.clear();
            const silenceMs = intervalMs * missedHeartbeats;
            watchdog = new Watchdog(silenceMs, () => attemptEnd.abort(`nothing from the gateway for ${silenceMs} ms`));
            heartbeat = setInterval(() => out.offer({ payload: { case: "heartbeat", value: {} } }), intervalMs);
            onLink({ name: "connected", epoch, sessionId: payload.value.sessionId });
            break;
          }
          case "sessionRejected":
            return ended(`rejected: ${payload.value.reason}`, true);
          case "relayOpen":
            this.#options.onRelayOpen(payload.value);
            break;
          case "relayClose":
            this.#options.onRelayClose(payload.value);
            break;
        }
      }
      return ended("the gateway closed the session");
    } catch (error) {
      if (attemptEnd.signal.aborted) return ended(String(attemptEnd.signal.reason));
      if (hasCode(error, "unauthenticated")) token.invalidate();
      return ended(OpenShellError.from(error).message);
    } finally {
      this.#out = undefined;
      this.#attemptEnd = undefined;
      watchdog.clear();
      clearInterval(heartbeat);
      out.end();
    }
  }
}

interface Outcome {
  readonly accepted: boolean;
  /** Milliseconds since it was accepted. */
  readonly livedMs: number;
  readonly rejected: boolean;
  readonly why: string;
}

function millisecondsOf(duration: Duration | undefined): number {
  return duration === undefined ? 0 : Number(duration.seconds) * 1000 + Math.round(duration.nanos / 1e6);
}
