import { createSecureContext } from "node:tls";
import type { MessageInitShape } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { checkVersion, chunkBytes, heartbeat, localVersion, Outbox, Watchdog } from "../boundary/index.ts";
import { failuresAfter, sleep } from "../common/async.ts";
import { cut, longestText, longestWord } from "../common/cut.ts";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { boundary, type Client, createChannel, grpcClient, lastConnectionError } from "../wire/index.ts";
import { channelOptions } from "./_channel-options.ts";
import type { SupervisorSettings } from "./settings.ts";
import type { BoundaryLink, End, EndReason } from "./state.ts";
import type { LaunchPayload } from "./workload.ts";

type SupervisorFrame = MessageInitShape<typeof boundary.SupervisorFrameSchema>;
type ChannelFrameInit = MessageInitShape<typeof boundary.ChannelFrameSchema>;
export type Launch = boundary.Launch;

export interface BoundaryTiming {
  /** Between two heartbeats. */
  readonly intervalMs: number;
  /** Silence of the runtime after which the session counts as lost. */
  readonly lostAfterMs: number;
  /** Mean pause between two attempts. */
  readonly retryMs: number;
  /** Time after which a connection with open calls is asked whether it lives, and which its answer may take. @default the transport's */
  readonly keepaliveMs?: number;
}

export const boundaryTiming: BoundaryTiming = { ...heartbeat, retryMs: 50 };

export interface BoundaryOptions {
  readonly settings: SupervisorSettings["boundary"];
  readonly instanceId: string;
  /** Version of this program, for the message of a version skew. */
  readonly build: string;
  readonly log: Logger;
  readonly timing?: BoundaryTiming;
  readonly random?: () => number;
  /** Milliseconds of a clock that nobody sets. @default performance.now */
  readonly now?: () => number;
  onLink(link: BoundaryLink): void;
  onStatus(payload: LaunchPayload): void;
}

/** A TCP connection and TLS handshake that took longer is begun anew: the first SYN to a new Pod is often dropped and resent only after 1 s. */
const firstHelloMs = 600;
const longestHelloMs = 6000;
/** Most bytes of one message of the runtime's, which is hostile and of which several are held at once; its largest carry `chunkBytes`. */
const maxMessageBytes = 2 * chunkBytes;
/** After this many attempts in a row the workload is far from starting (an image pull), and the pause grows to `idleRetryMs`. */
const eagerAttempts = 200;
const idleRetryMs = 500;
/** Longest mean pause after a session that was accepted and did not last. Each writes a few lines into the log. */
const longestRetryMs = 5_000;

/**
 * The control connection to the runtime and, on the same TLS connection, its channels. Every attempt has a connection of its own, so that
 * neither a cached address nor gRPC's own back-off delays the next.
 */
export class BoundarySession {
  readonly #options: BoundaryOptions;
  readonly #timing: BoundaryTiming;
  readonly #credentials: grpc.ChannelCredentials;
  #launch: Launch | undefined;
  /** The main process whose exit the gateway has. */
  #exited: string | undefined;
  #connected:
    | {
        readonly client: Client<typeof boundary.Boundary>;
        readonly out: Outbox<SupervisorFrame>;
        readonly sinceMs: number;
      }
    | undefined;
  #runtimeInstance: string | undefined;

  /** @throws invalid-argument when certificate, key or CA are no PEM */
  constructor(options: BoundaryOptions) {
    this.#options = options;
    this.#timing = options.timing ?? boundaryTiming;
    const { ca, certificate, key } = options.settings;
    try {
      this.#credentials = grpc.ChannelCredentials.createFromSecureContext(
        createSecureContext({ ca, cert: certificate, key, minVersion: "TLSv1.3" }),
      );
    } catch (cause) {
      throw new OpenShellError("invalid-argument", "the supervisor's boundary certificate, key or CA is malformed", {
        cause,
      });
    }
  }

  /** Gives the runtime its main process, now or as soon as it is connected; repeating it is harmless. */
  launch(launch: Launch): void {
    this.#launch = launch;
    this.#connected?.out.offer({ payload: { case: "launch", value: launch } });
  }

  /**
   * Tells the runtime that the gateway has the exit of this main process, now or as soon as it is connected, and again each time it is:
   * whether it was heard before a connection broke is not known.
   */
  acknowledgeExit(instanceId: string): void {
    this.#exited = instanceId;
    this.#connected?.out.offer({ payload: { case: "exitAcknowledged", value: { instanceId } } });
  }

  /**
   * Opens one channel to the runtime.
   * @throws unavailable when the boundary is down
   */
  channel(frames: AsyncIterable<ChannelFrameInit>, signal: AbortSignal): AsyncIterable<boundary.ChannelFrame> {
    if (this.#connected === undefined) {
      throw new OpenShellError("unavailable", "the sandbox's runtime is not connected");
    }
    return this.#connected.client.channel(frames, { signal });
  }

  /** Connects, and connects again, until the runtime refuses for good or `signal` aborts (which throws its reason). */
  async run(signal: AbortSignal): Promise<End> {
    const { log, onLink, random = Math.random } = this.#options;
    let lastWhy = "";
    let drops = 0;
    for (let attempt = 0; ; attempt += 1) {
      onLink({ name: "connecting", attempt });
      const outcome = await this.#attempt(attempt, signal);
      signal.throwIfAborted();
      if ("end" in outcome) return outcome.end;
      if (outcome.wasConnected) {
        attempt = 0;
        drops = failuresAfter(drops, outcome.livedMs) + 1;
      }
      const { reason, message } = outcome;
      if (outcome.wasConnected || message !== lastWhy) {
        log[outcome.wasConnected ? "warn" : "info"]({ reason, attempt }, `boundary: ${message}`);
      }
      lastWhy = message;
      if (outcome.wasConnected || attempt === 0) onLink({ name: "lost", reason, message });
      const { retryMs } = this.#timing;
      // A runtime that is not there yet is awaited eagerly; one that answers and drops is asked less and less often.
      const again = Math.min(retryMs * 2 ** (drops - 1), longestRetryMs);
      const anew = attempt < eagerAttempts ? Math.min(retryMs, idleRetryMs) : idleRetryMs;
      await sleep((outcome.wasConnected ? again : anew) * (0.5 + random()), signal);
    }
  }

  async #attempt(attempt: number, outer: AbortSignal): Promise<Outcome> {
    const { settings } = this.#options;
    const { keepaliveMs } = this.#timing;
    const channel = createChannel(settings.target, this.#credentials, {
      "grpc.ssl_target_name_override": settings.serverName,
      "grpc.default_authority": settings.serverName,
      ...channelOptions,
      "grpc.max_receive_message_length": maxMessageBytes,
      ...(keepaliveMs === undefined
        ? {}
        : { "grpc.keepalive_time_ms": keepaliveMs, "grpc.keepalive_timeout_ms": keepaliveMs }),
    });
    const client = grpcClient(boundary.Boundary, channel);
    const attemptEnd = new AbortController();
    const out = new Outbox<SupervisorFrame>((why) => attemptEnd.abort(`the runtime ${why}`));
    const signal = AbortSignal.any([outer, attemptEnd.signal]);
    const helloMs = Math.min(longestHelloMs, firstHelloMs * 1.25 ** attempt);
    let watchdog = new Watchdog(helloMs, () => attemptEnd.abort("the runtime did not answer in time"));
    let heartbeats: NodeJS.Timeout | undefined;
    try {
      out.offer(this.#hello());
      for await (const { payload } of client.session(out, { signal })) {
        watchdog.touch();
        if (payload.case === "refused") {
          const end = endOfRefusal(payload.value);
          // Whoever took an accepted session over may be an attempt of our own that came late: the answer to the next hello decides.
          return this.#connected === undefined ? { end } : this.#lost("Replaced", end.message);
        }
        if (payload.case === "hello") {
          // Each would start heartbeats and bring the launch again.
          if (this.#connected !== undefined) return this.#lost("Closed", "the runtime said hello twice");
          const end = this.#accept(payload.value);
          if (end !== undefined) return { end };
          this.#connected = { client, out, sinceMs: this.#now() };
          watchdog.clear();
          const { lostAfterMs } = this.#timing;
          watchdog = new Watchdog(lostAfterMs, () =>
            attemptEnd.abort(`nothing from the runtime for ${lostAfterMs} ms`),
          );
          heartbeats = this.#heartbeats(out);
          this.#options.onLink({ name: "connected", runtimeInstance: this.#runtimeInstance ?? "" });
          if (this.#launch !== undefined) this.launch(this.#launch);
          if (this.#exited !== undefined) this.acknowledgeExit(this.#exited);
        } else if (payload.case === "fence" || payload.case === "mainProcess" || payload.case === "tree") {
          this.#options.onStatus(payload as LaunchPayload);
        }
      }
      return this.#lost("Closed", "the runtime closed the session");
    } catch (error) {
      if (attemptEnd.signal.aborted) return this.#lost("HeartbeatLost", String(attemptEnd.signal.reason));
      return this.#lost("Unreachable", whyUnreachable(OpenShellError.from(error).message));
    } finally {
      this.#connected = undefined;
      watchdog.clear();
      clearInterval(heartbeats);
      out.end();
      channel.close();
    }
  }

  #hello(): SupervisorFrame {
    const { build, instanceId, settings } = this.#options;
    const version = localVersion(build);
    return { payload: { case: "hello", value: { version, sessionGrant: settings.grant, instanceId } } };
  }

  #accept(hello: boundary.RuntimeHello): End | undefined {
    try {
      checkVersion(hello.version, "runtime");
    } catch (error) {
      return { reason: "VersionSkew", message: cut(OpenShellError.from(error).message, longestText) };
    }
    const instanceId = cut(hello.instanceId, longestWord);
    if (this.#runtimeInstance !== undefined && this.#runtimeInstance !== instanceId) {
      return { reason: "RuntimeEnded", message: "another runtime process answers: the workload was restarted" };
    }
    this.#runtimeInstance = instanceId;
    const { fence, mainProcess, tree } = hello;
    if (fence !== undefined) this.#options.onStatus({ case: "fence", value: fence });
    if (mainProcess !== undefined) this.#options.onStatus({ case: "mainProcess", value: mainProcess });
    if (tree !== undefined) this.#options.onStatus({ case: "tree", value: tree });
    return undefined;
  }

  #heartbeats(out: Outbox<SupervisorFrame>): NodeJS.Timeout {
    let sequence = 0n;
    return setInterval(() => {
      sequence += 1n;
      out.offer({ payload: { case: "heartbeat", value: { sequence } } });
    }, this.#timing.intervalMs);
  }

  #lost(reason: string, message: string): Outcome {
    const since = this.#connected?.sinceMs;
    const livedMs = since === undefined ? 0 : this.#now() - since;
    return { wasConnected: since !== undefined, livedMs, reason, message: cut(message, longestText) };
  }

  #now(): number {
    return this.#options.now?.() ?? performance.now();
  }
}

type Outcome =
  | { readonly end: End }
  | {
      readonly wasConnected: boolean;
      /** Milliseconds since it was connected. */
      readonly livedMs: number;
      readonly reason: string;
      readonly message: string;
    };

/** A connection that could not be made in a sentence of ours: users read it in the condition SupervisorConnected. */
function whyUnreachable(message: string): string {
  const last = lastConnectionError(message);
  return last === undefined ? message : `cannot connect to the runtime: ${last}`;
}

const { SessionRefused_Reason: Refused } = boundary;

function endOfRefusal(refused: boundary.SessionRefused): End {
  const reasons: Partial<Record<boundary.SessionRefused_Reason, EndReason>> = {
    [Refused.OLDER_SESSION]: "Superseded",
    [Refused.OTHER_INSTANCE]: "Superseded",
    [Refused.VERSION_SKEW]: "VersionSkew",
    [Refused.TERMINATED]: "RuntimeEnded",
  };
  return {
    reason: reasons[refused.reason] ?? "GrantRefused",
    message: cut(refused.message, longestText) || "the runtime refused the session",
  };
}
