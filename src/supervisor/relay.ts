import type { MessageInitShape } from "@bufbuild/protobuf";
import { services } from "../boundary/index.ts";
import { AsyncQueue, sleep } from "../common/async.ts";
import { cut, longestText } from "../common/cut.ts";
import { OpenShellError } from "../common/errors.ts";
import { encodeFrame, FrameDecoder } from "../common/frames.ts";
import { boundary, codeOfStatus, type openshell } from "../wire/index.ts";

type ChannelFrame = MessageInitShape<typeof boundary.ChannelFrameSchema>;
type RelayFrame = MessageInitShape<typeof openshell.RelayFrameSchema>;

/** One open relay, seen from the gateway's messages. */
export interface Relay {
  abort(reason: string): void;
}

export interface RelayContext {
  readonly channelId: string;
  /** Opens the relay's stream to the gateway, authenticated. */
  stream(frames: AsyncIterable<RelayFrame>, signal: AbortSignal): AsyncIterable<openshell.RelayFrame>;
  /** Tells the gateway that the relay is there. */
  opened(): void;
}

/** Chunks held in each direction: one on its way in and one on its way out; everything else waits at the sender. */
const heldChunks = 2;
/** How long the gateway may take to end its side of a raw connection after the runtime's has ended. */
const rawLingerMs = 600_000;

/**
 * Carries bytes between a relay and a channel of the runtime. A side that cannot take more stops the other; the end of one direction is
 * passed on and leaves the other open.
 */
export class PipedRelay implements Relay {
  readonly #end = new AbortController();
  readonly #toRuntime = new AsyncQueue<ChannelFrame>(heldChunks);
  readonly #lingerMs: number;

  /** @param lingerMs how long a raw connection waits for the gateway's end after the runtime's */
  constructor(lingerMs: number = rawLingerMs) {
    this.#lingerMs = lingerMs;
  }

  abort(reason: string): void {
    this.#end.abort(new OpenShellError("cancelled", reason));
  }

  /**
   * Runs until both directions have ended.
   * @throws what the runtime refused the channel with, or what broke either side
   */
  async run(
    serviceId: string,
    channel: (frames: AsyncIterable<ChannelFrame>, signal: AbortSignal) => AsyncIterable<boundary.ChannelFrame>,
    context: RelayContext,
    outer: AbortSignal,
  ): Promise<void> {
    const signal = AbortSignal.any([outer, this.#end.signal]);
    const toGateway = new AsyncQueue<RelayFrame>(heldChunks);
    try {
      this.#toRuntime.offer({ payload: { case: "open", value: { serviceId } } });
      const fromRuntime = channel(this.#toRuntime, signal)[Symbol.asyncIterator]();
      const first = await fromRuntime.next();
      requireOpened(first.done === true ? undefined : first.value);

      toGateway.offer({ payload: { case: "init", value: { channelId: context.channelId } } });
      const fromGateway = context.stream(toGateway, signal);
      context.opened();
      const raw = serviceId === services.tcp;
      const input = this.#carryInput(fromGateway, raw);
      // An input that broke first must not become an unhandled rejection while the output is still awaited.
      input.catch(() => this.abort("the gateway's side of the relay broke"));
      await carryOutput(fromRuntime, toGateway);
      this.#toRuntime.end();
      // A reader slower than we are still has megabytes to take. The gateway ends every exec and transfer itself, and keepalive finds one
      // that is gone; a raw connection's other side may never end.
      if (raw) await settledWithin(input, this.#lingerMs, signal);
      else await input;
    } finally {
      this.abort("the relay has ended");
      this.#toRuntime.end();
      toGateway.end();
    }
  }

  async #carryInput(frames: AsyncIterable<openshell.RelayFrame>, raw: boolean): Promise<void> {
    for await (const { payload } of frames) {
      if (payload.case !== "data") continue;
      // gRPC lets a server end only the whole call, so on a raw connection an empty frame is the end of the gateway's direction.
      if (raw && payload.value.length === 0) this.#toRuntime.end();
      else await this.#toRuntime.push({ payload });
    }
    this.#toRuntime.end();
  }
}

async function carryOutput(
  frames: AsyncIterator<boundary.ChannelFrame>,
  toGateway: AsyncQueue<RelayFrame>,
): Promise<void> {
  for (;;) {
    const next = await frames.next();
    if (next.done === true) break;
    const { payload } = next.value;
    if (payload.case === "data" && !(await toGateway.push({ payload }))) break;
  }
  toGateway.end();
}

function requireOpened(frame: boundary.ChannelFrame | undefined): void {
  if (frame?.payload.case === "opened") return;
  if (frame?.payload.case === "refused") {
    const { code, message } = frame.payload.value;
    throw new OpenShellError(
      codeOfStatus(code),
      cut(message, longestText) || "the sandbox's runtime refused the channel",
    );
  }
  throw new OpenShellError("unavailable", "the sandbox's runtime closed the channel before it was open");
}

/** The `launch` service, which ends here: takes the gateway's launch, and tells what becomes of it. */
export class LaunchRelay implements Relay {
  readonly #end = new AbortController();

  abort(reason: string): void {
    this.#end.abort(new OpenShellError("cancelled", reason));
  }

  async run(
    events: (signal: AbortSignal) => AsyncIterable<MessageInitShape<typeof boundary.LaunchEventSchema>>,
    onLaunch: (launch: boundary.Launch) => void,
    context: RelayContext,
    outer: AbortSignal,
  ): Promise<void> {
    const signal = AbortSignal.any([outer, this.#end.signal]);
    try {
      const decoder = new FrameDecoder(boundary.LaunchRequestSchema);
      for await (const { payload } of context.stream(launchFrames(context, events(signal)), signal)) {
        if (payload.case !== "data") continue;
        for (const request of decoder.push(payload.value)) {
          if (request.launch !== undefined) onLaunch(request.launch);
        }
      }
    } finally {
      this.abort("the relay has ended");
    }
  }
}

async function* launchFrames(
  context: RelayContext,
  events: AsyncIterable<MessageInitShape<typeof boundary.LaunchEventSchema>>,
): AsyncGenerator<RelayFrame, void, undefined> {
  yield { payload: { case: "init", value: { channelId: context.channelId } } };
  context.opened();
  for await (const event of events) {
    yield { payload: { case: "data", value: encodeFrame(boundary.LaunchEventSchema, event) } };
  }
}

async function settledWithin(work: Promise<void>, ms: number, signal: AbortSignal): Promise<void> {
  const done = new AbortController();
  try {
    await Promise.race([work, sleep(ms, AbortSignal.any([signal, done.signal]))]);
  } finally {
    done.abort();
  }
}
