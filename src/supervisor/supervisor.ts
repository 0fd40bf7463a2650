import { randomUUID } from "node:crypto";
import { services } from "../boundary/index.ts";
import { realClock } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import type { openshell } from "../wire/index.ts";
import { BoundarySession, type BoundaryTiming } from "./boundary-session.ts";
import { finalExitCode, reportExit } from "./exit-report.ts";
import { GatewayChannel } from "./gateway-channel.ts";
import { GatewaySession } from "./gateway-session.ts";
import { type GatewayTrustOptions, gatewayDistrusted } from "./gateway-trust.ts";
import { ReadinessPort } from "./readiness.ts";
import { LaunchRelay, PipedRelay, type Relay, type RelayContext } from "./relay.ts";
import type { SupervisorSettings } from "./settings.ts";
import { type End, ended, isReady, type SupervisorState, starting, withLink } from "./state.ts";
import { SessionToken } from "./token.ts";
import { type LaunchPayload, WorkloadStatus } from "./workload.ts";

export interface SupervisorOptions {
  readonly settings: SupervisorSettings;
  readonly build: string;
  readonly log: Logger;
  readonly boundaryTiming?: BoundaryTiming;
  /** How long a raw connection waits for the gateway's end after the runtime's, in milliseconds. @default 600_000 */
  readonly rawLingerMs?: number;
  /** Of the looks at the gateway's certificate. @default the real one */
  readonly trustClock?: NonNullable<GatewayTrustOptions["clock"]>;
  /** Told of each change of state, the first included. */
  readonly onState?: (state: SupervisorState) => void;
}

/** Services that end in the runtime: the supervisor carries their bytes and reads none. */
const piped: ReadonlySet<string> = new Set([services.exec, services.files, services.tcp]);

/**
 * Relays open at a time; one more is refused, so that a gateway cannot exhaust this process. A few more than a gateway opens: what it has
 * given up may not have ended here.
 */
const maxRelays = 80;

/** One supervisor process: the two sessions, and the relays between them. */
export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #instanceId = randomUUID();
  readonly #relays = new Map<string, Relay>();
  readonly #workload = new WorkloadStatus();
  readonly #readiness: ReadinessPort;
  readonly #gateway: GatewayChannel;
  readonly #token: SessionToken;
  readonly #session: GatewaySession;
  readonly #boundary: BoundarySession;
  readonly #stop = new AbortController();
  #state: SupervisorState = starting();
  #exitReport: Promise<void> | undefined;

  /** @throws invalid-argument when a certificate is malformed */
  constructor(options: SupervisorOptions) {
    const { settings, log } = options;
    this.#options = options;
    this.#readiness = new ReadinessPort(settings.readinessPort);
    this.#gateway = new GatewayChannel(settings.gateway);
    this.#token = new SessionToken({
      gateway: this.#gateway,
      tokenFile: settings.gateway.tokenFile,
      log,
      onExchange: (attempt) =>
        this.#setState(withLink(this.#state, { gateway: { name: "exchanging-token", attempt } })),
      onRefused: () => this.#session.reconnect("the gateway refused to renew the session token"),
    });
    this.#session = new GatewaySession({
      gateway: this.#gateway,
      token: this.#token,
      sandboxId: settings.sandboxId,
      instanceId: this.#instanceId,
      log,
      onLink: (gateway) => this.#setState(withLink(this.#state, { gateway })),
      onRelayOpen: (open) => this.#openRelay(open),
      onRelayClose: ({ channelId, reason }) =>
        this.#relays.get(channelId)?.abort(`the gateway closed the relay: ${reason}`),
    });
    this.#boundary = new BoundarySession({
      settings: settings.boundary,
      instanceId: this.#instanceId,
      build: options.build,
      log,
      ...(options.boundaryTiming === undefined ? {} : { timing: options.boundaryTiming }),
      onLink: (boundary) => this.#setState(withLink(this.#state, { boundary })),
      onStatus: (payload) => this.#onStatus(payload),
    });
  }

  get state(): SupervisorState {
    return this.#state;
  }

  /** The readiness port in use, while ready. */
  get readinessPort(): number | undefined {
    return this.#readiness.port;
  }

  /** Runs until `signal` aborts or a terminal reason; closes everything it opened. */
  async run(signal: AbortSignal): Promise<End> {
    const inner = AbortSignal.any([signal, this.#stop.signal]);
    this.#workload.set({ case: "boundary", value: { connected: false, reason: "Connecting", message: "" } });
    const background = this.#token.keepFresh(inner).catch((error: unknown) => this.#unlessStopped(inner, error));
    const sessions = [this.#session.run(inner), this.#boundary.run(inner), ...this.#trust(inner)];
    let end: End;
    try {
      end = await Promise.race(sessions);
    } catch (error) {
      const known = OpenShellError.from(error);
      end = signal.aborted
        ? { reason: "Stopped", message: "asked to stop" }
        : { reason: "Unexpected", message: known.message };
      if (!signal.aborted) this.#options.log.error({ err: error }, "the supervisor failed");
    }
    this.#setState(ended(end.reason, end.message));
    this.#stop.abort(new OpenShellError("cancelled", "the supervisor ends"));
    for (const relay of this.#relays.values()) relay.abort("the supervisor ends");
    await Promise.allSettled([...sessions, background, this.#exitReport]);
    this.#gateway.close();
    await this.#readiness.set(false);
    return end;
  }

  /** None where the system's roots are trusted: a successor would have the same. */
  #trust(signal: AbortSignal): readonly Promise<End>[] {
    const { log, settings, trustClock: clock = realClock } = this.#options;
    const { ca, target, tls } = settings.gateway;
    if (!tls || ca === undefined) return [];
    const isConnected = () => this.#state.name === "running" && this.#state.gateway.name === "connected";
    return [gatewayDistrusted({ gateway: { target, ca }, isConnected, log, clock }, signal)];
  }

  #setState(next: SupervisorState): void {
    const before = this.#state;
    if (before.name === "ended") return;
    this.#state = next;
    this.#options.onState?.(next);
    if (isReady(before) !== isReady(next)) {
      this.#options.log.info({ state: next }, isReady(next) ? "both sessions are up" : "not ready");
      this.#readiness.set(isReady(next)).catch((error: unknown) => this.#options.log.error({ err: error }));
    }
    if (next.name !== "running" || (before.name === "running" && before.boundary === next.boundary)) return;
    const { boundary } = next;
    if (boundary.name === "connected") {
      this.#workload.set({ case: "boundary", value: { connected: true, reason: "Connected", message: "" } });
    } else if (boundary.name === "lost") {
      const { reason, message } = boundary;
      this.#workload.set({ case: "boundary", value: { connected: false, reason, message } });
    }
  }

  #onStatus(payload: LaunchPayload): void {
    this.#workload.set(payload);
    if (payload.case !== "mainProcess" || this.#exitReport !== undefined) return;
    const { state, exitCode, instanceId = "" } = payload.value;
    if (state === undefined) return;
    const code = finalExitCode(exitCode === undefined ? { state } : { state, exitCode });
    if (code === undefined) return;
    const { log, settings } = this.#options;
    const headers = () => this.#token.headers();
    const report = { gateway: this.#gateway, sandboxId: settings.sandboxId, headers, log };
    this.#exitReport = reportExit(instanceId, code, report, this.#stop.signal)
      .then(() => this.#boundary.acknowledgeExit(instanceId))
      .catch((error: unknown) => this.#unlessStopped(this.#stop.signal, error));
  }

  #openRelay(open: openshell.RelayOpen): void {
    const { channelId, serviceId } = open;
    const refuse = (error: string) =>
      this.#session.send({ payload: { case: "relayOpenResult", value: { channelId, success: false, error } } });
    let isOpen = false;
    const context: RelayContext = {
      channelId,
      stream: (frames, signal) => this.#gateway.client.relayStream(frames, { headers: this.#token.headers(), signal }),
      opened: () => {
        isOpen = true;
        this.#session.send({ payload: { case: "relayOpenResult", value: { channelId, success: true, error: "" } } });
      },
    };
    const refusal = this.#reasonToRefuse(open);
    const started = refusal === undefined ? this.#startRelay(serviceId, context) : undefined;
    if (started === undefined) {
      refuse(refusal ?? `this supervisor does not serve "${serviceId}"`);
      return;
    }
    this.#relays.set(channelId, started.relay);
    started.done
      .catch((error: unknown) => {
        const { code, message } = OpenShellError.from(error);
        this.#options.log.debug({ channelId, serviceId, code }, `relay: ${message}`);
        if (!isOpen) refuse(message);
        else this.#session.send({ payload: { case: "relayClose", value: { channelId, reason: message } } });
      })
      .finally(() => this.#relays.delete(channelId));
  }

  #reasonToRefuse({ channelId }: openshell.RelayOpen): string | undefined {
    if (this.#relays.has(channelId)) return `relay ${channelId} is open already`;
    if (this.#relays.size >= maxRelays) return `${maxRelays} relays are open already`;
    return undefined;
  }

  #startRelay(serviceId: string, context: RelayContext): { relay: Relay; done: Promise<void> } | undefined {
    const signal = this.#stop.signal;
    if (serviceId === services.launch) {
      const relay = new LaunchRelay();
      const events = (until: AbortSignal) => this.#workload.events(until);
      return { relay, done: relay.run(events, (launch) => this.#boundary.launch(launch), context, signal) };
    }
    if (!piped.has(serviceId)) return undefined;
    const relay = new PipedRelay(this.#options.rawLingerMs);
    const channel: Parameters<PipedRelay["run"]>[1] = (frames, until) => this.#boundary.channel(frames, until);
    return { relay, done: relay.run(serviceId, channel, context, signal) };
  }

  #unlessStopped(signal: AbortSignal, error: unknown): void {
    if (!signal.aborted) this.#options.log.error({ err: error }, "background work failed");
  }
}
