import type { DescMethod, DescService } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { OpenShellError } from "../common/errors.ts";
import { definitionOf, holdFew, pump, type Sink } from "./_calls.ts";
import type { CallOptions, Client, Stream } from "./rpc.ts";
import { fromServiceError } from "./status.ts";

/** A client of `service` over a channel. */
export function grpcClient<S extends DescService>(service: S, channel: grpc.Client): Client<S> {
  const client: Record<string, unknown> = {};
  for (const method of service.methods) client[method.localName] = remoteCall(method, channel);
  return client as Client<S>;
}

function remoteCall(method: DescMethod, channel: grpc.Client) {
  const definition = definitionOf(method);
  const { path, requestSerialize, responseDeserialize } = definition;
  const start = (options: CallOptions | undefined) => {
    if (options?.signal?.aborted === true) throw OpenShellError.from(options.signal.reason);
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
      return async (request: unknown, options?: CallOptions) => {
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
      return async (requests: Stream<unknown>, options?: CallOptions) => {
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

/** Feeds a call; a failing source cancels it, so that the server is not left waiting. Nothing is said of an end after a cancellation. */
function send(source: Stream<unknown>, call: Sink & Cancellable & { end(): void }): void {
  pump(source, call).then(
    () => {
      if (!cancelled.has(call)) call.end();
    },
    () => cancel(call),
  );
}

interface Cancellable {
  cancel(): void;
}

const cancelled = new WeakSet<Cancellable>();

function cancel(call: Cancellable): void {
  cancelled.add(call);
  call.cancel();
}

function cancelOn(signal: AbortSignal | undefined, call: Cancellable): () => void {
  if (signal === undefined) return () => {};
  const abort = () => cancel(call);
  signal.addEventListener("abort", abort, { once: true });
  return () => signal.removeEventListener("abort", abort);
}

/** Responses of a call that has begun. What happens to it before somebody iterates is kept for whoever does. */
function responsesOf(
  call: grpc.ClientReadableStream<unknown> | grpc.ClientDuplexStream<unknown, unknown>,
  signal: AbortSignal | undefined,
): AsyncGenerator<unknown, void, undefined> {
  let failure: grpc.ServiceError | undefined;
  // Without a listener an error would end the process; after a cancelled call's end one still comes.
  call.on("error", (error: grpc.ServiceError) => {
    failure ??= error;
  });
  const detach = cancelOn(signal, call);
  return (async function* () {
    try {
      yield* holdFew(call).iterator({ destroyOnReturn: false });
      // The iterator of a stream that failed before it was asked for just ends.
      if (failure !== undefined) throw failure;
    } catch (error) {
      throw isServiceError(error) ? fromServiceError(error) : error;
    } finally {
      detach();
      cancel(call);
    }
  })();
}

function isServiceError(error: unknown): error is grpc.ServiceError {
  return error instanceof Error && "code" in error && typeof error.code === "number" && "metadata" in error;
}
