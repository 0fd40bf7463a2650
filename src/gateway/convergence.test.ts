import { pino } from "pino";
import { expect, test } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import type { Client, compute } from "../wire/index.ts";
import { Convergence } from "./convergence.ts";
import { afterAction, created, stopRequested, vanished } from "./sandbox/lifecycle.ts";
import type { Sandboxes } from "./sandbox/sandboxes.ts";
import type { SandboxRecord } from "./store/sandboxes.ts";

test("when the driver's answer cannot be stored, it is asked again, each time later", async () => {
  let lifecycle = stopRequested(afterAction(created(), "create"));
  const record = () => ({ id: "one", lifecycle }) as SandboxRecord;
  let failures = 2;
  const sandboxes = {
    byId: record,
    missing: () => {
      failures -= 1;
      if (failures >= 0) throw new OpenShellError("internal", "the disk is full");
      lifecycle = vanished(lifecycle);
    },
  } as unknown as Sandboxes;
  const askedAt: number[] = [];
  const driver = {
    stopSandbox: async () => {
      askedAt.push(performance.now());
      throw new OpenShellError("not-found", "no such sandbox");
    },
  } as unknown as Client<typeof compute.ComputeDriver>;
  const { signal } = new AbortController();
  const convergence = new Convergence({ sandboxes, driver, log: pino({ level: "silent" }), signal });
  convergence.kick(record());
  await convergence.outcome("one");
  expect(askedAt).toHaveLength(1);
  await expect.poll(() => lifecycle.applied.state, { timeout: 10_000 }).toBe("absent");
  const [first = 0, second = 0, third = 0] = askedAt;
  // At least half of 250 ms, then of twice that.
  expect(second - first).toBeGreaterThan(120);
  expect(third - second).toBeGreaterThan(240);
});
