import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { localVersion, tlsKeyHash } from "../boundary/index.ts";
import { createLogger } from "../common/log.ts";
import { boundary } from "../wire/index.ts";
import { Generation } from "./_harness.ts";
import type { Processes } from "./processes.ts";
import { Refused, Runtime } from "./runtime.ts";

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

describe("a hello whose call is over when it is judged", () => {
  it("takes nothing over: it is of an attempt that was given up, and came late", async () => {
    const { processes } = treeOf({ state: "S", endsBy: ["SIGTERM"] });
    const generation = await Generation.create();
    const identity = {
      sandboxId: generation.sandboxId,
      generationId: generation.id,
      generationKey: generation.publicKeyPem,
    };
    const runtime = new Runtime({ identity, processes, environment: {}, log, build: "test", graceMs: 200 });
    const { certPem } = await generation.supervisorCertificate();
    const sessionGrant = await generation.grant(1, certPem);
    const hello = create(boundary.SupervisorHelloSchema, {
      version: localVersion("test"),
      sessionGrant,
      instanceId: "one",
    });
    const holder = await runtime.admit(hello, tlsKeyHash(certPem), new AbortController().signal);
    if (holder instanceof Refused) throw new Error(`refused: ${JSON.stringify(holder.frame)}`);

    const call = new AbortController();
    const late = runtime.admit(hello, tlsKeyHash(certPem), call.signal);
    call.abort(new Error("the client went away"));
    await expect(late).rejects.toThrow("the client went away");

    holder.close();
    const said: unknown[] = [];
    for await (const { payload } of holder.frames) said.push(payload?.case);
    expect(said).toEqual(["hello"]);
  });
});
