import { expect, it, vi } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import type { Descriptor } from "./descriptor.ts";
import { showTerminal } from "./terminal-log.ts";

/** A terminal whose reads, counted from 1, are made by `read`. */
function terminal(read: (count: number) => AsyncGenerator<Uint8Array>) {
  const close = vi.fn();
  let reads = 0;
  const stdout: Pick<Descriptor, "read" | "finish" | "close"> = {
    read() {
      reads += 1;
      return read(reads);
    },
    finish() {},
    close,
  };
  return { stdout: stdout as Descriptor, close };
}

const encoder = new TextEncoder();
const cannotBeRead = () => Promise.reject<Uint8Array>(new OpenShellError("internal", "it cannot be watched"));

it("a terminal that cannot be read for a while is shown from where that was, and the log says so once", async () => {
  const { stdout, close } = terminal(async function* (count) {
    if (count === 1) yield encoder.encode("one\n");
    if (count < 4) yield await cannotBeRead();
    expect(close).not.toHaveBeenCalled();
    yield encoder.encode("two\n");
  });
  const error = vi.fn();
  let shown = "";
  const show = async (bytes: Uint8Array) => {
    shown += new TextDecoder().decode(bytes);
  };
  const exited = new Promise<number>(() => {});
  await showTerminal({ stdout, exited }, { error } as unknown as Logger, { show, retryMs: 1 });
  expect(shown).toBe("one\ntwo\n");
  expect(error).toHaveBeenCalledTimes(1);
  expect(close).toHaveBeenCalledTimes(1);
});

it("a terminal that cannot be read is given up when its process has ended", async () => {
  const { promise: exited, resolve: exit } = Promise.withResolvers<number>();
  const { stdout, close } = terminal(async function* (count) {
    expect(close).not.toHaveBeenCalled();
    if (count === 3) exit(0);
    yield await cannotBeRead();
  });
  await showTerminal({ stdout, exited }, { error() {} } as unknown as Logger, { retryMs: 1 });
  expect(close).toHaveBeenCalledTimes(1);
});
