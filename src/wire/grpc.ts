/**
 * Typed gRPC over @grpc/grpc-js with protobuf-es messages: a service implementation is an object of plain async functions and async
 * generators, a client has the same methods, and `localClient` joins the two without a socket.
 */

import type { EventEmitter } from "node:events";
import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodBiDiStreaming,
  type DescMethodClientStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type DescService,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { OpenShellError } from "../common/errors.ts";
import { codecOf } from "./codec.ts";
import { fromServiceError, toServiceError } from "./status.ts";

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

type Stream<T> = AsyncIterable<T>;

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

/** Flow-control windows sized for bytes: the 64 KiB default caps every stream at window / round trip. */
const transportOptions: grpc.ChannelOptions = {
  "grpc-node.flow_control_window": 4 * 1024 * 1024,
  "grpc.max_receive_message_length": 8 * 1024 * 1024,
  "grpc.max_send_message_length": 8 * 1024 * 1024,
  "grpc.enable_http_proxy": 0,
};

/** Calls one connection may have open: four times what a sandbox may have relays. */
const maxStreams = 1024;

/** A server finds a peer that went away without a word by asking; until then its calls would hold what they hold. */
const serverOptions: grpc.ServerOptions = {
  "grpc.max_concurrent_streams": maxStreams,
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 20_000,
};

/** A server with the project's transport options. */
export function createServer(options: grpc.ServerOptions = {}): grpc.Server {
  return new grpc.Server({ ...transportOptions, ...serverOptions, ...options });
}

/** A channel with the project's transport options; `target` is `host:port`. */
export function createChannel(
  target: string,
  credentials: grpc.ChannelCredentials,
  options: grpc.ChannelOptions = {},
): grpc.Client {
  return new grpc.Client(target, credentials, { ...transportOptions, ...options });
}

/**
 * Adds a service to a server.
 * @param authenticate runs before every call, the unimplemented ones too; what it returns is the handler's `principal`, what it throws is the answer
 * @param onError told of every failed call, with the cause that the client does not see
 */
export function addService<S extends DescService, P>(
  server: grpc.Server,
  service: S,
  implementation: Implementation<S, P>,
  authenticate: (context: CallContext<undefined>) => Promise<P> | P,
  onError: (error: OpenShellError, method: DescMethod) => void = () => {},
): void {
  const definitions: Record<string, grpc.MethodDefinition<unknown, unknown>> = {};
  const handlers: grpc.UntypedServiceImplementation = {};
  for (const method of service.methods) {
    definitions[method.localName] = definitionOf(method);
    const implement = (implementation as Record<string, unknown>)[method.localName] as LooseHandler | undefined;
    handlers[method.localName] = serve(
      method,
      implement,
      authenticate as Authenticate,
      onError,
    ) as grpc.UntypedHandleCall;
  }
  server.addService(definitions as grpc.ServiceDefinition, handlers);
}

/** A client of `service` over a channel. */
export function grpcClient<S extends DescService>(service: S, channel: grpc.Client): Client<S> {
  const client: Record<string, unknown> = {};
  for (const method of service.methods) client[method.localName] = remoteCall(method, channel);
  return client as Client<S>;
}

/**
 * A client of an implementation in this process. Messages cross as they would on a socket: filled with defaults, errors as
 * OpenShellError, early end of a response stream aborts the call.
 */
export function localClient<S extends DescService, P>(
  service: S,
  implementation: Implementation<S, P>,
  principal: P,
): Client<S> {
  const client: Record<string, unknown> = {};
  for (const method of service.methods) {
    const handler = (implementation as Record<string, unknown>)[method.localName] as LooseHandler | undefined;
    client[method.localName] = localCall(method, handler, principal);
  }
  return client as Client<S>;
}

// --- how it works: loosely typed inside, since the method kind is only known at run time -------------------------------

type LooseHandler = (request: unknown, context: CallContext) => unknown;
type Authenticate = (context: CallContext<undefined>) => unknown;
type AnyCall =
  | grpc.ServerUnaryCall<unknown, unknown>
  | grpc.ServerReadableStream<unknown, unknown>
  | grpc.ServerWritableStream<unknown, unknown>
  | grpc.ServerDuplexStream<unknown, unknown>;

function definitionOf(method: DescMethod): grpc.MethodDefinition<unknown, unknown> {
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

function unimplemented(method: DescMethod): OpenShellError {
  return new OpenShellError(
    "unimplemented",
    `${method.parent.typeName}/${method.name} is not implemented by this server`,
  );
}

function serve(
  method: DescMethod,
  handler: LooseHandler | undefined,
  authenticate: Authenticate,
  onError: (error: OpenShellError, method: DescMethod) => void,
) {
  const run = async (call: AnyCall, request: unknown): Promise<unknown> => {
    const context = contextOf(method, call);
    const principal = await authenticate(context as CallContext<undefined>);
    if (handler === undefined) throw unimplemented(method);
    return handler(request, { ...context, principal });
  };
  const fail = (error: unknown) => {
    const known = OpenShellError.from(error);
    onError(known, method);
    return toServiceError(known);
  };

  switch (method.methodKind) {
    case "unary":
      return (call: grpc.ServerUnaryCall<unknown, unknown>, reply: grpc.sendUnaryData<unknown>) => {
        run(call, call.request).then(
          (value) => reply(null, value),
          (error: unknown) => reply(fail(error)),
        );
      };
    case "client_streaming":
      return (call: grpc.ServerReadableStream<unknown, unknown>, reply: grpc.sendUnaryData<unknown>) => {
        run(call, messagesOf(call)).then(
          (value) => reply(null, value),
          (error: unknown) => reply(fail(error)),
        );
      };
    case "server_streaming":
      return (call: grpc.ServerWritableStream<unknown, unknown>) => {
        run(call, call.request)
          .then((responses) => pump(responses as Stream<unknown>, call))
          .then(
            () => call.end(),
            (error: unknown) => call.emit("error", fail(error)),
          );
      };
    case "bidi_streaming":
      return (call: grpc.ServerDuplexStream<unknown, unknown>) => {
        run(call, messagesOf(call))
          .then((responses) => pump(responses as Stream<unknown>, call))
          .then(
            () => call.end(),
            (error: unknown) => call.emit("error", fail(error)),
          );
      };
  }
}

function contextOf(method: DescMethod, call: AnyCall): Omit<CallContext, "principal"> {
  const controller = new AbortController();
  (call as EventEmitter).on("cancelled", () =>
    controller.abort(new OpenShellError("cancelled", "the client went away")),
  );
  if (call.cancelled) controller.abort(new OpenShellError("cancelled", "the client went away"));
  return {
    method,
    signal: controller.signal,
    peer: call.getPeer(),
    peerCertificate: call.getAuthContext().sslPeerCertificate?.raw,
    header(name) {
      const [value] = call.metadata.get(name);
      return typeof value === "string" ? value : undefined;
    },
  };
}

/** Messages of a readable call; leaving the loop early keeps the writing side open. */
async function* messagesOf(
  stream: grpc.ServerReadableStream<unknown, unknown> | grpc.ServerDuplexStream<unknown, unknown>,
) {
  try {
    yield* stream.iterator({ destroyOnReturn: false });
  } catch (error) {
    throw isServiceError(error) ? fromServiceError(error) : error;
  }
}

interface Sink {
  write(value: unknown): boolean;
  once(event: string, listener: () => void): unknown;
  removeListener(event: string, listener: () => void): unknown;
  readonly cancelled?: boolean;
  readonly destroyed?: boolean;
}

/** Writes a stream of messages, waiting whenever the transport's buffer is full. */
async function pump(source: Stream<unknown>, sink: Sink): Promise<void> {
  for await (const value of source) {
    if (sink.cancelled === true || sink.destroyed === true) return;
    if (!sink.write(value)) await drained(sink);
  }
}

function drained(sink: Sink): Promise<void> {
  return new Promise((resolve) => {
    const events = ["drain", "cancelled", "close", "error"];
    const done = () => {
      for (const event of events) sink.removeListener(event, done);
      resolve();
    };
    for (const event of events) sink.once(event, done);
  });
}

function remoteCall(method: DescMethod, channel: grpc.Client) {
  const definition = definitionOf(method);
  const { path, requestSerialize, responseDeserialize } = definition;
  const start = (options: CallOptions | undefined) => {
    options?.signal?.throwIfAborted();
    const metadata = new grpc.Metadata();
    for (const [name, value] of Object.entries(options?.headers ?? {})) metadata.set(name, value);
    const callOptions: grpc.CallOptions =
      options?.timeoutMs === undefined ? {} : { deadline: Date.now() + options.timeoutMs };
    return { metadata, callOptions };
  };
  const settle = (resolve: (value: unknown) => void, reject: (error: unknown) => void, detach: () => void) => {
    return (error: grpc.ServiceError | null, value?: unknown) => {
      detach();
      if (error === null) resolve(value);
      else reject(fromServiceError(error));
    };
  };

  switch (method.methodKind) {
    case "unary":
      return (request: unknown, options?: CallOptions) => {
        const { metadata, callOptions } = start(options);
        return new Promise((resolve, reject) => {
          let detach = () => {};
          const done = settle(resolve, reject, () => detach());
          const call = channel.makeUnaryRequest(
            path,
            requestSerialize,
            responseDeserialize,
            request,
            metadata,
            callOptions,
            done,
          );
          detach = cancelOn(options?.signal, call);
        });
      };
    case "client_streaming":
      return (requests: Stream<unknown>, options?: CallOptions) => {
        const { metadata, callOptions } = start(options);
        return new Promise((resolve, reject) => {
          let detach = () => {};
          const done = settle(resolve, reject, () => detach());
          const call = channel.makeClientStreamRequest(
            path,
            requestSerialize,
            responseDeserialize,
            metadata,
            callOptions,
            done,
          );
          detach = cancelOn(options?.signal, call);
          send(requests, call);
        });
      };
    case "server_streaming":
      return (request: unknown, options?: CallOptions) => {
        const { metadata, callOptions } = start(options);
        const call = channel.makeServerStreamRequest(
          path,
          requestSerialize,
          responseDeserialize,
          request,
          metadata,
          callOptions,
        );
        return responsesOf(call, options?.signal);
      };
    case "bidi_streaming":
      return (requests: Stream<unknown>, options?: CallOptions) => {
        const { metadata, callOptions } = start(options);
        const call = channel.makeBidiStreamRequest(path, requestSerialize, responseDeserialize, metadata, callOptions);
        send(requests, call);
        return responsesOf(call, options?.signal);
      };
  }
}

/** Feeds a call; a failing source cancels it, so that the server is not left waiting. */
function send(source: Stream<unknown>, call: Sink & { end(): void; cancel(): void }): void {
  pump(source, call).then(
    () => call.end(),
    () => call.cancel(),
  );
}

function cancelOn(signal: AbortSignal | undefined, call: { cancel(): void }): () => void {
  if (signal === undefined) return () => {};
  const cancel = () => call.cancel();
  signal.addEventListener("abort", cancel, { once: true });
  return () => signal.removeEventListener("abort", cancel);
}

async function* responsesOf(
  call: grpc.ClientReadableStream<unknown> | grpc.ClientDuplexStream<unknown, unknown>,
  signal: AbortSignal | undefined,
): AsyncGenerator<unknown, void, undefined> {
  // A cancelled call still emits its status as an error; without a listener that would end the process.
  call.on("error", () => {});
  const detach = cancelOn(signal, call);
  try {
    yield* call.iterator({ destroyOnReturn: false });
  } catch (error) {
    throw isServiceError(error) ? fromServiceError(error) : error;
  } finally {
    detach();
    call.cancel();
  }
}

function isServiceError(error: unknown): error is grpc.ServiceError {
  return error instanceof Error && "code" in error && typeof error.code === "number" && "metadata" in error;
}

function localCall(method: DescMethod, handler: LooseHandler | undefined, principal: unknown) {
  const contextFor = (options: CallOptions | undefined, controller: AbortController): CallContext => ({
    method,
    principal,
    peer: "local",
    peerCertificate: undefined,
    signal: AbortSignal.any([
      controller.signal,
      ...(options?.signal === undefined ? [] : [options.signal]),
      ...(options?.timeoutMs === undefined ? [] : [AbortSignal.timeout(options.timeoutMs)]),
    ]),
    header: (name) => options?.headers?.[name],
  });
  const streamsRequests = method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming";
  const requestOf = (request: unknown) =>
    streamsRequests ? filled(method.input, request as Stream<unknown>) : create(method.input, request as never);

  if (method.methodKind === "unary" || method.methodKind === "client_streaming") {
    return async (request: unknown, options?: CallOptions) => {
      if (handler === undefined) throw unimplemented(method);
      try {
        const value = await handler(requestOf(request), contextFor(options, new AbortController()));
        return create(method.output, value as never);
      } catch (error) {
        throw OpenShellError.from(error);
      }
    };
  }
  return async function* (request: unknown, options?: CallOptions) {
    if (handler === undefined) throw unimplemented(method);
    const controller = new AbortController();
    try {
      yield* filled(method.output, handler(requestOf(request), contextFor(options, controller)) as Stream<unknown>);
    } catch (error) {
      throw OpenShellError.from(error);
    } finally {
      controller.abort(new OpenShellError("cancelled", "the caller left the stream"));
    }
  };
}

async function* filled(schema: DescMessage, source: Stream<unknown>) {
  for await (const value of source) yield create(schema, value as never);
}
