import { readdirSync } from "node:fs";
import { rm, statfs } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type ByteChannel, bytesFields, cut, encodeBytesFrame, extractTree, packTree } from "../boundary/index.ts";
import { abortable } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { decodeFrames, encodeFrame } from "../common/frames.ts";
import type { Logger } from "../common/log.ts";
import { boundary, statusNumber } from "../wire/index.ts";

type Reply = NonNullable<MessageInitShape<typeof boundary.FilesReplySchema>["payload"]>;

export interface FilesOptions {
  readonly home: string;
  /** Called once it is known what is asked for; throws where nothing may be served. */
  readonly permit: () => void;
  /** Aborted when the channel is lost; an upload then takes away what it was making. */
  readonly signal: AbortSignal;
}

/** Lines of what a transfer left out, and their bytes: a summary is one frame, which holds 1 MiB. */
const maxSkipped = 1_000;
const maxSkippedBytes = 256 * 1024;

/** What an upload makes below its destination until it is whole, as `extractTree` names it. */
const unfinished = /^\.openshell-[0-9a-f]{12}$/;

/**
 * Takes away what uploads into `home` itself were making when an earlier run was killed; resolves when that is done, and does not reject.
 * What is made after this was called is none of it.
 */
export async function removeUnfinished(home: string, log: Logger): Promise<void> {
  try {
    const entries = readdirSync(home, { withFileTypes: true });
    for (const { name } of entries.filter((one) => one.isDirectory() && unfinished.test(one.name))) {
      await rm(join(home, name), { recursive: true, force: true });
      log.info({ name }, "what an upload left was removed");
    }
  } catch (error) {
    log.warn({ err: error }, "what uploads left cannot be removed");
  }
}

/** Serves one upload or download. Paths are the agent's to choose: this process has the agent's rights and no others. */
export async function serveFiles(channel: ByteChannel, { home, permit, signal }: FilesOptions): Promise<void> {
  const send = (payload: Reply) => channel.write(encodeFrame(boundary.FilesReplySchema, { payload }));
  try {
    const requests = decodeFrames(boundary.FilesRequestSchema, until(signal, channel.readable));
    const first = await requests.next();
    const request = first.done === true ? undefined : first.value.payload;
    permit();
    if (request?.case === "upload") {
      const destination = resolve(home, request.value.destination);
      await refuseTooLarge(destination, request.value.sizeHint);
      const summary = await extractTree(dataOf(requests), destination, { links: "any" });
      await send({ case: "summary", value: wireSummary(summary) });
    } else if (request?.case === "download") {
      const { stream, summary } = await packTree(resolve(home, request.value.source));
      for await (const chunk of cut(stream)) await channel.write(encodeBytesFrame(bytesFields.downloaded, chunk));
      await send({ case: "end", value: {} });
      await send({ case: "summary", value: wireSummary(summary()) });
    } else {
      throw new OpenShellError("invalid-argument", "the first message must be an upload or a download");
    }
  } catch (error) {
    const { code, message } = OpenShellError.from(error);
    await send({ case: "failure", value: { code: statusNumber(code), message } }).catch(() => {});
  } finally {
    channel.end();
  }
}

/** Says before the first byte what would otherwise be said after gigabytes. What replaced files would free is not counted. */
async function refuseTooLarge(destination: string, bytes: bigint | undefined): Promise<void> {
  if (bytes === undefined) return;
  const free = await freeBytes(destination);
  if (free === undefined || bytes <= free) return;
  throw new OpenShellError(
    "resource-exhausted",
    `the upload of ${mebibytes(bytes)} MiB cannot fit: ${mebibytes(free)} MiB are free at ${destination}`,
  );
}

/** Of the file system that `path` is or will be on; undefined when it cannot be told, and writing will tell. */
async function freeBytes(path: string): Promise<bigint | undefined> {
  for (let at = path; ; at = dirname(at)) {
    try {
      const { blocks, bavail, bsize } = await statfs(at, { bigint: true });
      // One without blocks, such as /proc, does not count what it has.
      return blocks === 0n ? undefined : bavail * bsize;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT" || at === dirname(at)) return undefined;
    }
  }
}

function mebibytes(bytes: bigint): string {
  return (Number(bytes) / 1024 ** 2).toFixed(1);
}

/** What comes; once the signal is aborted its reason is thrown, also while nothing comes. */
async function* until<T>(signal: AbortSignal, source: AsyncIterable<T>): AsyncGenerator<T, void, undefined> {
  const items = source[Symbol.asyncIterator]();
  for (;;) {
    signal.throwIfAborted();
    const next = await abortable(items.next(), signal);
    if (next.done === true) return;
    yield next.value;
  }
}

async function* dataOf(requests: AsyncIterable<boundary.FilesRequest>): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const { payload } of requests) {
    if (payload.case === "end") return;
    if (payload.case === "data") yield payload.value;
  }
  throw new OpenShellError("data-loss", "the upload ended before its end message");
}

function wireSummary(summary: Awaited<ReturnType<typeof extractTree>>) {
  return {
    files: BigInt(summary.files),
    bytes: BigInt(summary.bytes),
    path: summary.path,
    skipped: bounded(summary.skipped),
  };
}

/** As much of a list as fits into a summary; the rest is counted in a last line. */
function bounded(lines: readonly string[]): string[] {
  let bytes = 0;
  const cutAt = lines.findIndex((line, index) => {
    bytes += Buffer.byteLength(line);
    return bytes > maxSkippedBytes || index >= maxSkipped;
  });
  if (cutAt === -1) return [...lines];
  // One less than fits, for the line that counts.
  const kept = lines.slice(0, Math.min(cutAt, maxSkipped - 1));
  return [...kept, `and ${lines.length - kept.length} more`];
}
