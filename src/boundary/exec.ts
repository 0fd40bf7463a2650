import type { MessageInitShape } from "@bufbuild/protobuf";
import { OpenShellError } from "../common/errors.ts";
import { decodeFrames, encodeFrame } from "../common/frames.ts";
import { boundary, codeOfStatus } from "../wire/index.ts";
import { bytesFields, encodeBytesFrame } from "./bytes-frame.ts";
import type { ByteChannel } from "./channel.ts";
import { chunkBytes } from "./protocol.ts";

/** How an exec is started; see ExecStart in proto/boundary.proto. */
export interface ExecCommand {
  readonly command: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  /** Absolute, or relative to the sandbox's home. @default the home */
  readonly workdir?: string;
  readonly tty?: boolean;
  readonly columns?: number;
  readonly rows?: number;
  readonly noLoginShell?: boolean;
  /** Milliseconds until the process group is killed and the exit code is 124. @default none */
  readonly timeoutMs?: number;
}

export type ExecInputEvent =
  | { readonly kind: "stdin"; readonly data: Uint8Array }
  | { readonly kind: "resize"; readonly columns: number; readonly rows: number };

export type ExecOutputEvent =
  | { readonly kind: "stdout" | "stderr"; readonly data: Uint8Array }
  | { readonly kind: "exit"; readonly code: number };

/**
 * Runs a command over a channel of service `exec`. Yields its output and, last and exactly once, its exit code; leaving the loop early
 * kills it.
 * @param input what is typed; its end is the end of stdin. @default nothing
 * @throws what the runtime refused the exec with; unavailable when the channel ends before the exit code
 */
export async function* runExec(
  channel: ByteChannel,
  start: ExecCommand,
  input: AsyncIterable<ExecInputEvent> = nothing(),
): AsyncGenerator<ExecOutputEvent, void, undefined> {
  let finished = false;
  const send = (payload: InputPayload) => channel.write(encodeFrame(boundary.ExecInputSchema, { payload }));
  const typing = async () => {
    try {
      for await (const event of input) {
        if (finished) return;
        if (event.kind === "stdin") await sendBytes(channel, event.data);
        else await send({ case: "resize", value: { columns: event.columns, rows: event.rows } });
      }
      await send({ case: "stdinEnd", value: {} });
      channel.end();
    } catch (error) {
      // After the exit nobody waits for what is typed; before it, a lost typist ends the exec.
      if (!finished) channel.abort(error);
    }
  };

  try {
    await send({ case: "start", value: startMessage(start) });
    void typing();
    for await (const { payload } of decodeFrames(boundary.ExecOutputSchema, channel.readable)) {
      switch (payload.case) {
        case "stdout":
        case "stderr":
          yield { kind: payload.case, data: payload.value };
          break;
        case "exit":
          finished = true;
          yield { kind: "exit", code: payload.value.exitCode };
          return;
        case "failure":
          finished = true;
          throw new OpenShellError(codeOfStatus(payload.value.code), payload.value.message);
      }
    }
    throw new OpenShellError("unavailable", "the connection to the sandbox was lost before the command ended");
  } finally {
    if (!finished) channel.abort(new OpenShellError("cancelled", "the caller left the command"));
    finished = true;
    channel.end();
  }
}

type InputPayload = NonNullable<MessageInitShape<typeof boundary.ExecInputSchema>["payload"]>;

function startMessage(start: ExecCommand) {
  const { timeoutMs } = start;
  return {
    command: [...start.command],
    environment: { ...start.environment },
    workdir: start.workdir ?? "",
    tty: start.tty ?? false,
    columns: start.columns ?? 0,
    rows: start.rows ?? 0,
    noLoginShell: start.noLoginShell ?? false,
    ...(timeoutMs === undefined || timeoutMs <= 0
      ? {}
      : {
          timeout: { seconds: BigInt(Math.floor(timeoutMs / 1000)), nanos: Math.round(timeoutMs % 1000) * 1_000_000 },
        }),
  };
}

async function sendBytes(channel: ByteChannel, data: Uint8Array): Promise<void> {
  for (let start = 0; start < data.length; start += chunkBytes) {
    await channel.write(encodeBytesFrame(bytesFields.stdin, data.subarray(start, start + chunkBytes)));
  }
}

async function* nothing(): AsyncGenerator<never, void, undefined> {}
