import type { MessageInitShape } from "@bufbuild/protobuf";
import { OpenShellError } from "../common/errors.ts";
import { decodeFrames, encodeFrame } from "../common/frames.ts";
import { boundary, codeOfStatus } from "../wire/index.ts";
import type { TransferSummary } from "./_tar.ts";
import { bytesFields, encodeBytesFrame } from "./bytes-frame.ts";
import type { ByteChannel } from "./channel.ts";
import { chunkBytes } from "./protocol.ts";
import { extractTree } from "./tar-extract.ts";
import { type PackOptions, packTree, treeBytes } from "./tar-pack.ts";

export interface UploadOptions extends PackOptions {
  /** Local file or directory. */
  readonly source: string;
  /** Directory in the sandbox that it is put into; absolute, or relative to the home. */
  readonly destination: string;
  /** Told of bytes sent, tar headers included. */
  readonly progress?: (bytes: number) => void;
}

export interface DownloadOptions {
  /** File or directory in the sandbox; absolute, or relative to the home. */
  readonly source: string;
  /** Local directory that it is put into; made when missing. */
  readonly destination: string;
  /** What it is called there. @default the source's base name */
  readonly name?: string;
  /** Told of bytes received, tar headers included. */
  readonly progress?: (bytes: number) => void;
}

type Request = NonNullable<MessageInitShape<typeof boundary.FilesRequestSchema>["payload"]>;

/**
 * Copies a local file or directory into the sandbox over a channel of service `files`.
 * @throws not-found for a missing source; what the runtime refused it with
 */
export async function upload(channel: ByteChannel, options: UploadOptions): Promise<TransferSummary> {
  const sizeHint = BigInt(await treeBytes(options.source, options));
  const { stream, summary } = await packTree(options.source, options);
  const send = (payload: Request) => channel.write(encodeFrame(boundary.FilesRequestSchema, { payload }));
  let answered = false;
  const sending = async () => {
    await send({ case: "upload", value: { destination: options.destination, sizeHint } });
    let sent = 0;
    for await (const value of cut(stream)) {
      if (answered) return;
      await channel.write(encodeBytesFrame(bytesFields.uploaded, value));
      sent += value.length;
      options.progress?.(sent);
    }
    await send({ case: "end", value: {} });
  };
  // An early answer explains a failed write better than the write does.
  let failed: unknown;
  const sent = sending().catch((error: unknown) => {
    failed = error;
    if (!answered) channel.abort(error);
  });
  try {
    for await (const { payload } of decodeFrames(boundary.FilesReplySchema, channel.readable)) {
      answered = true;
      if (payload.case === "summary") return withSkipped(summary().skipped, summaryOf(payload.value));
      if (payload.case === "failure") throw failureOf(payload.value);
    }
    throw failed ?? interrupted();
  } catch (error) {
    throw failed ?? error;
  } finally {
    answered = true;
    channel.end();
    await sent;
  }
}

/**
 * Copies a file or directory out of the sandbox over a channel of service `files`. What comes is treated as hostile: see `extractTree`.
 * @throws what the runtime refused it with, and what the local file system does
 */
export async function download(channel: ByteChannel, options: DownloadOptions): Promise<TransferSummary> {
  const request: Request = { case: "download", value: { source: options.source } };
  let skippedThere: readonly string[] | undefined;
  async function* incoming() {
    let received = 0;
    for await (const { payload } of decodeFrames(boundary.FilesReplySchema, channel.readable)) {
      if (payload.case === "failure") throw failureOf(payload.value);
      if (payload.case === "summary") {
        skippedThere = payload.value.skipped;
        return;
      }
      if (payload.case !== "data") continue;
      received += payload.value.length;
      options.progress?.(received);
      yield payload.value;
    }
    throw interrupted();
  }
  try {
    await channel.write(encodeFrame(boundary.FilesRequestSchema, { payload: request }));
    const summary = await extractTree(
      incoming(),
      options.destination,
      options.name === undefined ? {} : { name: options.name },
    );
    if (skippedThere === undefined) throw interrupted();
    return withSkipped(skippedThere, summary);
  } catch (error) {
    channel.abort(error);
    throw error;
  } finally {
    channel.end();
  }
}

/**
 * The same bytes in full data messages, the last one aside: an archive comes in a head, contents and padding for each file, and each way from
 * here to the other side costs by the message.
 */
export async function* cut(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  let piece = new Uint8Array(chunkBytes);
  let filled = 0;
  for await (const chunk of chunks) {
    for (let at = 0; at < chunk.length; ) {
      if (filled === 0 && chunk.length - at >= chunkBytes) {
        yield chunk.subarray(at, at + chunkBytes);
        at += chunkBytes;
        continue;
      }
      const part = chunk.subarray(at, at + chunkBytes - filled);
      piece.set(part, filled);
      filled += part.length;
      at += part.length;
      if (filled < chunkBytes) continue;
      yield piece;
      piece = new Uint8Array(chunkBytes);
      filled = 0;
    }
  }
  if (filled > 0) yield piece.subarray(0, filled);
}

function summaryOf({ files, bytes, path, skipped }: boundary.FilesSummary): TransferSummary {
  return { files: Number(files), bytes: Number(bytes), path, skipped };
}

/** What the packing side left out counts too: the other side never saw it. */
function withSkipped(packing: readonly string[], unpacked: TransferSummary): TransferSummary {
  return { ...unpacked, skipped: [...packing, ...unpacked.skipped] };
}

function failureOf({ code, message }: boundary.Failure): OpenShellError {
  return new OpenShellError(codeOfStatus(code), message);
}

function interrupted(): OpenShellError {
  return new OpenShellError("unavailable", "the connection to the sandbox was lost during the transfer");
}
