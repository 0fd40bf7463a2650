import { sleep } from "../common/async.ts";
import type { Logger } from "../common/log.ts";
import type { Child } from "./processes.ts";

export interface TerminalLogOptions {
  /** Writes to the log, and returns when that takes more. @default this program's standard output */
  readonly show?: (bytes: Uint8Array) => Promise<void>;
  /** Between a read that failed and the next. @default 1_000 */
  readonly retryMs?: number;
}

/**
 * A main process with a terminal writes to the container's log all the same. What cannot be read, as where the node has no place left to
 * watch one more descriptor, is tried again, and waits so long: a terminal that nobody reads holds its program up.
 * Resolves when there is no more to show.
 */
export async function showTerminal(
  child: Pick<Child, "stdout" | "exited">,
  log: Logger,
  { show = toStandardOutput, retryMs = 1_000 }: TerminalLogOptions = {},
): Promise<void> {
  const { stdout, exited } = child;
  let hasEnded = false;
  let isTold = false;
  void exited.then(() => {
    hasEnded = true;
    stdout?.finish();
  });
  for (let isRead = false; !isRead; ) {
    try {
      for await (const chunk of stdout?.read() ?? []) await show(chunk);
      isRead = true;
    } catch (error) {
      if (!isTold) log.error({ err: error }, "the main process's terminal cannot be read; it is tried again");
      isTold = true;
      if (hasEnded) break;
      await sleep(retryMs);
    }
  }
  stdout?.close();
}

async function toStandardOutput(bytes: Uint8Array): Promise<void> {
  if (!process.stdout.write(bytes)) await new Promise((resolve) => process.stdout.once("drain", resolve));
}
