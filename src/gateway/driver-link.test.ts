import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import { openshell } from "../wire/index.ts";
import { inDefault, TestGateway, untilPhase } from "./_testing.ts";
import { MemoryDriver } from "./_testing-driver.ts";
import { about, create, supervised } from "./_testing-sandbox.ts";

const { SandboxPhase, DeletionOutcome } = openshell;

describe("a gateway and its driver", () => {
  it("refuses a create that the driver refuses, and leaves nothing", async () => {
    await using test = await TestGateway.start();
    for (const call of ["validate", "create"]) {
      test.driver.refuse.set(
        call,
        new OpenShellError("failed-precondition", "no such runtime class", { reason: "RuntimeClassNotFound" }),
      );
      await expect(create(test, "one")).rejects.toMatchObject({
        code: "failed-precondition",
        message: "no such runtime class",
        details: { reason: "RuntimeClassNotFound" },
      });
      await expect(test.client.getSandbox(about("one"))).rejects.toMatchObject({ code: "not-found" });
    }
  });

  it("hands on the driver's own object of driver_config without its envelope, and nothing without one", async () => {
    await using test = await TestGateway.start({ allowDriverConfig: true });
    const pod = { priority_class_name: "low" };
    await create(test, "one", { template: { driverConfig: { kubernetes: { pod } } } });
    await create(test, "two", { template: { driverConfig: {} } });
    const configs = test.driver.created.map(({ spec }) => spec?.template?.driverConfig);
    expect(configs).toEqual([{ pod }, undefined]);
  });

  it("keeps a create that the driver could not take now, and asks again", async () => {
    await using test = await TestGateway.start();
    test.driver.refuse.set("create", new OpenShellError("unavailable", "the cluster is away"));
    const { sandbox } = await test.client.createSandbox(about("one"));
    expect(sandbox?.status?.phase).toBe(SandboxPhase.PROVISIONING);
    await using _ = await supervised(test, sandbox?.metadata?.id ?? "");
    await untilPhase(test.client, "one", "READY");
    expect(test.driver.calls.filter((call) => call === "create")).toHaveLength(2);
  });

  it("has stopped what the driver could not take before the user stopped it, and makes it with the next start", async () => {
    const { driver, begin, id, ...started } = await stoppedBeforeDriver();
    await using test = started.test;
    await untilPhase(test.client, "one", "STOPPED");
    begin();
    await vi.waitUntil(() => test.gateway.unready() === undefined, { timeout: 10_000 });
    expect(driver.held.has(id)).toBe(false);
    await untilPhase(test.client, "one", "STOPPED");
    await test.client.startSandbox(about("one"));
    await using _ = await supervised(test, id);
    await untilPhase(test.client, "one", "READY");
  });

  it("stops what the user stopped while it was being made, and says STOPPING until then", async () => {
    const driver = new MemoryDriver();
    const made = Promise.withResolvers<void>();
    driver.made = made.promise;
    await using test = await TestGateway.start({ driver });
    const creating = test.client.createSandbox(about("one"));
    const phase = async () => (await test.client.getSandbox(about("one"))).sandbox?.status?.phase;
    await vi.waitUntil(() => phase().catch(() => undefined), { timeout: 10_000 });
    await test.client.stopSandbox(about("one"));
    expect(await phase()).toBe(SandboxPhase.STOPPING);
    made.resolve();
    await creating;
    await untilPhase(test.client, "one", "STOPPED");
    expect(driver.calls).toContain("stop");
  });

  it("goes on after a restart: a create that never arrived, a delete under way, one deleted behind its back, one that failed", async () => {
    const directory = mkdtempSync(join(tmpdir(), "openshell-gateway-"));
    const databasePath = join(directory, "store.db");
    const driver = new MemoryDriver();
    driver.automatic = false;
    try {
      const ids: Record<string, string> = {};
      {
        await using test = await TestGateway.start({ databasePath, driver });
        for (const name of ["lost", "leaving", "kept", "broken"]) ids[name] = await create(test, name);
        driver.report(ids.broken ?? "", "Broken");
        await untilPhase(test.client, "broken", "ERROR");
        await test.client.deleteSandbox(about("leaving"));
        driver.refuse.set("create", new OpenShellError("unavailable", "the cluster is away"));
        ids.late = await create(test, "late");
      }
      driver.held.delete(ids.lost ?? "");
      driver.held.delete(ids.leaving ?? "");
      await using test = await TestGateway.start({ databasePath, driver });
      const { status } = await untilPhase(test.client, "lost", "ERROR");
      expect(status?.conditions.find(({ type }) => type === "Ready")?.reason).toBe("ResourceDeleted");
      expect(driver.held.has(ids.late ?? "")).toBe(true);
      const names = (await test.client.listSandboxes({ workspaceScope: inDefault })).sandboxes.map(
        ({ metadata }) => metadata?.name,
      );
      expect(names).toEqual(["broken", "kept", "late", "lost"]);
      expect(test.gateway.unready()).toBeUndefined();
      await untilPhase(test.client, "broken", "ERROR");
      // Started anew, it is made anew.
      for (const name of ["lost", "broken"]) {
        await test.client.startSandbox(about(name));
        await using _ = await supervised(test, ids[name] ?? "", () => driver.report(ids[name] ?? "", "Running"));
        await untilPhase(test.client, name, "READY");
      }
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  it("stops what the driver turns out to have of a sandbox that was stopped before its create was answered", async () => {
    const { driver, begin, id, ...started } = await stoppedBeforeDriver();
    await using test = started.test;
    // A former process asked for it and did not live to hear the answer.
    driver.held.set(id, { id, name: "one", workspace: "default", generation: "memory://one/1", reason: "Running" });
    begin();
    await vi.waitUntil(() => driver.held.get(id)?.reason === "Stopped", { timeout: 10_000 });
    await untilPhase(test.client, "one", "STOPPED");
    expect(driver.calls).toEqual(["validate", "stop"]);
    // Its next run begins as any other's.
    await test.client.startSandbox(about("one"));
    await using _ = await supervised(test, id);
    await untilPhase(test.client, "one", "READY");
  });

  it("stops what comes up again though its user had stopped it", async () => {
    await using test = await TestGateway.start();
    const id = await create(test, "one");
    await test.client.stopSandbox(about("one"));
    await untilPhase(test.client, "one", "STOPPED");
    test.driver.report(id, "Running");
    await vi.waitUntil(() => test.driver.held.get(id)?.reason === "Stopped", { timeout: 10_000 });
    expect(test.driver.calls.filter((call) => call === "stop")).toHaveLength(2);
    await untilPhase(test.client, "one", "STOPPED");
  });

  it("opens the driver's stream again when it breaks, and misses nothing", async () => {
    await using test = await TestGateway.start();
    test.driver.automatic = false;
    const id = await create(test, "one");
    test.driver.breakWatches();
    test.driver.report(id, "Broken");
    const { status } = await untilPhase(test.client, "one", "ERROR");
    expect(status?.conditions.find(({ type }) => type === "Ready")?.reason).toBe("Broken");
    // Start is allowed from ERROR, and the former failure does not come back.
    expect((await test.client.startSandbox(about("one"))).sandbox?.status?.phase).toBe(SandboxPhase.STARTING);
  });

  it("shows DELETING with the same id until the driver says that it is gone", async () => {
    await using test = await TestGateway.start();
    test.driver.automatic = false;
    const id = await create(test, "one");
    expect(await test.client.deleteSandbox(about("one"))).toMatchObject({ outcome: DeletionOutcome.ACCEPTED });
    const { sandbox } = await test.client.getSandbox(about("one"));
    expect(sandbox).toMatchObject({ metadata: { id }, status: { phase: SandboxPhase.DELETING } });
    await expect(test.client.startSandbox(about("one"))).rejects.toMatchObject({ code: "failed-precondition" });
    const watched = untilPhase(test.client, "one", "READY").catch((error: unknown) => error);
    test.driver.vanish(id);
    expect(String(await watched)).toMatch(/ended in DELETING|not found/);
    await expect(test.client.getSandbox(about("one"))).rejects.toMatchObject({ code: "not-found" });
  });
});

/** A gateway whose driver begins when the test says so, and its sandbox "one", which the user stopped before that. */
async function stoppedBeforeDriver() {
  const driver = new MemoryDriver();
  const begun = Promise.withResolvers<void>();
  driver.start = () => begun.promise;
  const test = await TestGateway.start({ driver });
  const id = await create(test, "one");
  await test.client.stopSandbox(about("one"));
  return { driver, begin: begun.resolve, test, id };
}
