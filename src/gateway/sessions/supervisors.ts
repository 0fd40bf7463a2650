import type { MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { Watchdog } from "../../boundary/index.ts";
import { AsyncQueue } from "../../common/async.ts";
import { hasCode, OpenShellError } from "../../common/errors.ts";
import type { Logger } from "../../common/log.ts";
import type { openshell } from "../../wire/index.ts";
import type { SandboxPrincipal } from "../identity/principal.ts";
import { openingOf, remaining } from "../opening.ts";
import type { Sandboxes } from "../sandbox/sandboxes.ts";
import type { Store } from "../store/store.ts";
import { runLaunch } from "./launch.ts";
import { admit, type Registration, release } from "./registry.ts";
import { RelayBroker } from "./relay-broker.ts";
import { newSession, noSession } from "./view.ts";

/** How often both sides say that they are there, in milliseconds. */
export const heartbeatMs = 10_000;
/** Silence after which a supervisor counts as gone. */
export const heartbeatsMissed = 3;

type GatewayMessageInit = MessageInitShape<typeof openshell.GatewayMessageSchema>;

interface Connection {
  readonly sandboxId: string;
  readonly sessionId: string;
  readonly outbox: AsyncQueue<GatewayMessageInit>;
  /** Ends the connection; the error is what the supervisor's call answers. */
  readonly stop: AbortController;
}

export interface SupervisorsOptions {
  readonly store: Store;
  readonly sandboxes: Sandboxes;
  readonly log: Logger;
  /** @default heartbeatMs */
  readonly heartbeatMs?: number;
}

/** The supervisors that are connected: serves ConnectSupervisor and owns the relays over it. */
export class Supervisors {
  readonly relays: RelayBroker;
  readonly #options: SupervisorsOptions;
  readonly #registrations = new Map<string, Registration>();
  readonly #connections = new Map<number, Connection>();
  #counter = 0;

  constructor(options: SupervisorsOptions) {
    this.#options = options;
    this.relays = new RelayBroker((sandboxId, message) => {
      const connection = this.#current(sandboxId);
      return connection?.outbox.offer(message) ?? false;
    });
  }

  /** Supervisors connected now. */
  get connected(): number {
    return this.#connections.size;
  }

  /** Serves one ConnectSupervisor stream. */
  async *connect(
    requests: AsyncIterable<openshell.SupervisorMessage>,
    principal: SandboxPrincipal,
    signal: AbortSignal,
  ): AsyncGenerator<GatewayMessageInit, void, undefined> {
    const { first, rest } = await openingOf(requests, "ConnectSupervisor");
    if (first.payload.case !== "hello") {
      throw new OpenShellError("invalid-argument", "the first message of ConnectSupervisor is hello");
    }
    const { sandboxId, instanceId, connectionEpoch } = first.payload.value;
    if (sandboxId !== principal.sandboxId) {
      throw new OpenShellError("permission-denied", "the token is another sandbox's");
    }
    // The token was good when the call came; the hello may have taken its time.
    if (!this.#isLive(principal)) throw sessionOver();
    this.#counter += 1;
    const number = this.#counter;
    const before = this.#registrations.get(sandboxId);
    const admission = admit(before, {
      sessionId: principal.sessionId,
      instanceId,
      epoch: connectionEpoch,
      connection: number,
    });
    if (!admission.accepted) {
      yield { payload: { case: "sessionRejected", value: { reason: admission.reason } } };
      return;
    }
    if (before !== undefined && before.sessionId !== principal.sessionId) {
      this.relays.abandon(sandboxId, new OpenShellError("unavailable", "the sandbox has a new supervisor"));
    }
    if (admission.replaces !== undefined) {
      this.#connections
        .get(admission.replaces)
        ?.stop.abort(new OpenShellError("aborted", "a newer connection of this supervisor replaced this one"));
    }
    this.#registrations.set(sandboxId, admission.registration);
    const connection: Connection = {
      ...principal,
      outbox: new AsyncQueue(64),
      stop: new AbortController(),
    };
    try {
      this.#open(number, connection);
      yield { payload: { case: "sessionAccepted", value: this.#accepted(principal.sessionId) } };
      yield* this.#run(connection, remaining(rest), signal);
    } finally {
      this.#close(number, connection);
    }
  }

  /** Ends connections whose session is over: the sandbox was stopped, started anew or deleted. */
  review(sandboxId: string): void {
    const connection = this.#current(sandboxId);
    if (connection === undefined) return;
    if (this.#isLive(connection)) return;
    connection.stop.abort(sessionOver());
  }

  /** The sandbox is gone: so is its session, and whatever went on over it. */
  forget(sandboxId: string): void {
    this.#current(sandboxId)?.stop.abort(sessionOver());
    this.#registrations.delete(sandboxId);
    this.relays.abandon(sandboxId, new OpenShellError("unavailable", "the sandbox was deleted"));
  }

  /** Ends every connection, for shutdown. */
  close(): void {
    for (const connection of this.#connections.values()) {
      connection.stop.abort(new OpenShellError("unavailable", "the gateway is shutting down: reconnect"));
    }
  }

  #open(number: number, connection: Connection): void {
    const { store, sandboxes } = this.#options;
    const { sandboxId, sessionId } = connection;
    this.#connections.set(number, connection);
    store.sessions.markConnected(sandboxId, sessionId);
    sandboxes.setSession(sandboxId, () => newSession);
  }

  #close(number: number, connection: Connection): void {
    const { sandboxId } = connection;
    this.#connections.delete(number);
    connection.stop.abort(new OpenShellError("cancelled", "the connection ended"));
    const registration = this.#registrations.get(sandboxId);
    if (registration?.connection !== number) return;
    this.#registrations.set(sandboxId, release(registration, number));
    this.relays.abandon(sandboxId, this.#whyClosed(sandboxId));
    this.#options.sandboxes.setSession(sandboxId, () => noSession);
  }

  /** A supervisor goes with its Pod when the sandbox is stopped, which whoever uses it is to know. */
  #whyClosed(sandboxId: string): OpenShellError {
    return this.#options.sandboxes.byId(sandboxId)?.lifecycle.desired === "stopped"
      ? new OpenShellError("failed-precondition", "the sandbox was stopped")
      : new OpenShellError("unavailable", "the sandbox's supervisor was lost");
  }

  async *#run(
    connection: Connection,
    messages: AsyncIterable<openshell.SupervisorMessage>,
    signal: AbortSignal,
  ): AsyncGenerator<GatewayMessageInit, void, undefined> {
    const { outbox, stop } = connection;
    const end = () => outbox.end(signal.aborted ? undefined : stop.signal.reason);
    const ended = AbortSignal.any([signal, stop.signal]);
    ended.addEventListener("abort", end, { once: true });
    const pulse = setInterval(() => {
      outbox.offer({ payload: { case: "heartbeat", value: {} } });
    }, this.#heartbeatMs);
    const silence = new Watchdog(heartbeatsMissed * this.#heartbeatMs, () => {
      stop.abort(new OpenShellError("unavailable", `no heartbeat for ${heartbeatsMissed} intervals`));
    });
    void this.#listen(connection, messages, silence);
    void this.#launch(connection, ended);
    try {
      yield* outbox;
    } finally {
      clearInterval(pulse);
      silence.clear();
      ended.removeEventListener("abort", end);
    }
  }

  async #listen(
    connection: Connection,
    messages: AsyncIterable<openshell.SupervisorMessage>,
    silence: Watchdog,
  ): Promise<void> {
    const { log } = this.#options;
    const { sandboxId } = connection;
    try {
      for await (const { payload } of messages) {
        silence.touch();
        if (payload.case === "relayOpenResult" && !payload.value.success) {
          this.relays.refused(sandboxId, payload.value.channelId, payload.value.error);
        } else if (payload.case === "relayClose") {
          this.relays.closed(sandboxId, payload.value.channelId, payload.value.reason);
        }
      }
      connection.outbox.end();
    } catch (error) {
      log.debug({ err: error, sandbox: sandboxId }, "a supervisor's stream broke off");
      connection.outbox.end();
    }
  }

  async #launch(connection: Connection, signal: AbortSignal): Promise<void> {
    const { sandboxes, log } = this.#options;
    try {
      await runLaunch({ sandboxId: connection.sandboxId, sandboxes, relays: this.relays, log, signal });
    } catch (error) {
      if (signal.aborted || hasCode(error, "cancelled")) return;
      log.error({ err: error, sandbox: connection.sandboxId }, "the launch relay failed for good");
      connection.stop.abort(OpenShellError.from(error));
    }
  }

  /** Whether the session is still the sandbox's. */
  #isLive(session: SandboxPrincipal | Connection): boolean {
    const { store } = this.#options;
    return store.isOpen && store.sessions.isLive(session);
  }

  #current(sandboxId: string): Connection | undefined {
    const number = this.#registrations.get(sandboxId)?.connection;
    return number === undefined ? undefined : this.#connections.get(number);
  }

  #accepted(sessionId: string) {
    return { sessionId, heartbeatInterval: durationFromMs(this.#heartbeatMs) };
  }

  get #heartbeatMs(): number {
    return this.#options.heartbeatMs ?? heartbeatMs;
  }
}

function sessionOver(): OpenShellError {
  return new OpenShellError("permission-denied", "the session is over: the sandbox was started anew or deleted");
}
