/**
 * Typed gRPC with protobuf-es messages: a service implementation is an object of plain async functions and async generators, a client has
 * the same methods. Over a socket: server.ts and client.ts; in one process: local.ts.
 */

import type {
  DescMethod,
  DescMethodBiDiStreaming,
  DescMethodClientStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";

/** What a handler knows of the call besides its request. */
export interface CallContext<P = unknown> {
  readonly method: DescMethod;
  /** Aborted when the client goes away, the deadline passes or the server stops. */
  readonly signal: AbortSignal;
  /** Who calls, as the service's `authenticate` found. */
  readonly principal: P;
  /** First value of a request header, in lower case. */
  header(name: string): string | undefined;
  /** DER of the peer's TLS certificate, when it sent one; proof of possession is done, trust is the caller's to check. */
  readonly peerCertificate: Uint8Array | undefined;
  /** Address of the peer as gRPC prints it; "local" for in-process calls. */
  readonly peer: string;
}

export type Stream<T> = AsyncIterable<T>;

export type Handler<M extends DescMethod, P> =
  M extends DescMethodUnary<infer I, infer O>
    ? (request: MessageShape<I>, context: CallContext<P>) => Promise<MessageInitShape<O>>
    : M extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageShape<I>, context: CallContext<P>) => Stream<MessageInitShape<O>>
      : M extends DescMethodClientStreaming<infer I, infer O>
        ? (requests: Stream<MessageShape<I>>, context: CallContext<P>) => Promise<MessageInitShape<O>>
        : M extends DescMethodBiDiStreaming<infer I, infer O>
          ? (requests: Stream<MessageShape<I>>, context: CallContext<P>) => Stream<MessageInitShape<O>>
          : never;

/** The methods a service implements; a missing one answers UNIMPLEMENTED (after authentication). */
export type Implementation<S extends DescService, P = unknown> = {
  readonly [K in keyof S["method"]]?: Handler<S["method"][K], P>;
};

export interface CallOptions {
  readonly signal?: AbortSignal;
  /** Milliseconds until DEADLINE_EXCEEDED. @default none */
  readonly timeoutMs?: number;
  readonly headers?: Readonly<Record<string, string>>;
}

type Call<M extends DescMethod> =
  M extends DescMethodUnary<infer I, infer O>
    ? (request: MessageInitShape<I>, options?: CallOptions) => Promise<MessageShape<O>>
    : M extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageInitShape<I>, options?: CallOptions) => Stream<MessageShape<O>>
      : M extends DescMethodClientStreaming<infer I, infer O>
        ? (requests: Stream<MessageInitShape<I>>, options?: CallOptions) => Promise<MessageShape<O>>
        : M extends DescMethodBiDiStreaming<infer I, infer O>
          ? (requests: Stream<MessageInitShape<I>>, options?: CallOptions) => Stream<MessageShape<O>>
          : never;

export type Client<S extends DescService> = { readonly [K in keyof S["method"]]: Call<S["method"][K]> };
