/** What client and server share; loosely typed, since the kind of a method is only known at run time. */

import type { DescMethod } from "@bufbuild/protobuf";
import type * as grpc from "@grpc/grpc-js";
import { OpenShellError } from "../common/errors.ts";
import { codecOf } from "./codec.ts";
import type { CallContext, Stream } from "./rpc.ts";

export type LooseHandler = (request: unknown, context: CallContext) => unknown;
export function definitionOf(method: DescMethod): grpc.MethodDefinition<unknown, unknown> {
  const input = codecOf(method.input);
  const output = codecOf(method.output);
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    requestStream: method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming",
    responseStream: method.methodKind === "server_streaming" || method.methodKind === "bidi_streaming",
    requestSerialize: input.encode,
    requestDeserialize: input.decode,
    responseSerialize: output.encode,
    responseDeserialize: output.decode,
  };
}

export function unimplemented(method: DescMethod): OpenShellError {
  return new OpenShellError(
    "unimplemented",
    `${method.parent.typeName}/${method.name} is not implemented by this server`,
  );
}

export interface Sink {
  write(value: unknown): boolean;
  once(event: string, listener: () => void): unknown;
  removeListener(event: string, listener: () => void): unknown;
  readonly cancelled?: boolean;
  readonly destroyed?: boolean;
}

/** Messages that wait in a call for its reader, and as many for the transport. Node's own 16 are mebibytes where bytes are carried. */
const heldMessages = 2;

/** Lets a call hold no more than it needs, in each direction that it has. */
export function holdFew<T extends object>(call: T): T {
  const { _readableState, _writableState } = call as Readonly<Record<string, { highWaterMark: number } | undefined>>;
  for (const state of [_readableState, _writableState]) if (state !== undefined) state.highWaterMark = heldMessages;
  return call;
}

/** Writes a stream of messages, waiting whenever the transport's buffer is full; stops when the call is over. */
export async function pump(source: Stream<unknown>, sink: Sink): Promise<void> {
  // A client's call that its server ends with OK is neither cancelled nor destroyed, and never drains: its status says that it is over.
  let over = false;
  const end = () => {
    over = true;
  };
  sink.once("status", end);
  holdFew(sink);
  try {
    for await (const value of source) {
      if (over || sink.cancelled === true || sink.destroyed === true) return;
      if (!sink.write(value) && !over) await drained(sink);
      if (over) return;
    }
  } finally {
    sink.removeListener("status", end);
  }
}

function drained(sink: Sink): Promise<void> {
  return new Promise((resolve) => {
    const events = ["drain", "cancelled", "close", "error", "status"];
    const done = () => {
      for (const event of events) sink.removeListener(event, done);
      resolve();
    };
    for (const event of events) sink.once(event, done);
  });
}
