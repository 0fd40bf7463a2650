import { spawn } from "node:child_process";
import { createReadStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { OpenShellError } from "../../src/common/errors.ts";

export interface RunOptions {
  /** Added to this process's environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Standard input: text, or a file's content. @default empty */
  readonly input?: string | { readonly file: string };
  readonly signal?: AbortSignal;
  /** Milliseconds after which the command is killed. @default none */
  readonly timeoutMs?: number;
  /** What to do about a failure, appended to the message. */
  readonly remedy?: string;
  /** Gets each line of output as it comes, to show progress. */
  readonly onLine?: (line: string) => void;
}

/** What a command that may fail came to. */
export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Output kept of one stream; the rest is dropped from the front. */
const keptOutput = 16 * 1024 * 1024;

/**
 * Runs a command to its end and gives its standard output.
 *
 * @throws OpenShellError `failed-precondition` when it is not installed, `internal` when it failed: the message has the command as it can be
 *   pasted into a shell and the end of what it said.
 */
export async function run(command: string, args: readonly string[], options: RunOptions = {}): Promise<string> {
  const outcome = await attempt(command, args, options);
  if (outcome.code === 0) return outcome.stdout;
  const said = lastLines(outcome.stderr || outcome.stdout, 12);
  const remedy = options.remedy === undefined ? "" : `\n${options.remedy}`;
  throw new OpenShellError(
    "internal",
    `command failed (exit ${outcome.code}): ${pasteable(command, args, options)}\n${said}${remedy}`,
  );
}

/** Like {@link run}, but a non-zero exit is an answer, not an error. */
export async function attempt(command: string, args: readonly string[], options: RunOptions = {}): Promise<Outcome> {
  const signals = [
    options.signal,
    options.timeoutMs === undefined ? undefined : AbortSignal.timeout(options.timeoutMs),
  ];
  const signal = AbortSignal.any(signals.filter((given) => given !== undefined));
  signal.throwIfAborted();
  const child = spawn(command, args, {
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...process.env, ...options.env },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  });
  const ended = new Promise<number>((resolve, reject) => {
    child.once("error", (cause: NodeJS.ErrnoException) => {
      const missing = cause.code === "ENOENT";
      const message = missing ? `${command} is not installed` : `${command} could not be started: ${cause.message}`;
      reject(new OpenShellError(missing ? "failed-precondition" : "internal", message, { cause }));
    });
    child.once("close", (code, name) => resolve(code ?? (name === null ? 1 : 128 + 9)));
  });
  const kill = () => child.kill("SIGKILL");
  signal.addEventListener("abort", kill, { once: true });
  const stdout = collect(child.stdout, options.onLine);
  const stderr = collect(child.stderr, options.onLine);
  // A command may end without reading its input; its exit code says whether that was an error.
  child.stdin.on("error", () => {});
  if (typeof options.input === "object") pipeline(createReadStream(options.input.file), child.stdin).catch(kill);
  else child.stdin.end(options.input ?? "");
  try {
    const code = await ended;
    signal.throwIfAborted();
    return { code, stdout: stdout(), stderr: stderr() };
  } finally {
    signal.removeEventListener("abort", kill);
  }
}

function collect(stream: NodeJS.ReadableStream, onLine?: (line: string) => void): () => string {
  let text = "";
  let rest = "";
  stream.setEncoding("utf8");
  stream.on("data", (chunk: string) => {
    text = (text + chunk).slice(-keptOutput);
    if (onLine === undefined) return;
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) onLine(line);
  });
  return () => text;
}

/** How programs are run; tests record the calls. */
export interface Shell {
  run(command: string, args: readonly string[], options?: RunOptions): Promise<string>;
  attempt(command: string, args: readonly string[], options?: RunOptions): Promise<Outcome>;
}

export const processes: Shell = { run, attempt };

/** The command as a line that a shell runs. */
export function pasteable(
  command: string,
  args: readonly string[],
  options: Pick<RunOptions, "env" | "cwd"> = {},
): string {
  const env = Object.entries(options.env ?? {}).map(([name, value]) => `${name}=${quote(value)}`);
  const line = [...env, command, ...args].map((word, at) => (at < env.length ? word : quote(word))).join(" ");
  return options.cwd === undefined ? line : `cd ${quote(options.cwd)} && ${line}`;
}

function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

function lastLines(text: string, count: number): string {
  return text.trimEnd().split("\n").slice(-count).join("\n");
}
