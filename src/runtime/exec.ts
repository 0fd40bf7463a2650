import { durationMs } from "@bufbuild/protobuf/wkt";
import { type ByteChannel, bytesFields, encodeBytesFrame } from "../boundary/index.ts";
import { AsyncQueue, longestTimerMs } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { decodeFrames, encodeFrame } from "../common/frames.ts";
import { boundary, statusNumber } from "../wire/index.ts";
import { resolveCommand } from "./command.ts";
import type { Descriptor } from "./descriptor.ts";
import type { Environment } from "./environment.ts";
import type { HangUps } from "./hang-ups.ts";
import { type Child, isNotStarted, type NotStarted, type Processes } from "./processes.ts";

export interface ExecOptions {
  readonly processes: Pick<Processes, "spawn" | "signalSession">;
  readonly hangUps: Pick<HangUps, "add">;
  /** What a command's own environment is laid over. */
  readonly environment: Environment;
  /** Called right before the program starts, which may be long after the channel was opened; throws where none may start. */
  readonly permit: () => void;
  /** Aborted when the channel is lost; what the exec started is hung up on then. */
  readonly signal: AbortSignal;
}

/** As coreutils' timeout has it. */
const timedOut = 124;
/** Pieces of input, of 64 KiB at most as our clients send them, that wait for their program. */
const maxWaitingInputs = 8;
/** Among them, where the input ends. */
const endOfInput = new Uint8Array(0);
const endOfTransmission = 0x04;
const newline = 0x0a;

/** Runs the exec that a channel asks for; errors become its Failure message. */
export async function serveExec(channel: ByteChannel, options: ExecOptions): Promise<void> {
  const send = (payload: OutputPayload) => channel.write(encodeFrame(boundary.ExecOutputSchema, { payload }));
  try {
    const inputs = decodeFrames(boundary.ExecInputSchema, channel.readable);
    const first = await inputs.next();
    if (first.done === true || first.value.payload.case !== "start") {
      throw new OpenShellError("invalid-argument", "the first message of an exec must be its start");
    }
    await run(first.value.payload.value, inputs, { channel, send }, options);
  } catch (error) {
    const { code, message } = OpenShellError.from(error);
    await send({ case: "failure", value: { code: statusNumber(code), message } }).catch(() => {});
  } finally {
    channel.end();
  }
}

type OutputPayload =
  | { case: "stderr"; value: Uint8Array }
  | { case: "exit"; value: { exitCode: number } }
  | { case: "failure"; value: { code: number; message: string } };

interface Output {
  readonly channel: ByteChannel;
  readonly send: (payload: OutputPayload) => Promise<void>;
}

async function run(
  start: boundary.ExecStart,
  inputs: AsyncIterable<boundary.ExecInput>,
  output: Output,
  options: ExecOptions,
): Promise<void> {
  const { send } = output;
  const terminal: Record<string, string> = start.tty ? { TERM: "xterm-256color" } : {};
  const command = resolveCommand(
    {
      command: start.command,
      environment: start.environment,
      workdir: start.workdir,
      noLoginShell: start.noLoginShell,
    },
    { ...options.environment, ...terminal },
  );
  options.permit();
  const child = options.processes.spawn({
    ...command,
    stdio: start.tty ? "terminal" : "pipes",
    columns: start.columns,
    rows: start.rows,
  });
  if (isNotStarted(child)) await refuse(child, send);
  else await attend(child, start, inputs, output, options);
}

async function refuse({ message, exitCode }: NotStarted, send: Output["send"]): Promise<void> {
  await send({ case: "stderr", value: new TextEncoder().encode(`${message}\n`) });
  await send({ case: "exit", value: { exitCode } });
}

/** From the start of a child to its exit message. */
async function attend(
  child: Child,
  start: boundary.ExecStart,
  inputs: AsyncIterable<boundary.ExecInput>,
  { channel, send }: Output,
  options: ExecOptions,
): Promise<void> {
  const { processes, hangUps, signal } = options;
  let late = false;
  const timeoutMs = start.timeout === undefined ? 0 : durationMs(start.timeout);
  const timer = timeoutMs > 0 ? setTimeout(onTimeout, Math.min(timeoutMs, longestTimerMs)) : undefined;
  function onTimeout() {
    late = true;
    processes.signalSession(child.pid, "SIGKILL");
  }
  const onLost = () => hangUps.add(child.pid);
  if (signal.aborted) onLost();
  else signal.addEventListener("abort", onLost, { once: true });

  let runs = true;
  const copies = Promise.all([copy(child.stdout, "stdout", channel), copy(child.stderr, "stderr", channel)]);
  // Output that is not read would hold it up, or end it as if its reader had left; what it says then is no answer.
  copies.catch(() => {
    if (runs) processes.signalSession(child.pid, "SIGKILL");
  });
  void feed(child, start.tty, inputs);
  try {
    const failure = await child.started;
    if (failure !== undefined) {
      await refuse(failure, send);
      return;
    }
    const code = await child.exited;
    runs = false;
    clearTimeout(timer);
    // Its pid may be another's soon, and what it left in the background was left with its consent.
    signal.removeEventListener("abort", onLost);
    child.stdout?.finish();
    child.stderr?.finish();
    await copies;
    await send({ case: "exit", value: { exitCode: late ? timedOut : code } });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onLost);
    for (const one of [child.stdin, child.stdout, child.stderr]) one?.close();
  }
}

/** Output goes out as fast as it is taken; when nobody takes it any more it is drained no further. @throws where it cannot be read */
async function copy(source: Descriptor | undefined, name: "stdout" | "stderr", channel: ByteChannel): Promise<void> {
  if (source === undefined) return;
  for await (const frame of source.read((bytes) => encodeBytesFrame(bytesFields[name], bytes))) {
    try {
      await channel.write(frame);
    } catch {
      // The channel is gone, and with it whoever wanted the output; `signal` ends the process.
      source.close();
      return;
    }
  }
}

/** Input that waits for a program which does not read it holds up what comes after it, but not a change of the terminal's size. */
async function feed(child: Child, tty: boolean, inputs: AsyncIterable<boundary.ExecInput>): Promise<void> {
  const waiting = new AsyncQueue<Uint8Array>(maxWaitingInputs);
  void write(child, tty, waiting);
  try {
    for await (const { payload } of inputs) {
      if (payload.case === "stdin" && payload.value.length > 0) await waiting.push(payload.value);
      else if (payload.case === "resize" && tty) child.stdout?.resize(payload.value.columns, payload.value.rows);
      else if (payload.case === "stdinEnd") await waiting.push(endOfInput);
    }
  } catch {
    // The channel was lost or spoke nonsense; `signal` ends the process in the first case, end of input serves the second.
  } finally {
    waiting.end();
  }
}

async function write(child: Child, tty: boolean, input: AsyncIterable<Uint8Array>): Promise<void> {
  let last = newline;
  try {
    // Before, a terminal has no session yet: its Ctrl-C would be for nobody.
    await child.started;
    for await (const bytes of input) {
      if (bytes === endOfInput) await endInput(child, tty, last);
      // A program that does not read its input any more is not an error; what follows is dropped.
      else await child.stdin?.write(bytes);
      last = bytes.at(-1) ?? newline;
    }
  } catch {
    // It cannot be waited for, which leaves the program without the rest of its input.
  } finally {
    if (!tty) child.stdin?.close();
  }
}

/** A terminal cannot be half closed: its reader sees the end by the control character, twice when a line is unfinished. */
async function endInput(child: Child, tty: boolean, last: number): Promise<void> {
  if (!tty) child.stdin?.close();
  else await child.stdin?.write(new Uint8Array(last === newline ? 1 : 2).fill(endOfTransmission));
}
