import type { EventEmitter } from "node:events";
import type { ServerHttp2Stream } from "node:http2";
import type { DescMethod, DescService } from "@bufbuild/protobuf";
import type * as grpc from "@grpc/grpc-js";
import { within } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { definitionOf, holdFew, type LooseHandler, pump, unimplemented } from "./_calls.ts";
import type { CallContext, Implementation, Stream } from "./rpc.ts";
import { toServiceError } from "./status.ts";

/**
 * How long a caller has to send a request of one message, in milliseconds: it is held until it is whole. The largest one takes 2.3 Mbit/s. As
 * long as a published client waits for its answer.
 */
export const requestTimeoutMs = 30_000;

/**
 * Bytes that a request whose type has no fields may have: of what a newer client puts into it nothing is read here. Such are the requests that
 * need no credential, so that nobody unknown can have more than that held.
 */
const longestOfNothing = 4 * 1024;

/**
 * Adds a service to a server.
 * @param authenticate runs before every call, the unimplemented ones too; what it returns is the handler's `principal`, what it throws is the answer
 * @param onError told of every failed call, with the cause that the client does not see
 * @param shown what the client sees of an error, and `onError` is told of. @default the error
 */
export function addService<S extends DescService, P>(
  server: grpc.Server,
  service: S,
  implementation: Implementation<S, P>,
  authenticate: (context: CallContext<undefined>) => Promise<P> | P,
  onError: (error: OpenShellError, method: DescMethod) => void = () => {},
  shown: (error: OpenShellError) => OpenShellError = (error) => error,
): void {
  const definitions: Record<string, grpc.MethodDefinition<unknown, unknown>> = {};
  const handlers: grpc.UntypedServiceImplementation = {};
  for (const method of service.methods) {
    // Also where there is one: grpc-js reads a request that is not a stream before anybody is asked who sends it, 8 MiB for each call.
    definitions[method.localName] = { ...definitionOf(method), requestStream: true };
    const implement = (implementation as Record<string, unknown>)[method.localName] as LooseHandler | undefined;
    handlers[method.localName] = serve(method, implement, authenticate as Authenticate, (error) => {
      const known = shown(OpenShellError.from(error));
      onError(known, method);
      return toServiceError(known);
    }) as grpc.UntypedHandleCall;
  }
  server.addService(definitions as grpc.ServiceDefinition, handlers);
}

type Authenticate = (context: CallContext<undefined>) => unknown;
type AnyCall = grpc.ServerReadableStream<unknown, unknown> | grpc.ServerDuplexStream<unknown, unknown>;

function serve(
  method: DescMethod,
  handler: LooseHandler | undefined,
  authenticate: Authenticate,
  fail: (error: unknown) => ReturnType<typeof toServiceError>,
) {
  const { methodKind } = method;
  const takesMany = methodKind === "client_streaming" || methodKind === "bidi_streaming";
  const run = async (call: AnyCall): Promise<unknown> => {
    if (method.input.fields.length === 0) bound(call, longestOfNothing);
    const context = contextOf(method, call);
    const principal = await authenticate(context as CallContext<undefined>);
    if (handler === undefined) throw unimplemented(method);
    const request = takesMany ? messagesOf(call) : await onlyMessageOf(call);
    return handler(request, { ...context, principal });
  };

  if (methodKind === "unary" || methodKind === "client_streaming") {
    return (call: grpc.ServerReadableStream<unknown, unknown>, reply: grpc.sendUnaryData<unknown>) => {
      run(call).then(
        (value) => reply(null, value),
        (error: unknown) => reply(fail(error)),
      );
    };
  }
  return (call: grpc.ServerDuplexStream<unknown, unknown>) => {
    run(call)
      .then((responses) => pump(responses as Stream<unknown>, call))
      .then(
        () => call.end(),
        (error: unknown) => call.emit("error", fail(error)),
      );
  };
}

function contextOf(method: DescMethod, call: AnyCall): Omit<CallContext, "principal"> {
  const controller = new AbortController();
  (call as EventEmitter).on("cancelled", () => controller.abort(clientWentAway()));
  if (call.cancelled) controller.abort(clientWentAway());
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

function clientWentAway(): OpenShellError {
  return new OpenShellError("cancelled", "the client went away");
}

/**
 * Messages of a readable call; leaving the loop early keeps the writing side open. A client that cancels may seem to end its side first:
 * Node sends END_STREAM before RST_STREAM. Where half of something must not pass for the whole, the messages have to say their own end.
 * @throws cancelled when the client goes away
 */
async function* messagesOf(call: AnyCall) {
  try {
    yield* holdFew(call).iterator({ destroyOnReturn: false });
  } catch (error) {
    // A cancelled call's stream is destroyed, which Node tells as a premature close.
    throw call.cancelled || call.destroyed ? clientWentAway() : error;
  }
}

/**
 * @throws cancelled when the client goes away, invalid-argument when it sends another number of messages than one, deadline-exceeded when it
 * takes its time
 */
async function onlyMessageOf(call: AnyCall): Promise<unknown> {
  return await within(readOnly(call), requestTimeoutMs, () => {
    resetOnceAnswered(call);
    return new OpenShellError("deadline-exceeded", "the request did not come to its end in time");
  });
}

/** What grpc-js 1.14 has of a call and does not show. */
interface Insides {
  readonly stream: Pick<ServerHttp2Stream, "close">;
  readonly decoder: { maxReadMessageLength: number };
  /** Of a message once it is decompressed. */
  maxReceiveMessageSize: number;
}

function insidesOf(call: AnyCall): Insides {
  return (call as unknown as { readonly call: Insides }).call;
}

/** A larger message is answered with resource-exhausted as soon as it says its length, and nothing of it is held. */
function bound(call: AnyCall, bytes: number): void {
  const insides = insidesOf(call);
  insides.decoder.maxReadMessageLength = bytes;
  insides.maxReceiveMessageSize = bytes;
}

/** What has come of a message is held for as long as the stream is there, answered or not. grpc-js says "cancelled" also after an answer. */
function resetOnceAnswered(call: AnyCall): void {
  (call as EventEmitter).once("cancelled", () => insidesOf(call).stream.close());
}

async function readOnly(call: AnyCall): Promise<unknown> {
  const messages = [];
  for await (const message of messagesOf(call)) {
    messages.push(message);
    if (messages.length > 1) break;
  }
  if (messages.length === 1) return messages[0];
  throw new OpenShellError("invalid-argument", "a request is one message");
}
