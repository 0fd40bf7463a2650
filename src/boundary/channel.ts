import { AsyncQueue } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { type boundary, type CallOptions, codeOfStatus } from "../wire/index.ts";
import { pieceBytes, type ServiceId } from "./protocol.ts";

/** Two byte streams in opposite directions, each ending on its own; what execs, file transfers and connections run over. */
export interface ByteChannel {
  /** What the peer sends; ends when it half-closes, throws when the channel is lost. One consumer. */
  readonly readable: AsyncIterable<Uint8Array>;
  /** Resolves when there is room for more; rejects when the peer is gone. */
  write(chunk: Uint8Array): Promise<void>;
  /** Nothing more will be written; reading goes on. */
  end(): void;
  /** Drops both directions; what was written may not arrive. */
  abort(error: unknown): void;
}

/** A channel over `readable`, and what was written to it for somebody to carry away. */
export function createChannel(readable: AsyncIterable<Uint8Array>, onAbort: (error: unknown) => void = () => {}) {
  const outgoing = new AsyncQueue<Uint8Array>(4);
  const channel: ByteChannel = {
    readable,
    async write(chunk) {
      for (let start = 0; start < chunk.length; start += pieceBytes) {
        const part = chunk.length <= pieceBytes ? chunk : chunk.subarray(start, start + pieceBytes);
        if (!(await outgoing.push(part))) throw lost();
      }
    },
    end: () => outgoing.end(),
    abort(error) {
      outgoing.end(error);
      onAbort(error);
    },
  };
  return { channel, outgoing };
}

/** Two channels joined in memory: what one writes the other reads. */
export function channelPair(): readonly [ByteChannel, ByteChannel] {
  const back = new Relay();
  const near = createChannel(back, (error) => back.stop(error));
  const far = createChannel(near.outgoing, (error) => near.outgoing.end(error));
  back.source = far.outgoing;
  return [near.channel, far.channel];
}

/** Lets two queues refer to each other. */
class Relay implements AsyncIterable<Uint8Array> {
  source: AsyncQueue<Uint8Array> | undefined;

  stop(error: unknown): void {
    this.source?.end(error);
  }

  async *[Symbol.asyncIterator]() {
    if (this.source !== undefined) yield* this.source;
  }
}

function frame(payload: { case: "open"; value: { serviceId: string } } | { case: "data"; value: Uint8Array }) {
  return { payload };
}

/**
 * Opens a channel in the runtime, for the supervisor.
 * @param call `client.channel` of a Boundary client
 * @throws what the runtime refused it with
 */
export async function openChannel(
  call: (
    requests: AsyncIterable<ReturnType<typeof frame>>,
    options?: CallOptions,
  ) => AsyncIterable<boundary.ChannelFrame>,
  serviceId: ServiceId,
  signal?: AbortSignal,
): Promise<ByteChannel> {
  const stop = new AbortController();
  const { channel, outgoing } = createChannel(incoming(), (error) => stop.abort(error));
  const responses = call(requests(), {
    signal: signal === undefined ? stop.signal : AbortSignal.any([stop.signal, signal]),
  })[Symbol.asyncIterator]();

  async function* requests() {
    yield frame({ case: "open", value: { serviceId } });
    for await (const chunk of outgoing) yield frame({ case: "data", value: chunk });
  }
  async function* incoming() {
    try {
      for (;;) {
        const next = await responses.next();
        if (next.done === true) return;
        if (next.value.payload.case === "data") yield next.value.payload.value;
      }
    } finally {
      // The answer is over, so nothing that is still written can arrive.
      outgoing.end();
    }
  }

  const first = await responses.next();
  if (first.done !== true && first.value.payload.case === "opened") return channel;
  stop.abort(lost());
  if (first.done !== true && first.value.payload.case === "refused") {
    const { code, message } = first.value.payload.value;
    throw new OpenShellError(codeOfStatus(code), message);
  }
  throw lost();
}

/** Carries bytes between two channels until both directions have ended; a loss on one side drops the other. */
export async function join(first: ByteChannel, second: ByteChannel): Promise<void> {
  const carry = async (from: ByteChannel, to: ByteChannel) => {
    try {
      for await (const chunk of from.readable) await to.write(chunk);
      to.end();
    } catch (error) {
      from.abort(error);
      to.abort(error);
      throw error;
    }
  };
  const results = await Promise.allSettled([carry(first, second), carry(second, first)]);
  const failed = results.find((one) => one.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

function lost(): OpenShellError {
  return new OpenShellError("unavailable", "the channel to the sandbox was lost");
}
