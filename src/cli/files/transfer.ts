/** Files as tar streams over a channel of service `files`: the sender's and the receiver's half. */
import { type ByteChannel, chunkBytes } from "../../boundary/index.ts";
import { OpenShellError } from "../../common/errors.ts";
import { decodeFrames, encodeFrame } from "../../common/frames.ts";
import { boundary, codeOfStatus } from "../../wire/index.ts";

/** What was carried, as the sandbox counted it. */
export interface TransferSummary {
  readonly files: number;
  readonly bytes: number;
  /** Where the upload went, or what the download read, as an absolute path. */
  readonly path: string;
}

/**
 * Unpacks `tar` below `destination` in the sandbox.
 * @param destination absolute, or relative to the sandbox's home
 * @throws what the sandbox refused it with; what `tar` throws
 */
export async function uploadTar(
  channel: ByteChannel,
  destination: string,
  tar: AsyncIterable<Uint8Array>,
  sizeHint?: number,
): Promise<TransferSummary> {
  const send = (payload: UploadPayload) => channel.write(encodeFrame(boundary.FilesRequestSchema, { payload }));
  const upload = { destination, ...(sizeHint === undefined ? {} : { sizeHint: BigInt(sizeHint) }) };
  // The sandbox may refuse before everything was sent; then writing fails too, and its own words are the better error.
  let sendingFailed: unknown;
  const sending = (async () => {
    await send({ case: "upload", value: upload });
    for await (const chunk of tar) {
      for (let start = 0; start < chunk.length; start += chunkBytes) {
        await send({ case: "data", value: chunk.subarray(start, start + chunkBytes) });
      }
    }
    await send({ case: "end", value: {} });
    channel.end();
  })().catch((error: unknown) => {
    sendingFailed = error;
    channel.abort(error);
  });
  try {
    return await summaryIn(channel);
  } catch (error) {
    if (sendingFailed !== undefined && error instanceof OpenShellError && error.code === "cancelled") {
      throw sendingFailed;
    }
    throw error;
  } finally {
    channel.abort(new OpenShellError("cancelled", "the upload is over"));
    await sending;
  }
}

type UploadPayload =
  | { case: "upload"; value: { destination: string; sizeHint?: bigint } }
  | { case: "data"; value: Uint8Array }
  | { case: "end"; value: Record<string, never> };

async function summaryIn(channel: ByteChannel): Promise<TransferSummary> {
  for await (const { payload } of decodeFrames(boundary.FilesReplySchema, channel.readable)) {
    if (payload.case === "summary") return summaryOf(payload.value);
    if (payload.case === "failure") throw failureOf(payload.value);
  }
  throw lost();
}

/** A download that runs: the tar stream, and the summary when it has ended. */
export interface Download {
  readonly tar: AsyncIterable<Uint8Array>;
  /** Known after `tar` has ended. */
  summary(): TransferSummary;
}

/**
 * Packs `source` of the sandbox as a tar stream.
 * @param source absolute, or relative to the sandbox's home
 */
export function downloadTar(channel: ByteChannel, source: string): Download {
  let summary: TransferSummary | undefined;
  async function* read(): AsyncGenerator<Uint8Array, void, undefined> {
    await channel.write(encodeFrame(boundary.FilesRequestSchema, { payload: { case: "download", value: { source } } }));
    channel.end();
    try {
      for await (const { payload } of decodeFrames(boundary.FilesReplySchema, channel.readable)) {
        if (payload.case === "data") yield payload.value;
        if (payload.case === "failure") throw failureOf(payload.value);
        if (payload.case === "summary") {
          summary = summaryOf(payload.value);
          return;
        }
      }
      throw lost();
    } finally {
      channel.abort(new OpenShellError("cancelled", "the download is over"));
    }
  }
  return {
    tar: read(),
    summary() {
      if (summary === undefined) throw lost();
      return summary;
    },
  };
}

function summaryOf({ files, bytes, path }: boundary.FilesSummary): TransferSummary {
  return { files: Number(files), bytes: Number(bytes), path };
}

function failureOf({ code, message }: boundary.Failure): OpenShellError {
  return new OpenShellError(codeOfStatus(code), message);
}

function lost(): OpenShellError {
  return new OpenShellError("unavailable", "the connection to the sandbox was lost before the transfer ended");
}
