import { describe, expect, it } from "vitest";
import { createLogger } from "../common/log.ts";
import type { Processes } from "./processes.ts";
import { Runtime } from "./runtime.ts";

const log = createLogger({ name: "test", level: "error" });

/** A tree of one process that ends by some signals only. */
function treeOf(process: { state: string; endsBy: readonly NodeJS.Signals[] }) {
  const signals: NodeJS.Signals[] = [];
  let alive = true;
  const act = (signal: NodeJS.Signals): boolean => {
    signals.push(signal);
    if (signal === "SIGCONT") process.state = "S";
    // A stopped process acts on what it was sent once it is continued.
    const due = process.state === "T" ? ["SIGKILL"] : signals;
    if (due.some((one) => process.endsBy.some((ends) => ends === one))) alive = false;
    return alive;
  };
  const entry = () => ({ pid: 10, parent: 1, group: 10, session: 10, started: "1", state: process.state });
  const processes = {
    tryList: () => (alive ? [entry()] : []),
    signal: (_pid: number, signal: NodeJS.Signals) => act(signal),
    signalAll: (signal: NodeJS.Signals) => void act(signal),
    reap: () => {},
  };
  return { processes: processes as unknown as Processes, signals };
}

async function terminated(process: { state: string; endsBy: readonly NodeJS.Signals[] }, graceMs: number) {
  const { processes, signals } = treeOf(process);
  const identity = { sandboxId: "s", generationId: "g", generationKey: "" };
  const runtime = new Runtime({ identity, processes, environment: {}, log, build: "test", graceMs });
  const startedAt = performance.now();
  await runtime.terminate("test");
  return { ms: performance.now() - startedAt, code: await runtime.ended, signals };
}

describe("the end of the runtime", () => {
  it("does not wait for the grace period when the tree goes at once", async () => {
    const { ms, signals, code } = await terminated({ state: "S", endsBy: ["SIGTERM"] }, 20_000);
    expect(signals[0]).toBe("SIGTERM");
    expect(ms).toBeLessThan(5_000);
    expect(code).toBe(128 + 15);
  });

  it("continues what was stopped by its own user, so that it sees its TERM", async () => {
    const { ms, signals } = await terminated({ state: "T", endsBy: ["SIGTERM"] }, 20_000);
    expect(signals).toContain("SIGCONT");
    expect(ms).toBeLessThan(5_000);
  });

  it("kills after the grace period what ignores TERM", async () => {
    const { ms, signals } = await terminated({ state: "S", endsBy: ["SIGKILL"] }, 200);
    expect(signals.at(-1)).toBe("SIGKILL");
    expect(ms).toBeGreaterThanOrEqual(200);
    expect(ms).toBeLessThan(1_700);
  });

  it("is there 1.5 s after the grace period at the latest, also when a killed process does not go", async () => {
    const { ms } = await terminated({ state: "D", endsBy: [] }, 200);
    expect(ms).toBeGreaterThanOrEqual(1_700);
    expect(ms).toBeLessThan(2_500);
  });
});
