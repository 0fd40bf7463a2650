/** `openshell sandbox upload|download`. */
import { realpath, stat } from "node:fs/promises";
import { basename, dirname, resolve } from "node:path";
import { download, services, treeBytes, upload } from "../../boundary/index.ts";
import { OpenShellError } from "../../common/errors.ts";
import { parseUpload } from "../arguments.ts";
import type { Connection } from "../connection.ts";
import type { CommandContext } from "../context.ts";
import { gitKeeps } from "../git-ignore.ts";
import { openRelay } from "../relay.ts";
import { oneLine, type Terminal, write } from "../terminal.ts";

export interface UploadChoice {
  /** Absolute, or relative to the sandbox's home. @default the home */
  readonly destination?: string | undefined;
  /** Leave out what git ignores, where the source is in a git work tree. */
  readonly gitIgnore: boolean;
}

export async function uploadFiles(
  context: CommandContext,
  sandbox: string,
  local: string,
  destination: string | undefined,
  options: Pick<UploadChoice, "gitIgnore">,
): Promise<void> {
  using connection = await context.connect();
  await uploadPath(context, connection, sandbox, local, { destination, ...options });
}

/**
 * An `--upload`, looked at before anything is made for it. A file whose own name has a colon is that file.
 * @throws not-found for a file that is not there, and whatever else would keep it from being uploaded
 */
export async function checkedUpload({ terminal }: CommandContext, text: string, gitIgnore: boolean) {
  const isWhole = await stat(text).then(
    () => true,
    () => false,
  );
  const upload = isWhole ? { local: text } : parseUpload(text);
  await stat(upload.local).catch((cause: Error) => {
    throw new OpenShellError("not-found", `--upload ${upload.local}: ${cause.message}`, { cause });
  });
  const { source, only } = await sourceOf(terminal, upload.local, gitIgnore);
  await treeBytes(source, only === undefined ? {} : { only });
  return upload;
}

/** Where a local path leads, and what of it is taken: all where git has no say. */
async function sourceOf({ env, signal }: Terminal, local: string, gitIgnore: boolean) {
  const named = resolve(local);
  // Followed here already: git is asked about what is uploaded, and the link is none of it. What is not there is told of by who reads it.
  const source = await realpath(named).catch(() => named);
  const only = gitIgnore ? await gitKeeps(source, env, signal) : undefined;
  return { named, source, only };
}

/** Uploads `local` into a directory of the sandbox. */
export async function uploadPath(
  context: CommandContext,
  { client }: Connection,
  sandbox: string,
  local: string,
  { destination = ".", gitIgnore }: UploadChoice,
): Promise<void> {
  const { terminal, progress } = context;
  const address = { workspace: context.workspace, sandbox, serviceId: services.files };
  try {
    const { named, source, only: keeps } = await sourceOf(terminal, local, gitIgnore);
    const name = basename(named) || "root";
    const ignored = new Set<string>();
    const only = (path: string) => {
      const kept = keeps?.(path) ?? true;
      if (!kept) ignored.add(path);
      return kept;
    };
    const channel = openRelay(client, address, terminal.signal);
    const progressOf = reporter(context, "uploading");
    const summary = await upload(channel, { source, name, destination, only, progress: progressOf });
    progress.clear();
    warnOfSkipped(context, summary.skipped);
    warnOfIgnored(context, ignored);
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
  try {
    const place = await placeOf(source, destination, sandbox);
    const channel = openRelay(connection.client, address, terminal.signal);
    const progressOf = reporter(context, "downloading");
    const summary = await download(channel, { source, ...place, progress: progressOf });
    progress.clear();
    warnOfSkipped(context, summary.skipped);
    const what = `${countText(summary.files)} (${sizeText(summary.bytes)})`;
    await write(terminal.stdout, `Downloaded ${what} to ${oneLine(summary.path)}.\n`);
  } finally {
    progress.clear();
  }
}

/**
 * Where a download goes, as `cp -r` would have it: into `destination` when that is a directory, else as `destination`. The name is always
 * ours: one that the sandbox chose could be .bashrc.
 */
async function placeOf(source: string, destination: string, sandbox: string) {
  const asked = basename(source);
  const own = asked === "" || asked === "." || asked === ".." ? sandbox : asked;
  const there = await stat(destination).catch(() => undefined);
  // As root it could be replaced, and what a link such as /dev/stdout names with it.
  if (there !== undefined && !there.isDirectory() && !there.isFile()) {
    throw new OpenShellError(
      "failed-precondition",
      `${destination} is a device, a pipe or a socket: a download goes into a file or a directory`,
    );
  }
  return there?.isDirectory() || destination.endsWith("/")
    ? { destination, name: own }
    : { destination: dirname(destination), name: basename(destination) };
}

/** Says how far a transfer is, at most ten times a second, and only on a terminal. */
function reporter({ terminal, progress }: CommandContext, verb: string): (bytes: number) => void {
  let reportedAt = 0;
  return (bytes) => {
    const now = performance.now();
    if (terminal.stderr.isTTY !== true || now - reportedAt < 100) return;
    reportedAt = now;
    progress.show(`${verb} ${sizeText(bytes)}`);
  };
}

function warnOfSkipped({ terminal }: CommandContext, skipped: readonly string[]): void {
  for (const one of skipped.slice(0, 10)) terminal.stderr.write(`openshell: left out ${oneLine(one)}\n`);
  if (skipped.length > 10) terminal.stderr.write(`openshell: left out ${skipped.length - 10} more\n`);
}

function warnOfIgnored({ terminal }: CommandContext, ignored: ReadonlySet<string>): void {
  if (ignored.size === 0) return;
  const [first = ""] = ignored;
  const others = ignored.size === 1 ? "" : ` and ${ignored.size - 1} more`;
  const what = `${oneLine(first)}${others}`;
  terminal.stderr.write(`openshell: left out ${what}, as git does; --no-git-ignore takes everything\n`);
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
