import { OpenShellError } from "../common/errors.ts";
import { encodeFrame, FrameDecoder } from "../common/frames.ts";
import { boundary, codeOfStatus } from "../wire/index.ts";
import type { ByteChannel } from "./channel.ts";

/**
 * Connects to a port inside the sandbox over a channel of service `tcp`; what it returns carries the connection's raw bytes.
 * @param host a loopback address of the sandbox
 * @throws what the runtime refused the connection with
 */
export async function openTcp(channel: ByteChannel, host: string, port: number): Promise<ByteChannel> {
  await channel.write(encodeFrame(boundary.TcpOpenSchema, { host, port }));
  const { message, rest } = await readHeader(boundary.TcpOpenedSchema, channel.readable);
  if (message.failure !== undefined) {
    throw new OpenShellError(codeOfStatus(message.failure.code), message.failure.message);
  }
  return { ...channel, readable: rest };
}

/** One message from the head of a byte stream, and the raw bytes after it. */
export async function readHeader<D extends typeof boundary.TcpOpenSchema | typeof boundary.TcpOpenedSchema>(
  schema: D,
  readable: AsyncIterable<Uint8Array>,
) {
  const chunks = readable[Symbol.asyncIterator]();
  const decoder = new FrameDecoder(schema);
  for (;;) {
    const next = await chunks.next();
    if (next.done === true) throw new OpenShellError("data-loss", `the stream ended before ${schema.name}`);
    const [message] = decoder.push(next.value);
    if (message !== undefined) return { message, rest: after(decoder.takeRest(), chunks) };
  }
}

async function* after(
  first: Uint8Array,
  chunks: AsyncIterator<Uint8Array>,
): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    if (first.length > 0) yield first;
    for (;;) {
      const next = await chunks.next();
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    await chunks.return?.();
  }
}
