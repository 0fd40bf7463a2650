import { create, type DescField, type DescMessage, fromBinary, ScalarType, toBinary } from "@bufbuild/protobuf";

/** Messages of one type to and from the bytes that gRPC carries. */
export interface Codec {
  /** @param value a message, or what `create` makes one of */
  encode(value: unknown): Buffer;
  decode(bytes: Uint8Array): unknown;
}

/** A case of a oneof that is bytes, or a message of nothing but bytes; how frames carry bulk data. */
interface BytesCase {
  readonly tag: number;
  /** Where the bytes lie when the case is a message. */
  readonly inner: { readonly name: string; readonly tag: number } | undefined;
}

/**
 * The codec of a message type. Where the type is one oneof, its bytes cases are encoded in one allocation and one copy: the general encoder
 * takes two of each for 64 KiB of bytes and more where they are nested (what it is worth: e2e/bench/wire.ts).
 * Decoding copies nothing anyway.
 */
export function codecOf(schema: DescMessage): Codec {
  const general = (value: unknown) => bufferOf(toBinary(schema, create(schema, value as never)));
  const decode = (bytes: Uint8Array) => fromBinary(schema, bytes);
  const [oneof] = schema.oneofs;
  if (oneof === undefined || oneof.fields.length !== schema.fields.length) return { encode: general, decode };
  const cases = new Map<string, BytesCase>();
  for (const field of oneof.fields) {
    const found = bytesCase(field);
    if (found !== undefined) cases.set(field.localName, found);
  }
  const name = oneof.localName;
  return { encode: (value) => encodeBytes(cases, value, name) ?? general(value), decode };
}

function bytesCase(field: DescField): BytesCase | undefined {
  const tag = tagOf(field);
  if (tag === undefined) return undefined;
  if (isBytes(field)) return { tag, inner: undefined };
  const [only, ...rest] = field.message?.fields ?? [];
  const inner = only !== undefined && rest.length === 0 && isBytes(only) ? tagOf(only) : undefined;
  return only === undefined || inner === undefined ? undefined : { tag, inner: { name: only.localName, tag: inner } };
}

function isBytes(field: DescField): boolean {
  return field.fieldKind === "scalar" && field.scalar === ScalarType.BYTES;
}

/** Tag of a length-delimited field; undefined where it takes more than one byte. */
function tagOf({ number }: DescField): number | undefined {
  return number < 16 ? (number << 3) | 2 : undefined;
}

/** Undefined where there is more to encode than bytes, or nothing. */
function encodeBytes(cases: ReadonlyMap<string, BytesCase>, value: unknown, oneof: string): Buffer | undefined {
  const message = value as Readonly<Record<string, { readonly case?: string; readonly value?: unknown } | undefined>>;
  const payload = message[oneof];
  const found = payload?.case === undefined ? undefined : cases.get(payload.case);
  if (found === undefined || message.$unknown !== undefined) return undefined;
  if (found.inner === undefined) {
    const data = payload?.value;
    if (!(data instanceof Uint8Array)) return undefined;
    const frame = Buffer.allocUnsafe(1 + varintLength(data.length) + data.length);
    frame.set(data, writeHead(frame, 0, found.tag, data.length));
    return frame;
  }
  const nested = payload?.value as Readonly<Record<string, unknown>> | undefined;
  const data = nested?.[found.inner.name];
  // Empty bytes of a message are not written at all; that is the general encoder's to know.
  if (!(data instanceof Uint8Array) || data.length === 0 || nested?.$unknown !== undefined) return undefined;
  const length = 1 + varintLength(data.length) + data.length;
  const frame = Buffer.allocUnsafe(1 + varintLength(length) + length);
  frame.set(data, writeHead(frame, writeHead(frame, 0, found.tag, length), found.inner.tag, data.length));
  return frame;
}

/** Tag and length; where to go on. */
function writeHead(frame: Buffer, start: number, tag: number, length: number): number {
  frame[start] = tag;
  let at = start + 1;
  let rest = length;
  for (; rest > 0x7f; rest >>>= 7) {
    frame[at] = (rest & 0x7f) | 0x80;
    at += 1;
  }
  frame[at] = rest;
  return at + 1;
}

function varintLength(value: number): number {
  return value < 0x80 ? 1 : value < 0x4000 ? 2 : value < 0x20_0000 ? 3 : value < 0x1000_0000 ? 4 : 5;
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
