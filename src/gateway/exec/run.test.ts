import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type ByteChannel, channelPair } from "../../boundary/index.ts";
import { decodeFrames, encodeFrame } from "../../common/frames.ts";
import { boundary } from "../../wire/index.ts";
import { execEvents, graceMs } from "./run.ts";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
});
afterEach(() => {
  vi.useRealTimers();
});

async function* nothing() {}

/** Runs a command; its events, as they come. */
function run(channel: ByteChannel, signal = new AbortController().signal, timeoutMs = 1_000) {
  return execEvents(channel, { command: ["work"], timeoutMs }, nothing(), signal);
}

/** The runtime's side up to the moment when the command runs. */
async function started(channel: ByteChannel, seconds = 1n): Promise<void> {
  for await (const { payload } of decodeFrames(boundary.ExecInputSchema, channel.readable)) {
    if (payload.case === "start") expect(payload.value.timeout).toMatchObject({ seconds });
    if (payload.case === "stdinEnd") return;
  }
}

describe("a command with a timeout", () => {
  it("whose runtime never answers exits with 124 after the timeout and the runtime's grace", async () => {
    const [near, far] = channelPair();
    const events = run(near);
    const first = events.next();
    await started(far);
    await vi.advanceTimersByTimeAsync(1_000 + graceMs - 1);
    let settled = false;
    void first.then(() => {
      settled = true;
    });
    await vi.advanceTimersByTimeAsync(0);
    expect(settled).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect((await first).value).toMatchObject({ payload: { case: "exit", value: { exitCode: 124 } } });
    expect((await events.next()).done).toBe(true);
    await expect(far.write(Buffer.from("late"))).rejects.toThrow();
    expect(vi.getTimerCount()).toBe(0);
  });

  it("of a month is not out of time at once", async () => {
    const [near, far] = channelPair();
    const seconds = 30 * 24 * 3600;
    const events = run(near, new AbortController().signal, seconds * 1000);
    const first = events.next();
    await started(far, BigInt(seconds));
    await vi.advanceTimersByTimeAsync(60_000);
    await far.write(encodeFrame(boundary.ExecOutputSchema, { payload: { case: "exit", value: { exitCode: 7 } } }));
    expect((await first).value).toMatchObject({ payload: { case: "exit", value: { exitCode: 7 } } });
    expect((await events.next()).done).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("keeps the exit code that the runtime gives", async () => {
    const [near, far] = channelPair();
    const events = run(near);
    const first = events.next();
    await started(far);
    await far.write(encodeFrame(boundary.ExecOutputSchema, { payload: { case: "exit", value: { exitCode: 7 } } }));
    expect((await first).value).toMatchObject({ payload: { case: "exit", value: { exitCode: 7 } } });
    expect((await events.next()).done).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("is no exit at all when the client leaves", async () => {
    const [near, far] = channelPair();
    const leave = new AbortController();
    const first = run(near, leave.signal).next();
    await started(far);
    leave.abort();
    await expect(first).rejects.toMatchObject({ code: "cancelled" });
    expect(vi.getTimerCount()).toBe(0);
  });
});
