import { create, type DescMessage, type DescMethod, type DescService } from "@bufbuild/protobuf";
import { OpenShellError } from "../common/errors.ts";
import { type LooseHandler, unimplemented } from "./_calls.ts";
import type { CallContext, CallOptions, Client, Implementation, Stream } from "./rpc.ts";

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
        const context = contextFor(options, new AbortController());
        if (context.signal.aborted) throw context.signal.reason;
        const value = await untilAborted(handler(requestOf(request), context) as Promise<unknown>, context.signal);
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

/** The caller gets its answer at the deadline or when it leaves, as over a socket, whether the handler listens or not. */
async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const abort = () => aborted.reject(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
