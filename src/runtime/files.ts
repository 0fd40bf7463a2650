import type { ByteChannel } from "../boundary/index.ts";

export async function serveFiles(channel: ByteChannel, _home: string, _signal: AbortSignal): Promise<void> {
  channel.end();
}
