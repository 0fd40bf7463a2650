import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { heartbeat } from "../boundary/index.ts";
import { Connection } from "./connection.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function connection() {
  const losses: string[] = [];
  const connected: Connection = new Connection(1, {
    beaten: () => {},
    lost: (why) => {
      losses.push(why);
      connected.close();
    },
  });
  return { connected, losses };
}

describe("a supervisor's connection", () => {
  it("beats, and is lost once when nothing was heard for three beats", () => {
    const { connected, losses } = connection();
    vi.advanceTimersByTime(heartbeat.lostAfterMs - 1);
    connected.heard();
    vi.advanceTimersByTime(heartbeat.lostAfterMs - 1);
    expect(losses).toEqual([]);
    vi.advanceTimersByTime(1);
    vi.advanceTimersByTime(heartbeat.lostAfterMs);
    expect(losses).toEqual(["it was silent for 6000 ms"]);
  });

  it("is not lost for silence while what it said waits to be read, as after this process stood still", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const { connected, losses } = connection();
    vi.advanceTimersByTime(heartbeat.lostAfterMs);
    connected.heard();
    await new Promise((resolve) => setImmediate(resolve));
    expect(losses).toEqual([]);
    vi.advanceTimersByTime(heartbeat.lostAfterMs);
    await new Promise((resolve) => setImmediate(resolve));
    expect(losses).toEqual(["it was silent for 6000 ms"]);
  });

  it("is lost when it takes nothing of what it is told, however often it is heard", () => {
    const { connected, losses } = connection();
    for (let sent = 0; sent < 10_000; sent += 1) {
      connected.heard();
      connected.send({ payload: { case: "heartbeat", value: { sequence: 1n } } });
    }
    expect(losses).toEqual(["it took none of 256 frames"]);
  });

  it("gives what was queued before its end, in order, and no more", async () => {
    const { connected } = connection();
    for (const sequence of [1n, 2n]) connected.send({ payload: { case: "heartbeat", value: { sequence } } });
    connected.close();
    connected.send({ payload: { case: "heartbeat", value: { sequence: 3n } } });
    const seen: unknown[] = [];
    for await (const { payload } of connected.frames) seen.push(payload);
    expect(seen).toMatchObject([{ value: { sequence: 1n } }, { value: { sequence: 2n } }]);
  });
});
