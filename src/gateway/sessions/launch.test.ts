import { create } from "@bufbuild/protobuf";
import { pino } from "pino";
import { expect, test } from "vitest";
import type { BackoffOptions } from "../../common/async.ts";
import { OpenShellError } from "../../common/errors.ts";
import { encodeFrame } from "../../common/frames.ts";
import { boundary, openshell } from "../../wire/index.ts";
import type { Sandboxes } from "../sandbox/sandboxes.ts";
import { runLaunch } from "./launch.ts";
import type { RelayBroker } from "./relay-broker.ts";

/** Launches over relays that each live `livesMs` by the launch's clock and then tell what the store does not take. */
async function openAgain(times: number, livesMs: number, backoff: BackoffOptions): Promise<void> {
  const stop = new AbortController();
  let opened = 0;
  let now = 0;
  const sandboxes = {
    byId: () => ({ object: { spec: create(openshell.SandboxSpecSchema) } }),
    setSession: () => {
      throw new OpenShellError("internal", "the disk is full");
    },
  } as unknown as Sandboxes;
  async function* events() {
    now += livesMs;
    const value = create(boundary.BoundaryStatusSchema, { connected: true });
    yield encodeFrame(boundary.LaunchEventSchema, { payload: { case: "boundary", value } });
  }
  const relays = {
    open: async () => {
      opened += 1;
      if (opened > times) stop.abort();
      return { readable: events(), write: async () => {}, end: () => {}, abort: () => {} };
    },
  } as unknown as RelayBroker;
  const log = pino({ level: "silent" });
  await runLaunch({ sandboxId: "one", sandboxes, relays, log, signal: stop.signal, backoff, now: () => now });
}

test("a launch relay that does not live is opened again each time later, though it began to tell", async () => {
  const begin = performance.now();
  await openAgain(8, 1_000, { initialMs: 2, random: () => 0 });
  expect(performance.now() - begin).toBeGreaterThan(1 + 2 + 4 + 8 + 16 + 32 + 64);
});

test("one that lived is opened again at once", async () => {
  await openAgain(8, 5_000, { initialMs: 2, maxMs: 100_000, factor: 100_000 });
});
