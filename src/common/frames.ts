import {
  create,
  type DescMessage,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { OpenShellError } from "./errors.ts";

/** Longest message a peer may send on a relay; data messages are cut well below it. */
export const maxFrameBytes = 1024 * 1024;

/** One message as varint length + bytes, the delimited form that protobuf libraries share. */
export function encodeFrame<D extends DescMessage>(schema: D, message: MessageInitShape<D>): Uint8Array {
  const body = toBinary(schema, create(schema, message));
  const head: number[] = [];
  let rest = body.length;
  while (rest > 0x7f) {
    head.push((rest & 0x7f) | 0x80);
    rest >>>= 7;
  }
  head.push(rest);
  const frame = new Uint8Array(head.length + body.length);
  frame.set(head);
  frame.set(body, head.length);
  return frame;
}

/**
 * Reads delimited messages from chunks cut anywhere. Holds at most one message of `maxFrameBytes`, and takes work in proportion to the bytes,
 * however small the chunks are: who sends them may mean harm.
 */
export class FrameDecoder<D extends DescMessage> {
  readonly #schema: D;
  #pending: Uint8Array = new Uint8Array(0);
  /** Free bytes behind #pending in its buffer; none where the buffer is somebody else's. */
  #room = 0;

  constructor(schema: D) {
    this.#schema = schema;
  }

  /**
   * Messages completed by `chunk`, in order.
   * @throws invalid-argument when a length is above `maxFrameBytes` or the bytes are no such message
   */
  *push(chunk: Uint8Array): Generator<MessageShape<D>, void, undefined> {
    this.#append(chunk);
    for (;;) {
      const header = readVarint(this.#pending);
      if (header === undefined) return;
      if (header.value > maxFrameBytes) {
        throw new OpenShellError(
          "invalid-argument",
          `a frame of ${header.value} bytes is above the limit of ${maxFrameBytes}`,
        );
      }
      const end = header.size + header.value;
      if (this.#pending.length < end) return;
      const body = this.#pending.subarray(header.size, end);
      this.#pending = this.#pending.subarray(end);
      yield parse(this.#schema, body);
    }
  }

  /** True when no message is half received. */
  get isEmpty(): boolean {
    return this.#pending.length === 0;
  }

  /** Bytes received beyond the last whole message; for protocols that turn raw after a header message. */
  takeRest(): Uint8Array {
    const rest = this.#pending;
    this.#pending = new Uint8Array(0);
    return rest;
  }

  #append(chunk: Uint8Array): void {
    const held = this.#pending;
    const total = held.length + chunk.length;
    if (held.length === 0) {
      this.#pending = chunk;
      this.#room = 0;
      return;
    }
    if (chunk.length <= this.#room) {
      // Messages before it still lie in this buffer: only what is free is written to.
      this.#pending = new Uint8Array(held.buffer, held.byteOffset, total);
      this.#room -= chunk.length;
    } else {
      this.#pending = new Uint8Array(2 * total).subarray(0, total);
      this.#room = total;
      this.#pending.set(held);
    }
    this.#pending.set(chunk, held.length);
  }
}

/** Messages of a byte stream; a stream that ends inside a message is data loss. */
export async function* decodeFrames<D extends DescMessage>(
  schema: D,
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<MessageShape<D>, void, undefined> {
  const decoder = new FrameDecoder(schema);
  for await (const chunk of chunks) yield* decoder.push(chunk);
  if (!decoder.isEmpty) throw new OpenShellError("data-loss", `the stream ended inside a ${schema.name} message`);
}

function parse<D extends DescMessage>(schema: D, body: Uint8Array): MessageShape<D> {
  try {
    return fromBinary(schema, body);
  } catch (cause) {
    throw new OpenShellError("invalid-argument", `received bytes that are no ${schema.name} message`, { cause });
  }
}

function readVarint(bytes: Uint8Array): { readonly value: number; readonly size: number } | undefined {
  let value = 0;
  for (let index = 0; index < 5; index += 1) {
    const byte = bytes[index];
    if (byte === undefined) return undefined;
    value += (byte & 0x7f) * 2 ** (7 * index);
    if (byte < 0x80) return { value, size: index + 1 };
  }
  throw new OpenShellError("invalid-argument", "a frame's length is no 32-bit varint");
}
