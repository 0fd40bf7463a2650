/**
 * Of both channels of a supervisor, whose memory bounds how many relays may stand still because nobody takes what they carry
 * (e2e/paused-relays.test.ts). Each of them holds a window for each direction, besides a dozen messages on their way through.
 */
export const channelOptions = {
  "grpc.use_local_subchannel_pool": 1,
  // A quarter of the other programs', for paths within a cluster: at 1 ms there and back still 256 MiB/s a stream.
  "grpc-node.flow_control_window": 256 * 1024,
  "grpc.per_rpc_retry_buffer_size": 64 * 1024,
} as const;
