import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import { type Client, type compute, openshell } from "../wire/index.ts";
import { inDefault, TestGateway, untilPhase } from "./_testing.ts";
import { MemoryDriver } from "./_testing-driver.ts";
import { about, create } from "./_testing-sandbox.ts";
import { Convergence } from "./convergence.ts";
import { afterAction, created, deleteRequested, stopRequested, vanished } from "./sandbox/lifecycle.ts";
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
  await convergence.outcome("one", "stop");
  expect(askedAt).toHaveLength(1);
  await expect.poll(() => lifecycle.applied.state, { timeout: 10_000 }).toBe("absent");
  const [first = 0, second = 0, third = 0] = askedAt;
  // At least half of 250 ms, then of twice that.
  expect(second - first).toBeGreaterThan(120);
  expect(third - second).toBeGreaterThan(240);
});

test.each(["while it is asked for", "in the pause after it"])(
  "a delete waits for no other try of a create: %s",
  async (when) => {
    let lifecycle = created();
    const record = () => ({ id: "one", lifecycle, object: {} }) as SandboxRecord;
    const made = Promise.withResolvers<never>();
    const deleted = Promise.withResolvers<void>();
    const sandboxes = {
      byId: record,
      beingCreated: () => ({ [Symbol.dispose]: () => {} }),
      missing: () => {
        lifecycle = afterAction(lifecycle, "delete");
        deleted.resolve();
      },
    } as unknown as Sandboxes;
    const driver = {
      ensureWorkspace: () => made.promise,
      deleteSandbox: async () => ({ deleted: false }),
    } as unknown as Client<typeof compute.ComputeDriver>;
    const { signal } = new AbortController();
    const backoff = { initialMs: 1_000_000, maxMs: 1_000_000 };
    const convergence = new Convergence({ sandboxes, driver, log: pino({ level: "silent" }), signal, backoff });
    convergence.kick(record());
    const refuse = () => {
      made.reject(new OpenShellError("unavailable", "the cluster is away"));
      return convergence.outcome("one", "create");
    };
    if (when === "in the pause after it") await refuse();
    lifecycle = deleteRequested(lifecycle);
    convergence.kick(record());
    await refuse();
    await deleted.promise;
  },
);

test("a driver that is not let into its own cluster is asked again: no caller's credential went with the call", async () => {
  let lifecycle = created();
  const record = () => ({ id: "one", lifecycle, object: {} }) as SandboxRecord;
  const sandboxes = {
    byId: record,
    beingCreated: () => ({ [Symbol.dispose]: () => {} }),
    change: (_: string, change: (before: typeof lifecycle) => typeof lifecycle) => {
      lifecycle = change(lifecycle);
    },
  } as unknown as Sandboxes;
  let asked = 0;
  const driver = {
    ensureWorkspace: async () => {
      asked += 1;
      if (asked === 1) throw new OpenShellError("unauthenticated", "Unauthorized");
    },
    createSandbox: async () => ({ runtimeIdentity: "pair" }),
  } as unknown as Client<typeof compute.ComputeDriver>;
  const { signal } = new AbortController();
  const backoff = { initialMs: 1 };
  const convergence = new Convergence({ sandboxes, driver, log: pino({ level: "silent" }), signal, backoff });
  convergence.kick(record());
  await convergence.outcome("one", "create");
  await expect.poll(() => lifecycle).toEqual(afterAction(created(), "create", "pair"));
});

test("a delete that meets a create that is refused says that the sandbox is gone, the create why", async () => {
  await using test = await TestGateway.start();
  const made = Promise.withResolvers<void>();
  test.driver.made = made.promise;
  const creating = test.client.createSandbox({ workspaceScope: inDefault, name: "one", spec: {} });
  const refused = expect(creating).rejects.toMatchObject({ code: "resource-exhausted" });
  await expect.poll(() => test.driver.calls).toContain("create");
  const deleting = test.client.deleteSandbox(about("one"));
  await untilPhase(test.client, "one", "DELETING");
  made.reject(new OpenShellError("resource-exhausted", "exceeded quota"));
  await refused;
  expect(await deleting).toMatchObject({ outcome: openshell.DeletionOutcome.COMPLETED });
});

/** A sandbox whose start the driver does not answer, as where the old Pod's node is lost. */
async function starting(name: string) {
  const driver = new MemoryDriver();
  Object.assign(driver.implementation, {
    startSandbox: () => {
      driver.calls.push("start");
      return new Promise<never>(() => {});
    },
  });
  const test = await TestGateway.start({ driver });
  onTestFinished(() => test[Symbol.asyncDispose]());
  await create(test, name);
  await test.client.stopSandbox(about(name));
  await untilPhase(test.client, name, "STOPPED");
  await expect.poll(() => test.driver.calls).toContain("stop");
  await test.client.startSandbox(about(name));
  await expect.poll(() => test.driver.calls).toContain("start");
  return test;
}

test("a delete waits for no start that the driver does not answer", async () => {
  const test = await starting("one");
  const { outcome } = await test.client.deleteSandbox(about("one"));
  expect(outcome).toBe(openshell.DeletionOutcome.COMPLETED);
});

test("a stop waits for no start that the driver does not answer, and the driver is asked to stop what may come of it", async () => {
  const test = await starting("one");
  await test.client.stopSandbox(about("one"));
  await expect.poll(() => test.driver.calls.slice(-3)).toEqual(["stop", "start", "stop"]);
  await untilPhase(test.client, "one", "STOPPED");
});

test("a name is taken until its sandbox is deleted, and who asks for it meanwhile hears that", async () => {
  const driver = new MemoryDriver();
  await using gateway = await TestGateway.start({ driver });
  const id = await create(gateway, "one");
  const again = () => create(gateway, "one");
  await expect(again()).rejects.toMatchObject({
    code: "already-exists",
    message: "sandbox one already exists in workspace default: choose another name, or delete it first",
  });
  driver.automatic = false;
  await gateway.client.deleteSandbox(about("one"));
  await expect(again()).rejects.toMatchObject({
    code: "already-exists",
    message: "sandbox one is still being deleted from workspace default: try again shortly, or choose another name",
  });
  driver.vanish(id);
  await expect.poll(() => again().then(() => "made", String)).toBe("made");
});
