import { create } from "@bufbuild/protobuf";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createLogger } from "../common/log.ts";
import { boundary } from "../wire/index.ts";
import { MainProcess } from "./main-process.ts";
import type { Child, NotStarted } from "./processes.ts";

const { MainProcessStatus_State: State, RestartPolicy } = boundary;
const log = createLogger({ name: "test", level: "error" });

/** Programs that end when the test says so, and start with `begun`. */
function harness(first?: NotStarted, begun: Child["started"] = Promise.resolve(undefined)) {
  const runs: ((code: number) => void)[] = [];
  const start = (): Child | NotStarted => {
    if (first !== undefined) return first;
    const { promise, resolve } = Promise.withResolvers<number>();
    runs.push(resolve);
    const streams = { stdin: undefined, stdout: undefined, stderr: undefined };
    return { pid: runs.length, ...streams, started: begun, exited: promise };
  };
  const cleared: number[] = [];
  const main = new MainProcess({ start, clear: (pid) => cleared.push(pid), log, random: () => 1 });
  const end = async (code: number) => {
    runs.at(-1)?.(code);
    await vi.advanceTimersByTimeAsync(0);
  };
  return { main, runs, end, cleared };
}

function launch(restartPolicy: boundary.RestartPolicy, command = ["agent"]) {
  return create(boundary.LaunchSchema, { command, restartPolicy });
}

describe("the main process", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it("has not started before its program runs, however long the disk needs for that", async () => {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const { main, runs } = harness(undefined, promise);
    main.launch(launch(RestartPolicy.NEVER));
    main.allow(true);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(runs).toHaveLength(1);
    expect(main.status.state).toBe(State.WAITING);
    main.allow(true);
    resolve(undefined);
    await vi.advanceTimersByTimeAsync(0);
    expect(runs).toHaveLength(1);
    expect(main.status.state).toBe(State.RUNNING);
  });

  it("waits until it is allowed, starts once, and keeps its exit code", async () => {
    const { main, runs, end } = harness();
    main.launch(launch(RestartPolicy.NEVER));
    expect(runs).toHaveLength(0);
    main.allow(true);
    main.launch(launch(RestartPolicy.ALWAYS));
    main.allow(true);
    expect(runs).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(0);
    expect(main.status.state).toBe(State.RUNNING);
    await end(3);
    expect(main.status).toMatchObject({ state: State.EXITED, exitCode: 3 });
    expect(main.isFinal).toBe(true);
  });

  it("idles without a command", () => {
    const { main, runs } = harness();
    main.allow(true);
    main.launch(launch(RestartPolicy.ALWAYS, []));
    expect(main.status.state).toBe(State.IDLE);
    expect(runs).toHaveLength(0);
  });

  it.each([
    [RestartPolicy.NEVER, 1, false],
    [RestartPolicy.UNSPECIFIED, 1, false],
    [RestartPolicy.ON_FAILURE, 0, false],
    [RestartPolicy.ON_FAILURE, 1, true],
    [RestartPolicy.ALWAYS, 0, true],
  ])("with policy %i is, after exit code %i, restarted: %s", async (policy, code, restarted) => {
    const { main, runs, end } = harness();
    main.allow(true);
    main.launch(launch(policy));
    await end(code);
    expect(main.status.state).toBe(restarted ? State.RESTARTING : State.EXITED);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(runs).toHaveLength(restarted ? 2 : 1);
  });

  it("restarts more slowly after each failure, at least once a minute, and quickly again after a healthy run", async () => {
    const { main, runs, end } = harness();
    main.allow(true);
    main.launch(launch(RestartPolicy.ALWAYS));
    for (const delay of [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]) {
      await end(1);
      const before = runs.length;
      await vi.advanceTimersByTimeAsync(delay - 1);
      expect(runs).toHaveLength(before);
      await vi.advanceTimersByTimeAsync(1);
      expect(runs).toHaveLength(before + 1);
    }
    await vi.advanceTimersByTimeAsync(60_000);
    await end(1);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(main.status).toMatchObject({ state: State.RUNNING, restartCount: 9 });
  });

  it("counts a run as healthy by the time that passed, whatever the clock on the wall was set to", async () => {
    const { main, runs, end } = harness();
    main.allow(true);
    main.launch(launch(RestartPolicy.ALWAYS));
    for (const delay of [1_000, 2_000, 4_000]) {
      await vi.advanceTimersByTimeAsync(0);
      vi.setSystemTime(Date.now() + 3_600_000);
      await end(1);
      const before = runs.length;
      await vi.advanceTimersByTimeAsync(delay - 1);
      expect(runs).toHaveLength(before);
      await vi.advanceTimersByTimeAsync(1);
    }
    await vi.advanceTimersByTimeAsync(60_000);
    vi.setSystemTime(Date.now() - 3_600_000);
    await end(1);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(main.status).toMatchObject({ state: State.RUNNING, restartCount: 4 });
  });

  it("that another run follows leaves none of its processes to that", async () => {
    const { main, end, cleared } = harness();
    main.allow(true);
    main.launch(launch(RestartPolicy.ON_FAILURE));
    await end(1);
    expect(cleared).toEqual([1]);
    await vi.advanceTimersByTimeAsync(1_000);
    await end(0);
    expect(cleared).toEqual([1]);
  });

  it("is not restarted while it is not allowed, but right after", async () => {
    const { main, runs, end } = harness();
    main.allow(true);
    main.launch(launch(RestartPolicy.ALWAYS));
    main.allow(false);
    await end(1);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(runs).toHaveLength(1);
    main.allow(true);
    expect(runs).toHaveLength(2);
  });

  it.each(["at once", "later"])("that cannot be started says why, %s", async (when) => {
    const reason: NotStarted = { notStarted: true, exitCode: 127, message: "agent: No such file or directory" };
    const { main } = when === "at once" ? harness(reason) : harness(undefined, Promise.resolve(reason));
    main.allow(true);
    main.launch(launch(RestartPolicy.NEVER));
    await vi.advanceTimersByTimeAsync(0);
    expect(main.status).toMatchObject({
      state: State.FAILED_TO_START,
      exitCode: 127,
      message: "agent: No such file or directory",
    });
  });

  it.each([
    ["between two runs", RestartPolicy.ALWAYS, true],
    ["in a run that then ends well", RestartPolicy.NEVER, false],
    ["in a run that its policy would repeat", RestartPolicy.ALWAYS, false],
  ])("that is stopped %s has no exit of its own, and does not run again", async (_when, policy, between) => {
    const { main, runs, end } = harness();
    main.allow(true);
    main.launch(launch(policy));
    if (between) await end(0);
    main.stop();
    if (!between) await end(0);
    expect(main.isFinal).toBe(false);
    expect(vi.getTimerCount()).toBe(0);
    expect(runs).toHaveLength(1);
  });

  it("keeps the exit that it had before it was stopped", async () => {
    const { main, end } = harness();
    main.allow(true);
    main.launch(launch(RestartPolicy.NEVER));
    await end(0);
    main.stop();
    expect(main.isFinal).toBe(true);
    expect(main.status).toMatchObject({ state: State.EXITED, exitCode: 0 });
  });
});
