import type { MessageInitShape } from "@bufbuild/protobuf";
import { type ByteChannel, createChannel, type ServiceId, services } from "../../boundary/index.ts";
import { AsyncQueue } from "../../common/async.ts";
import { OpenShellError } from "../../common/errors.ts";
import type { openshell } from "../../wire/index.ts";
import { openingOf } from "../opening.ts";

/**
 * Relays a sandbox may have at once. One that stands still in both directions, because nobody takes what it carries, has the supervisor
 * hold some 2.5 MiB, and all of them have to fit into its memory limit (e2e/paused-relays.test.ts).
 */
export const relaysPerSandbox = 64;
/** How long a supervisor has to answer RelayOpen, in milliseconds. */
export const openTimeoutMs = 10_000;
/** Most bytes a supervisor may put into one frame. */
export const maxDataBytes = 1024 * 1024;
/** Reason of a supervisor's RelayClose that only says that nothing more will be sent; any other ends the relay. */
export const endOfInput = "eof";
/** On a raw connection: no more data from the gateway's side, in order with the data before it. */
const endOfData = new Uint8Array(0);
/** Chunks held for a reader that is slower than the network. */
const held = 4;

type RelayFrameInit = MessageInitShape<typeof openshell.RelayFrameSchema>;

/** Says something to a sandbox's supervisor over its ConnectSupervisor stream; false when there is none. */
export type Tell = (sandboxId: string, message: MessageInitShape<typeof openshell.GatewayMessageSchema>) => boolean;

interface Relay {
  readonly id: string;
  readonly sandboxId: string;
  readonly serviceId: ServiceId;
  readonly channel: ByteChannel;
  readonly incoming: AsyncQueue<Uint8Array>;
  readonly outgoing: AsyncQueue<Uint8Array>;
  /** The supervisor's RelayStream has come. */
  claimed: boolean;
  /** Settled when the supervisor attached its RelayStream or said that it cannot. */
  readonly attached: PromiseWithResolvers<void>;
}

/** Joins what the gateway opens towards a supervisor (RelayOpen) with the stream the supervisor brings for it (RelayStream). */
export class RelayBroker {
  readonly #tell: Tell;
  readonly #relays = new Map<string, Relay>();

  constructor(tell: Tell) {
    this.#tell = tell;
  }

  /**
   * Opens a byte channel to a service behind the sandbox's supervisor.
   * @throws unavailable when there is no supervisor, it does not answer in time or refuses; resource-exhausted at `relaysPerSandbox`
   */
  async open(sandboxId: string, serviceId: ServiceId, signal: AbortSignal): Promise<ByteChannel> {
    signal.throwIfAborted();
    if (this.#of(sandboxId).length >= relaysPerSandbox) {
      throw new OpenShellError("resource-exhausted", `the sandbox has ${relaysPerSandbox} open connections already`);
    }
    const relay = this.#create(sandboxId, serviceId);
    const timer = setTimeout(() => {
      relay.attached.reject(unavailable("the sandbox's supervisor did not answer in time"));
    }, openTimeoutMs);
    const abort = () => relay.attached.reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    try {
      const payload = { case: "relayOpen" as const, value: { channelId: relay.id, serviceId } };
      if (!this.#tell(sandboxId, { payload })) throw unavailable("the sandbox has no supervisor connected");
      await relay.attached.promise;
      return relay.channel;
    } catch (error) {
      this.#drop(relay, error, "cancelled");
      throw error;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
    }
  }

  /** The supervisor's end of a relay: the frames that go to it, until both directions are over. */
  async *serve(
    requests: AsyncIterable<openshell.RelayFrame>,
    sandboxId: string,
    signal: AbortSignal,
  ): AsyncGenerator<RelayFrameInit, void, undefined> {
    const { first, rest: frames } = await openingOf(requests, "RelayStream");
    const relay = this.#claim(first, sandboxId);
    const gone = () => this.#drop(relay, unavailable("the connection to the sandbox was lost"));
    signal.addEventListener("abort", gone, { once: true });
    const reading = carryIn(frames, relay);
    try {
      for await (const value of relay.outgoing) yield { payload: { case: "data", value } };
      // gRPC cannot end one direction of a response. Messages say their own end; a raw connection has this frame. A word on the other
      // stream (RelayClose) would overtake data that waits for a slow reader, and cut it off.
      if (relay.serviceId === services.tcp) yield { payload: { case: "data", value: endOfData } };
      await reading;
    } finally {
      signal.removeEventListener("abort", gone);
      this.#relays.delete(relay.id);
      relay.incoming.end();
      relay.outgoing.end();
    }
  }

  /** The supervisor could not open a relay. */
  refused(sandboxId: string, channelId: string, why: string): void {
    const relay = this.#relays.get(channelId);
    if (relay?.sandboxId !== sandboxId) return;
    relay.attached.reject(unavailable(why || "the sandbox's supervisor refused the connection"));
  }

  /** The supervisor ends a relay. */
  closed(sandboxId: string, channelId: string, reason: string): void {
    const relay = this.#relays.get(channelId);
    if (relay?.sandboxId !== sandboxId) return;
    if (reason === endOfInput) relay.incoming.end();
    else this.#drop(relay, unavailable(`the connection to the sandbox was closed: ${reason || "no reason given"}`));
  }

  /** The sandbox's supervisor is gone, and every relay with it. */
  abandon(sandboxId: string, error: OpenShellError): void {
    for (const relay of this.#of(sandboxId)) this.#drop(relay, error);
  }

  get size(): number {
    return this.#relays.size;
  }

  #create(sandboxId: string, serviceId: ServiceId): Relay {
    const incoming = new AsyncQueue<Uint8Array>(held);
    const { channel, outgoing } = createChannel(incoming, (error) => this.#drop(relay, error, "cancelled"));
    const relay: Relay = {
      id: crypto.randomUUID(),
      sandboxId,
      serviceId,
      channel,
      incoming,
      outgoing,
      claimed: false,
      attached: Promise.withResolvers(),
    };
    // Whoever waits for it hears of it; a refusal that comes when nobody waits any more is no unhandled rejection.
    relay.attached.promise.catch(() => {});
    this.#relays.set(relay.id, relay);
    return relay;
  }

  #claim(frame: openshell.RelayFrame, sandboxId: string): Relay {
    if (frame.payload.case !== "init") {
      throw new OpenShellError("invalid-argument", "the first frame of a RelayStream names its channel (init)");
    }
    const relay = this.#relays.get(frame.payload.value.channelId);
    if (relay === undefined || relay.sandboxId !== sandboxId || relay.claimed) {
      throw new OpenShellError("not-found", "no relay of that channel_id is waiting for this supervisor");
    }
    relay.claimed = true;
    relay.attached.resolve();
    return relay;
  }

  #drop(relay: Relay, error: unknown, tell?: string): void {
    if (!this.#relays.delete(relay.id)) return;
    relay.attached.reject(error);
    relay.incoming.end(error);
    relay.outgoing.end(error);
    if (tell !== undefined) {
      this.#tell(relay.sandboxId, { payload: { case: "relayClose", value: { channelId: relay.id, reason: tell } } });
    }
  }

  #of(sandboxId: string): Relay[] {
    return [...this.#relays.values()].filter((relay) => relay.sandboxId === sandboxId);
  }
}

/** Carries the supervisor's data to whoever opened the relay, no faster than it is read. */
async function carryIn(frames: AsyncIterator<openshell.RelayFrame>, { incoming }: Relay): Promise<void> {
  try {
    for (;;) {
      const next = await frames.next();
      if (next.done === true) break;
      const { payload } = next.value;
      if (payload.case !== "data") continue;
      if (payload.value.length > maxDataBytes) {
        throw new OpenShellError("invalid-argument", `a RelayFrame holds more than ${maxDataBytes} bytes of data`);
      }
      if (!(await incoming.push(payload.value))) return;
    }
    incoming.end();
  } catch (cause) {
    incoming.end(new OpenShellError("unavailable", "the connection to the sandbox was lost", { cause }));
  }
}

function unavailable(message: string): OpenShellError {
  return new OpenShellError("unavailable", message);
}
