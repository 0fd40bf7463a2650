import { create as message } from "@bufbuild/protobuf";
import { expect, it } from "vitest";
import { openshell } from "../../wire/index.ts";
import { classifyForTests } from "../_testing-driver.ts";
import { Sandboxes } from "../sandbox/sandboxes.ts";
import { Store } from "../store/store.ts";
import { requireServing } from "./serving.ts";

it.each([
  ["served before is to be asked again shortly", openshell.SandboxPhase.READY, "unavailable", /has not heard of/],
  ["was on its way is not ready", openshell.SandboxPhase.PROVISIONING, "failed-precondition", /is not ready/],
])("after the gateway's start, a sandbox that %s", (_, phase, code, text) => {
  using store = new Store(":memory:");
  const metadata = { id: "id-1", name: "one", workspace: "default" };
  const before = new Sandboxes({ store, classify: classifyForTests });
  const record = before.create(message(openshell.SandboxSchema, { metadata }));
  const status = { ...record.object.status, phase } as openshell.SandboxStatus;
  store.sandboxes.update(record, { ...record.object, status }, { ...record.lifecycle, again: true });

  const sandboxes = new Sandboxes({ store, classify: classifyForTests });
  const serving = () => requireServing(sandboxes, sandboxes.require("default", "one"));
  expect(serving).toThrow(expect.objectContaining({ code, message: expect.stringMatching(text) }));
});
