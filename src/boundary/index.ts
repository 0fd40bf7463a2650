/** What supervisor, runtime and gateway say to each other: openshell.boundary.v1 beyond its messages. */

export type { TransferSummary } from "./_tar.ts";
export { bytesFields, encodeBytesFrame } from "./bytes-frame.ts";
export { type ByteChannel, channelPair, createChannel, join, openChannel } from "./channel.ts";
export { type ExecCommand, type ExecInputEvent, type ExecOutputEvent, runExec } from "./exec.ts";
export { cut, type DownloadOptions, download, type UploadOptions, upload } from "./files.ts";
export { type SessionGrant, sessionGrantClaims, tlsKeyHash, verifySessionGrant } from "./grant.ts";
export { Outbox } from "./outbox.ts";
export {
  checkVersion,
  chunkBytes,
  heartbeat,
  localVersion,
  protocolVersion,
  runtimeServerName,
  type ServiceId,
  services,
} from "./protocol.ts";
export { type ExtractOptions, extractTree } from "./tar-extract.ts";
export { type PackOptions, packTree, treeBytes } from "./tar-pack.ts";
export { openTcp, readHeader } from "./tcp.ts";
export { Watchdog } from "./watchdog.ts";
