import type { Http2Server, ServerOptions } from "node:http2";
import * as grpc from "@grpc/grpc-js";

/**
 * Bytes that a sender may be ahead of its reader, who holds as much for each peer that sends without being read. HTTP/2's default of 64 KiB
 * caps every stream at window / round trip, and has both ends wait for each other after each message even where there is no distance.
 */
const streamWindow = 1024 * 1024;
/** The same for all streams of a connection to a server together. What a stream does not read takes nothing of it. */
const connectionWindow = 4 * streamWindow;

const transportOptions: grpc.ChannelOptions = {
  "grpc.max_receive_message_length": 8 * 1024 * 1024,
  "grpc.max_send_message_length": 8 * 1024 * 1024,
  "grpc.enable_http_proxy": 0,
};

/** Calls one connection may have open: many times what a sandbox may have relays. */
const maxStreams = 1024;

/** A server finds a peer that went away without a word by asking; until then its calls would hold what they hold. */
const serverOptions: grpc.ServerOptions = {
  "grpc.max_concurrent_streams": maxStreams,
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 20_000,
};

/**
 * A client with calls under way asks too: a path that went dead without a word would else hold them for ever, also those of a channel that
 * is closed, which lets them live. The answer waits behind a full window, so that less time would end a transfer over a slow line. An
 * idle channel does not ask.
 */
const clientOptions: grpc.ChannelOptions = {
  // Counters of each message that nobody reads. A server has to keep its own: without them grpc-js 1.14 forgets its connections, and cannot be
  // forced to end them.
  "grpc.enable_channelz": 0,
  "grpc-node.flow_control_window": streamWindow,
  // A call that holds more than its first messages is not begun again, and its sender is not told of room that is only here.
  "grpc.per_rpc_retry_buffer_size": 256 * 1024,
  "grpc.keepalive_time_ms": 10_000,
  "grpc.keepalive_timeout_ms": 20_000,
};

/** A server with the project's transport options. */
export function createServer(options: grpc.ServerOptions = {}): grpc.Server {
  const server = new grpc.Server({ ...transportOptions, ...serverOptions, ...options });
  openWindows(server as unknown as Http2Made);
  return server;
}

/** How grpc-js 1.14 makes its HTTP/2 servers; its option for windows is one of channels only. */
interface Http2Made {
  readonly commonServerOptions: ServerOptions;
  createHttp2Server(credentials: grpc.ServerCredentials): Http2Server;
}

function openWindows(server: Http2Made): void {
  const { settings } = server.commonServerOptions;
  Object.assign(server.commonServerOptions, { settings: { ...settings, initialWindowSize: streamWindow } });
  const create = server.createHttp2Server.bind(server);
  server.createHttp2Server = (credentials) => {
    const made = create(credentials);
    made.on("session", (session) => session.setLocalWindowSize(connectionWindow));
    return made;
  };
}

/** A channel with the project's transport options; `target` is `host:port`. */
export function createChannel(
  target: string,
  credentials: grpc.ChannelCredentials,
  options: grpc.ChannelOptions = {},
): grpc.Client {
  return new grpc.Client(target, credentials, { ...transportOptions, ...clientOptions, ...options });
}
