/** Waiting for a connection: gRPC sets no limit to a TLS handshake or to the first words of HTTP/2, and a stream has none of its own. */
import { type Client, connectivityState as State } from "@grpc/grpc-js";
import { OpenShellError } from "../common/errors.ts";

type Channel = ReturnType<Client["getChannel"]>;

/**
 * Resolves when a call can begin: at once where there is a connection, and also where none can be made, since the call itself says why.
 * @param withinMs milliseconds; undefined for no limit
 * @throws deadline-exceeded, in gRPC's own words, when the other side has not spoken by then; cancelled at the signal
 */
export async function whenConnected(client: Client, withinMs?: number, signal?: AbortSignal): Promise<void> {
  const channel = client.getChannel();
  const until = withinMs === undefined ? Number.POSITIVE_INFINITY : Date.now() + withinMs;
  for (;;) {
    const state = channel.getConnectivityState(true);
    if (state !== State.IDLE && state !== State.CONNECTING) return;
    await changed(channel, state, until, signal);
  }
}

/** What is left of it after an abort goes when the channel is closed. */
function changed(channel: Channel, from: State, until: number, signal?: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const abort = () => reject(OpenShellError.from(signal?.reason));
  if (signal?.aborted) abort();
  signal?.addEventListener("abort", abort, { once: true });
  channel.watchConnectivityState(from, until, (late) => {
    signal?.removeEventListener("abort", abort);
    if (late === undefined) resolve();
    else reject(new OpenShellError("deadline-exceeded", "Deadline exceeded: no connection", { cause: late }));
  });
  return promise;
}
