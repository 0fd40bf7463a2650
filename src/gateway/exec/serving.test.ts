import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create as message } from "@bufbuild/protobuf";
import { expect, it, onTestFinished } from "vitest";
import { boundary, openshell } from "../../wire/index.ts";
import { TestGateway, tokenKeys, untilPhase } from "../_testing.ts";
import { classifyForTests, MemoryDriver } from "../_testing-driver.ts";
import { about, exec, ready } from "../_testing-sandbox.ts";
import { Sandboxes } from "../sandbox/sandboxes.ts";
import { Store } from "../store/store.ts";
import { requireServing } from "./serving.ts";

it.each([
  ["served before is to be asked again shortly", openshell.SandboxPhase.READY, "unavailable", /has not heard of/],
  // As a gateway leaves it that loses its supervisors while it stops.
  ["was frozen is to be asked again shortly", openshell.SandboxPhase.STARTING, "unavailable", /has not heard of/],
  ["was on its way is not ready", openshell.SandboxPhase.PROVISIONING, "failed-precondition", /is not ready/],
])("after the start of a gateway whose former release marked no run, a sandbox that %s", (_, phase, code, text) => {
  using store = new Store(":memory:");
  const metadata = { id: "id-1", name: "one", workspace: "default" };
  const before = new Sandboxes({ store, classify: classifyForTests });
  const record = before.create(message(openshell.SandboxSchema, { metadata }));
  const reason = phase === openshell.SandboxPhase.STARTING ? "ReplacingSupervisor" : "AnyOther";
  const conditions = [message(openshell.SandboxConditionSchema, { type: "Ready", status: "False", reason })];
  const status = { ...record.object.status, phase, conditions } as openshell.SandboxStatus;
  store.sandboxes.update(record, { ...record.object, status }, { ...record.lifecycle, again: true });

  const sandboxes = new Sandboxes({ store, classify: classifyForTests });
  const serving = () => requireServing(sandboxes, sandboxes.require("default", "one"));
  expect(serving).toThrow(expect.objectContaining({ code, message: expect.stringMatching(text) }));
});

it("a run that served is to be asked again however often the gateway is stopped before its supervisor is back", async () => {
  const directory = mkdtempSync(join(tmpdir(), "openshell-gateway-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const options = { databasePath: join(directory, "store.db"), driver: new MemoryDriver(), tokenKeys: tokenKeys() };
  {
    await using first = await TestGateway.start(options);
    await ready(first, "one");
  }
  for (const _ of ["second", "third"]) {
    await using test = await TestGateway.start(options);
    await expect.poll(() => test.gateway.unready()).toBeUndefined();
    const { status } = await untilPhase(test.client, "one", "STARTING");
    expect(status?.conditions.find(({ type }) => type === "Ready")?.reason).toBe("ReplacingSupervisor");
    await expect(exec(test, "one")).rejects.toMatchObject({ code: "unavailable", details: { retryAfterMs: 2_000 } });
  }
});

it("a run that served is to be asked again at each step of its supervisor's way back, the next run is not", async () => {
  await using test = await TestGateway.start();
  const { supervisor } = await ready(test, "one");
  await using _ = supervisor;
  const refused = async (reason: string) => {
    const refusal = { code: "unavailable", details: { reason, retryAfterMs: 2_000 } };
    await expect(exec(test, "one")).rejects.toMatchObject(refusal);
  };
  const reasonOf = async () => {
    const { sandbox } = await test.client.getSandbox(about("one"));
    return sandbox?.status?.conditions.find(({ type }) => type === "Ready")?.reason;
  };
  await supervisor.tell({ case: "boundary", value: { connected: false } });
  await expect.poll(reasonOf).toBe("WaitingForBoundary");
  await refused("WaitingForBoundary");
  await supervisor.tell({ case: "boundary", value: { connected: true } });
  await supervisor.tell({ case: "fence", value: { state: boundary.FenceStatus_State.UNSPECIFIED } });
  await expect.poll(reasonOf).toBe("WaitingForFence");
  await refused("WaitingForFence");
  await test.client.stopSandbox(about("one"));
  await test.client.startSandbox(about("one"));
  await expect(exec(test, "one")).rejects.toMatchObject({ code: "failed-precondition" });
});
