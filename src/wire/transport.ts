import * as grpc from "@grpc/grpc-js";

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

/**
 * A client with calls under way asks too: a path that went dead without a word would else hold them for ever, also those of a channel that
 * is closed, which lets them live. The answer waits behind a full window, so that less time would end a transfer over a slow line. An
 * idle channel does not ask.
 */
const clientOptions: grpc.ChannelOptions = {
  "grpc.keepalive_time_ms": 10_000,
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
  return new grpc.Client(target, credentials, { ...transportOptions, ...clientOptions, ...options });
}
