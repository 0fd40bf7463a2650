/** `openshell sandbox upload|download`. */
import { services } from "../../boundary/index.ts";
import type { Connection } from "../connection.ts";
import type { CommandContext } from "../context.ts";
import { listForPacking, packed } from "../files/pack.ts";
import { openRelay } from "../files/relay.ts";
import { downloadTar, uploadTar } from "../files/transfer.ts";
import { unpackTo } from "../files/unpack.ts";
import { oneLine } from "../output.ts";
import { write } from "../terminal.ts";

export async function uploadFiles(
  context: CommandContext,
  sandbox: string,
  local: string,
  destination: string | undefined,
): Promise<void> {
  using connection = await context.connect();
  await uploadPath(context, connection, sandbox, local, destination);
}

/**
 * Uploads `local` into a directory of the sandbox.
 * @param destination absolute, or relative to the sandbox's home. @default the home
 */
export async function uploadPath(
  context: CommandContext,
  { client }: Connection,
  sandbox: string,
  local: string,
  destination = ".",
): Promise<void> {
  const { terminal, progress } = context;
  const list = await listForPacking(local);
  const address = { workspace: context.workspace, sandbox, serviceId: services.files };
  const channel = openRelay(client, address, terminal.signal);
  try {
    const sent = counted(
      packed(list),
      (bytes) => progress.show(`uploading ${sizeText(bytes)} of about ${sizeText(list.bytes)}`),
      terminal.stderr.isTTY,
    );
    const summary = await uploadTar(channel, destination, sent, list.bytes);
    progress.clear();
    warnOfSkipped(
      context,
      list.skipped.map((path) => `${path}: neither file, directory nor link`),
    );
    await write(
      terminal.stdout,
      `Uploaded ${countText(summary.files)} (${sizeText(summary.bytes)}) to ${oneLine(summary.path)} in ${oneLine(sandbox)}.\n`,
    );
  } finally {
    progress.clear();
  }
}

export async function downloadFiles(
  context: CommandContext,
  sandbox: string,
  source: string,
  destination = ".",
): Promise<void> {
  const { terminal, progress } = context;
  using connection = await context.connect();
  const address = { workspace: context.workspace, sandbox, serviceId: services.files };
  const download = downloadTar(openRelay(connection.client, address, terminal.signal), source);
  try {
    const received = counted(
      download.tar,
      (bytes) => progress.show(`downloading ${sizeText(bytes)}`),
      terminal.stderr.isTTY,
    );
    const { path, skipped } = await unpackTo(received, destination);
    progress.clear();
    warnOfSkipped(context, skipped);
    const { files, bytes } = download.summary();
    await write(terminal.stdout, `Downloaded ${countText(files)} (${sizeText(bytes)}) to ${oneLine(path)}.\n`);
  } finally {
    progress.clear();
  }
}

/** The same chunks; `report` hears of the bytes so far at most ten times a second, and only on a terminal. */
async function* counted(
  chunks: AsyncIterable<Uint8Array>,
  report: (bytes: number) => void,
  onTerminal: boolean | undefined,
): AsyncGenerator<Uint8Array, void, undefined> {
  let bytes = 0;
  let reportedAt = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    const now = performance.now();
    if (onTerminal && now - reportedAt > 100) {
      reportedAt = now;
      report(bytes);
    }
    yield chunk;
  }
}

function warnOfSkipped({ terminal }: CommandContext, skipped: readonly string[]): void {
  for (const one of skipped.slice(0, 10)) terminal.stderr.write(`openshell: left out ${oneLine(one)}\n`);
  if (skipped.length > 10) terminal.stderr.write(`openshell: left out ${skipped.length - 10} more\n`);
}

function countText(files: number): string {
  return files === 1 ? "1 file" : `${files} files`;
}

/** Bytes in the binary unit that leaves one to four digits. */
export function sizeText(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let amount = bytes;
  let unit = 0;
  while (amount >= 1024 && unit < units.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${unit === 0 || amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${units[unit]}`;
}
