/** `openshell sandbox exec`: a command in a sandbox, its streams ours, its exit code ours. */
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { AsyncQueue } from "../../common/async.ts";
import { OpenShellError } from "../../common/errors.ts";
import type { openshell } from "../../wire/index.ts";
import { parsePairs, parseSeconds } from "../arguments.ts";
import type { CommandContext } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";
import { type Terminal, write } from "../terminal.ts";

export interface ExecOptions {
  readonly workdir?: string;
  /** Seconds; 0 for none. @default 0 */
  readonly timeout?: string;
  /** @default true when stdin and stdout are terminals */
  readonly tty?: boolean;
  readonly env?: readonly string[];
  /** False with --no-login-shell. */
  readonly loginShell: boolean;
}

/** @returns the command's exit code */
export async function execInSandbox(
  context: CommandContext,
  sandbox: string,
  command: readonly string[],
  options: ExecOptions,
): Promise<number> {
  const { terminal } = context;
  if (command.length === 0) {
    throw new OpenShellError(
      "invalid-argument",
      `what should run in ${sandbox}? Write it after --, as in: openshell sandbox exec ${sandbox} -- ls -l`,
    );
  }
  const tty = options.tty ?? (terminal.stdin.isTTY === true && terminal.stdout.isTTY === true);
  if (tty && terminal.stdin.isTTY !== true) {
    throw new OpenShellError(
      "invalid-argument",
      "--tty needs a terminal as standard input; leave it out, or write --no-tty",
    );
  }
  const timeoutMs = parseSeconds("--timeout", options.timeout ?? "0");
  const request = {
    workspaceScope: context.workspaceScope,
    sandbox,
    command: [...command],
    workdir: options.workdir ?? "",
    environment: parsePairs("--env", options.env),
    tty,
    ...(tty ? { cols: terminal.stdout.columns ?? 80, rows: terminal.stdout.rows ?? 24 } : {}),
    noLoginShell: !options.loginShell,
    ...(timeoutMs === undefined ? {} : { executionTimeout: durationFromMs(timeoutMs) }),
  };
  using connection = await context.connect();
  const stop = new AbortController();
  const signal = AbortSignal.any([terminal.signal, stop.signal]);
  const hearing = unansweredInterrupt(stop);
  try {
    // A terminal that is not handed over has no end: its standard input stays here.
    if (!tty && terminal.stdin.isTTY === true) {
      return await exitCodeIn(connection.client.execSandbox(request, { signal }), terminal);
    }
    // As long as nobody is there to have the keyboard, Ctrl-C is a signal.
    if (tty) await connection.spoken(signal);
    using _keyboard = tty ? rawMode(terminal) : undefined;
    const input = () => inputOf(terminal, tty, signal, hearing.typed);
    // What is piped is left to others until there is a use for it.
    const keyboard = tty ? input() : undefined;
    async function* requests() {
      yield { payload: { case: "start" as const, value: request } };
      yield* keyboard ?? input();
    }
    const events = connection.client.execSandboxInteractive(requests(), { signal });
    return await exitCodeIn(tty ? hearing.answers(events) : events, terminal);
  } catch (error) {
    if (stop.signal.aborted) return exitCodes.interrupted;
    throw error;
  } finally {
    stop.abort();
  }
}

const ctrlC = 3;
/** A terminal in the sandbox shows a Ctrl-C, or the command ends by it, in a round trip. */
const unansweredMs = 1_000;

/**
 * Ctrl-C of a keyboard that is handed over is for the command in the sandbox. Until something has come from there nobody may be there to
 * hear it: one that stays without an answer aborts `stop`.
 */
function unansweredInterrupt(stop: AbortController) {
  let answered = false;
  let waiting: NodeJS.Timeout | undefined;
  return {
    typed(keys: Uint8Array) {
      if (answered || !keys.includes(ctrlC)) return;
      waiting ??= setTimeout(() => stop.abort(), unansweredMs);
    },
    async *answers<T>(events: AsyncIterable<T>): AsyncGenerator<T, void, undefined> {
      try {
        for await (const event of events) {
          answered = true;
          clearTimeout(waiting);
          yield event;
        }
      } finally {
        clearTimeout(waiting);
      }
    },
  };
}

async function exitCodeIn(events: AsyncIterable<openshell.ExecSandboxEvent>, terminal: Terminal): Promise<number> {
  let code: number | undefined;
  try {
    for await (const { payload } of events) {
      if (payload.case === "stdout") await write(terminal.stdout, payload.value.data, terminal.signal);
      else if (payload.case === "stderr") await write(terminal.stderr, payload.value.data, terminal.signal);
      else if (payload.case === "exit") code = payload.value.exitCode;
    }
  } catch (error) {
    // The exit is said last: what becomes of the connection after it changes nothing.
    if (code === undefined) throw error;
  }
  if (code !== undefined) return code;
  throw new OpenShellError("unavailable", "the connection to the sandbox was lost before the command ended");
}

type InputMessage =
  | { payload: { case: "stdin"; value: Uint8Array } }
  | { payload: { case: "resize"; value: { cols: number; rows: number } } };

/**
 * What is typed or piped from now on, and changes of the window; ends with standard input, and at the signal. A keyboard is read so far
 * ahead that Ctrl-C is heard behind what was typed before it.
 */
function inputOf(
  terminal: Terminal,
  tty: boolean,
  signal: AbortSignal,
  typed: (keys: Uint8Array) => void,
): AsyncIterable<InputMessage> {
  const queue = new AsyncQueue<InputMessage>(tty ? 1_000 : 4);
  const resized = () => {
    const { columns = 80, rows = 24 } = terminal.stdout;
    queue.offer({ payload: { case: "resize", value: { cols: columns, rows } } });
  };
  const leave = () => {
    queue.end();
    terminal.stdout.off("resize", resized);
  };
  const reading = async () => {
    for await (const chunk of terminal.stdin) {
      const value = typeof chunk === "string" ? Buffer.from(chunk) : (chunk as Uint8Array);
      if (tty) typed(value);
      if (!(await queue.push({ payload: { case: "stdin", value } }))) return;
    }
    queue.end();
  };
  signal.addEventListener("abort", leave, { once: true });
  if (tty) terminal.stdout.on("resize", resized);
  reading().catch((error: unknown) => queue.end(error));
  return queue;
}

/** Hands every key to the sandbox, Ctrl-C too; undone when disposed, and when the process exits some other way. */
function rawMode({ stdin }: Terminal): Disposable {
  const restore = () => {
    stdin.setRawMode?.(false);
    process.off("exit", restore);
  };
  stdin.setRawMode?.(true);
  process.on("exit", restore);
  return { [Symbol.dispose]: restore };
}
