import type { MessageInitShape } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import {
  type ByteChannel,
  chunkBytes,
  type ExecCommand,
  type ExecInputEvent,
  type ExecOutputEvent,
  runExec,
} from "../../boundary/index.ts";
import { longestTimerMs } from "../../common/async.ts";
import { OpenShellError } from "../../common/errors.ts";
import type { openshell } from "../../wire/index.ts";
import { abortOnLeave } from "./leaving.ts";

type ExecEvent = MessageInitShape<typeof openshell.ExecSandboxEventSchema>;

/** Exit code of a command that ran out of time, as timeout(1) has it. */
const timedOut = 124;
/** How much later than the runtime the gateway gives up on a command itself, in milliseconds. */
export const graceMs = 10_000;

/** The runtime's word for a request; its stdin travels as input. */
export function commandOf(request: openshell.ExecSandboxRequest): ExecCommand {
  const timeoutMs = request.executionTimeout === undefined ? 0 : durationMs(request.executionTimeout);
  return {
    command: request.command,
    environment: request.environment,
    workdir: request.workdir,
    tty: request.tty,
    columns: request.cols,
    rows: request.rows,
    noLoginShell: request.noLoginShell,
    ...(timeoutMs > 0 ? { timeoutMs } : {}),
  };
}

/**
 * Runs a command over an open exec channel: its output in pieces of at most 64 KiB, then its exit code, exactly once and last.
 * @throws unavailable when the channel is lost before the exit code; what the runtime refused the command with
 */
export async function* execEvents(
  channel: ByteChannel,
  command: ExecCommand,
  input: AsyncIterable<ExecInputEvent>,
  signal: AbortSignal,
): AsyncGenerator<ExecEvent, void, undefined> {
  let late = false;
  const giveUp = () => {
    late = true;
    channel.abort(new OpenShellError("deadline-exceeded", "the command ran out of time"));
  };
  const { timeoutMs } = command;
  const timer = timeoutMs === undefined ? undefined : setTimeout(giveUp, Math.min(timeoutMs + graceMs, longestTimerMs));
  using _leaving = abortOnLeave(channel, signal);
  try {
    for await (const event of runExec(channel, command, input)) yield* eventsOf(event);
  } catch (error) {
    if (!late) throw error;
    yield { payload: { case: "exit", value: { exitCode: timedOut } } };
  } finally {
    clearTimeout(timer);
  }
}

function* eventsOf(event: ExecOutputEvent): Generator<ExecEvent, void, undefined> {
  if (event.kind === "exit") {
    yield { payload: { case: "exit", value: { exitCode: event.code } } };
    return;
  }
  for (let start = 0; start < event.data.length; start += chunkBytes) {
    yield { payload: { case: event.kind, value: { data: event.data.subarray(start, start + chunkBytes) } } };
  }
}
