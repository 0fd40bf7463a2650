import { create, toBinary, toJson } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { boundary, openshell } from "../../wire/index.ts";
import { inDefault, TestGateway, untilPhase } from "../_testing.ts";
import { about, ready } from "../_testing-sandbox.ts";
import { newSession, withEvent } from "./view.ts";

const long = "x".repeat(900_000);
const never = { seconds: 1n << 62n, nanos: -1 };

test("nothing that a workload says is kept at its length", () => {
  const told = [
    { case: "boundary", value: { connected: true, reason: long, message: long } },
    { case: "fence", value: { reachable: long } },
    { case: "mainProcess", value: { instanceId: long, message: long, startedTime: never, nextRestartTime: never } },
    { case: "tree", value: { frozen: true, reason: long } },
  ] as const;
  const events = told.map((payload) => create(boundary.LaunchEventSchema, { payload }));
  const view = events.reduce(withEvent, newSession);
  expect(view.mainProcess).toEqual({ state: 0, instanceId: `${long.slice(0, 255)}…`, restartCount: 0 });
  expect(JSON.stringify(view).length).toBeLessThan(4_000);
});

test("a workload that says much costs the list of its workspace little, and its exit is heard", async () => {
  await using test = await TestGateway.start();
  const { supervisor, id } = await ready(test, "one");
  await using _ = supervisor;
  const state = boundary.MainProcessStatus_State.RUNNING;
  await supervisor.tell({ case: "mainProcess", value: { state, instanceId: long, startedTime: never } });
  await supervisor.tell({ case: "tree", value: { frozen: true, reason: long } });
  await untilPhase(test.client, "one", "STARTING");
  const list = await test.client.listSandboxes({ workspaceScope: inDefault });
  expect(toBinary(openshell.ListSandboxesResponseSchema, list).length).toBeLessThan(8_000);
  expect(() => toJson(openshell.ListSandboxesResponseSchema, list)).not.toThrow();
  const { headers } = supervisor;
  await test.client.reportMainProcessExit({ sandboxId: id, instanceId: long, exitCode: 3 }, { headers });
  await test.client.finalizeMainProcessExit({ sandboxId: id, instanceId: long }, { headers });
  const { sandbox } = await test.client.getSandbox(about("one"));
  expect(sandbox?.status).toMatchObject({ phase: openshell.SandboxPhase.ERROR, exitCode: 3 });
});
