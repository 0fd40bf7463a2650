import type { MessageInitShape } from "@bufbuild/protobuf";
import { createChannel, services, tlsKeyHash } from "../boundary/index.ts";
import { within } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { type boundary, type CallContext, type Implementation, statusNumber } from "../wire/index.ts";
import { serveExec } from "./exec.ts";
import { serveFiles } from "./files.ts";
import { HangUps } from "./hang-ups.ts";
import type { Processes } from "./processes.ts";
import { Refused, type Runtime } from "./runtime.ts";
import { serveTcp } from "./tcp.ts";

const helloTimeoutMs = 10_000;
/** Execs, transfers and connections at one time; more than a supervisor's gateway would relay. */
const maxChannels = 256;

/** Transport limits of the boundary's server, beside the wire's own: a connection that says nothing is closed. */
export const serverOptions = {
  "grpc.max_concurrent_streams": 2 * maxChannels,
  "grpc.keepalive_time_ms": 10_000,
  "grpc.keepalive_timeout_ms": 10_000,
} as const;

/** openshell.boundary.v1.Boundary over a Runtime. */
export function boundaryService(
  runtime: Runtime,
  processes: Processes,
  home: string,
  log: Logger,
): Implementation<typeof boundary.Boundary> {
  let channels = 0;
  const hangUps = new HangUps(processes, () => runtime.isFrozen);

  return {
    async *session(requests, context) {
      const frames = requests[Symbol.asyncIterator]();
      const hello = await firstWithin(frames, helloTimeoutMs);
      if (hello.payload.case !== "hello") {
        throw new OpenShellError("invalid-argument", "the first frame of a session must be the supervisor's hello");
      }
      const admitted = await runtime.admit(hello.payload.value, peerOf(context), context.signal);
      if (admitted instanceof Refused) {
        log.warn({ refused: admitted.frame.payload }, "a supervisor was refused");
        yield admitted.frame;
        return;
      }
      const listen = async () => {
        for (let next = await frames.next(); next.done !== true; next = await frames.next()) {
          runtime.receive(admitted, next.value);
        }
      };
      // However the supervisor's side ends, the session has ended.
      listen().then(
        () => runtime.leave(admitted),
        () => runtime.leave(admitted),
      );
      try {
        yield* admitted.frames;
      } finally {
        runtime.leave(admitted);
      }
    },

    async *channel(requests, context) {
      // Counted from the first moment: calls that never say what they are for are bounded too.
      channels += 1;
      try {
        const frames = requests[Symbol.asyncIterator]();
        const opened = await open(frames, context);
        if (opened instanceof OpenShellError) {
          const { code, message } = opened;
          yield { payload: { case: "refused", value: { code: statusNumber(code), message } } };
        } else {
          yield* serve(opened, frames, context);
        }
      } finally {
        channels -= 1;
      }
    },
  };

  /** What a channel is for, or why it may not be opened. */
  async function open(
    frames: AsyncIterator<boundary.ChannelFrame>,
    context: CallContext,
  ): Promise<OpenChannel | OpenShellError> {
    try {
      if (channels > maxChannels) {
        throw new OpenShellError("resource-exhausted", `the sandbox already serves ${maxChannels} channels`);
      }
      const { payload } = await firstWithin(frames, helloTimeoutMs);
      if (payload.case !== "open") {
        throw new OpenShellError("invalid-argument", "the first frame of a channel must open it");
      }
      const { serviceId } = payload.value;
      const service = serviceOf(serviceId);
      const peer = peerOf(context);
      runtime.checkChannel(peer);
      return { serviceId, service, peer };
    } catch (error) {
      return OpenShellError.from(error);
    }
  }

  async function* serve(
    { serviceId, service, peer }: OpenChannel,
    frames: AsyncIterator<boundary.ChannelFrame>,
    context: CallContext,
  ): AsyncGenerator<MessageInitShape<typeof boundary.ChannelFrameSchema>, void, undefined> {
    const gone = new AbortController();
    const { channel, outgoing } = createChannel(dataOf(frames));
    const end = (error: OpenShellError) => {
      outgoing.end(error);
      gone.abort(error);
    };
    const lost = () => end(new OpenShellError("cancelled", "the channel was lost"));
    context.signal.addEventListener("abort", lost, { once: true });
    const release = runtime.holdChannel(peer, end);
    const permit = () => {
      gone.signal.throwIfAborted();
      runtime.checkChannel(peer);
    };
    try {
      yield { payload: { case: "opened", value: {} } };
      const settled = serviceId === services.files ? runtime.holdTransfer(end) : undefined;
      const failed = (error: unknown) => {
        log.error({ err: error, service: serviceId }, "a channel failed");
        outgoing.end(error);
      };
      service(channel, { signal: gone.signal, permit, runtime, processes, hangUps, home })
        .catch(failed)
        .finally(settled);
      for await (const value of outgoing) yield { payload: { case: "data", value } };
    } finally {
      release();
      context.signal.removeEventListener("abort", lost);
      gone.abort(new OpenShellError("cancelled", "the channel ended"));
    }
  }
}

interface OpenChannel {
  readonly serviceId: string;
  readonly service: Service;
  /** Hash of the TLS key it was opened with. */
  readonly peer: string;
}

interface ServiceContext {
  readonly signal: AbortSignal;
  /** Throws where nothing may begin now, however long ago the channel was opened. */
  readonly permit: () => void;
  readonly runtime: Runtime;
  readonly processes: Processes;
  readonly hangUps: HangUps;
  readonly home: string;
}

type Channel = ReturnType<typeof createChannel>["channel"];
type Service = (channel: Channel, context: ServiceContext) => Promise<void>;

function serviceOf(id: string): Service {
  switch (id) {
    case services.exec:
      return (channel, { signal, permit, runtime, processes, hangUps }) =>
        serveExec(channel, { processes, hangUps, environment: runtime.environment, permit, signal });
    case services.files:
      return (channel, { permit, signal, home }) => serveFiles(channel, { permit, signal, home });
    case services.tcp:
      return (channel, { permit, signal }) => serveTcp(channel, { permit, signal });
    default:
      throw new OpenShellError("unimplemented", `the sandbox has no service "${id}"`);
  }
}

function peerOf(context: CallContext): string {
  if (context.peerCertificate === undefined) throw new OpenShellError("unauthenticated", "no client certificate");
  return tlsKeyHash(context.peerCertificate);
}

async function firstWithin<T>(frames: AsyncIterator<T>, ms: number): Promise<T> {
  const late = () => new OpenShellError("deadline-exceeded", `no first frame within ${ms} ms`);
  const first = await within(frames.next(), ms, late);
  if (first.done === true) throw new OpenShellError("invalid-argument", "the call ended without a frame");
  return first.value;
}

async function* dataOf(frames: AsyncIterator<boundary.ChannelFrame>): AsyncGenerator<Uint8Array, void, undefined> {
  for (let next = await frames.next(); next.done !== true; next = await frames.next()) {
    if (next.value.payload.case === "data") yield next.value.payload.value;
  }
}
