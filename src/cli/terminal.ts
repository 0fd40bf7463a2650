import type { Readable, Writable } from "node:stream";
import pc from "picocolors";

/** The part of the process that a command sees; tests pass their own. */
export interface Terminal {
  readonly stdin: Readable & { isTTY?: boolean; setRawMode?: (raw: boolean) => unknown };
  readonly stdout: Writable & { isTTY?: boolean; columns?: number; rows?: number };
  readonly stderr: Writable & { isTTY?: boolean; columns?: number };
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Aborts on SIGINT, SIGTERM and SIGHUP, and when standard output cannot be written; an OpenShellError as its reason is to be told. */
  readonly signal: AbortSignal;
}

/**
 * Writes and waits until the reader has room, or is gone, which is for whoever listens to the stream's errors.
 * @param signal ends the wait for a reader that stalls
 */
export async function write(stream: Writable, data: string | Uint8Array, signal?: AbortSignal): Promise<void> {
  if (stream.write(data) || stream.destroyed || signal?.aborted) return;
  await new Promise<void>((resolve) => {
    const events = ["drain", "error", "close"] as const;
    const done = () => {
      for (const event of events) stream.off(event, done);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    for (const event of events) stream.on(event, done);
    signal?.addEventListener("abort", done);
  });
}

/** In milliseconds: what a reader that stalls gets after an interrupt. */
const lastWordMs = 200;

/** Resolves when all that was written to standard output is on its way, or cannot be; a reader that stalls is not waited for at an interrupt. */
export async function flushed({ stdout, signal }: Terminal): Promise<void> {
  await new Promise<void>((resolve) => {
    const giveUp = () => setTimeout(resolve, lastWordMs);
    if (signal.aborted) giveUp();
    else signal.addEventListener("abort", giveUp, { once: true });
    stdout.write("", () => resolve());
  });
}

/** Colours where a person looks: on a terminal, unless NO_COLOR is set (no-color.org) or TERM is dumb. */
export function coloursFor(stream: { isTTY?: boolean }, env: Terminal["env"]): ReturnType<typeof pc.createColors> {
  const wanted = stream.isTTY === true && !env.NO_COLOR && env.TERM !== "dumb";
  return pc.createColors(wanted);
}

/**
 * What others say: the gateway, or a sandbox, whose every word is the agent's. Without the control characters that could move a terminal's
 * cursor or write its clipboard, and without the line ends and turns of direction that could make it look like something else.
 */
export function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]+\s*/g, " ");
}

/** The same in one line, which shows that there is nothing to show. */
export function oneLine(text: string): string {
  return printable(text).trim() || "-";
}

/**
 * Says on standard error what a command waits for: one line that changes on a terminal, a line per change elsewhere.
 * Repeated texts are said once.
 */
export class ProgressLine {
  readonly #terminal: Terminal;
  #last = "";
  #shown = false;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
  }

  show(said: string): void {
    const text = oneLine(said);
    if (text === this.#last) return;
    this.#last = text;
    const { stderr, env } = this.#terminal;
    if (stderr.isTTY !== true) {
      stderr.write(`${text}\n`);
      return;
    }
    const room = Math.max(10, (stderr.columns ?? 80) - 1);
    const line = text.length > room ? `${text.slice(0, room - 1)}…` : text;
    stderr.write(`\r\x1b[2K${coloursFor(stderr, env).dim(line)}`);
    this.#shown = true;
  }

  /** Removes the changing line, so that what follows begins at the left. */
  clear(): void {
    if (this.#shown) this.#terminal.stderr.write("\r\x1b[2K");
    this.#shown = false;
  }
}
