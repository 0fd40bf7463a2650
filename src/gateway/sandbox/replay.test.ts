import { create } from "@bufbuild/protobuf";
import { describe, expect, it, vi } from "vitest";
import { OpenShellError } from "../../common/errors.ts";
import { compute, localClient, openshell } from "../../wire/index.ts";
import { inDefault, quiet } from "../_testing.ts";
import { classifyForTests, MemoryDriver } from "../_testing-driver.ts";
import { Convergence } from "../convergence.ts";
import { anonymousUser } from "../identity/principal.ts";
import { Store } from "../store/store.ts";
import { Replays } from "./replay.ts";
import { Sandboxes } from "./sandboxes.ts";
import { sandboxService } from "./service.ts";

const method = openshell.OpenShell.method.deleteSandbox;
const context = { method, principal: anonymousUser };
const request = (requestId: string, name = "one") => create(method.input, { requestId, name });
const here = { workspaceScope: inDefault };
const answer = async () => ({ sandboxId: "id" });

describe("a repeated mutation", () => {
  it("runs once while the first is still running, and never for another request", async () => {
    using store = new Store(":memory:");
    const replays = new Replays(store.replays);
    const gate = Promise.withResolvers<void>();
    let runs = 0;
    const run = async () => {
      runs += 1;
      await gate.promise;
      return answer();
    };
    const both = [1, 2].map(() => replays.once(context, request("r"), method.output, run));
    await expect(replays.once(context, request("r", "two"), method.output, run)).rejects.toThrow(
      "request_id r was already used for a different request",
    );
    gate.resolve();
    expect(await Promise.all(both)).toMatchObject([{ sandboxId: "id" }, { sandboxId: "id" }]);
    expect(await replays.once(context, request("r"), method.output, run)).toMatchObject({ sandboxId: "id" });
    expect(runs).toBe(1);
  });

  it("makes no second sandbox where the process ended before its driver had answered", async () => {
    using store = new Store(":memory:");
    const driver = new MemoryDriver();
    driver.made = new Promise(() => {});
    const createMethod = openshell.OpenShell.method.createSandbox;
    const stop = new AbortController();
    const call = { method: createMethod, principal: anonymousUser, signal: stop.signal };
    const wanted = create(createMethod.input, { requestId: "r", ...here, spec: {} });
    const first = service(store, driver, stop.signal).createSandbox(wanted, call as never);
    const all = () => [...store.sandboxes.list(undefined)];
    const made = await vi.waitUntil(() => all()[0]);
    const { sandbox } = await service(store, driver, stop.signal).createSandbox(wanted, call as never);
    expect(sandbox?.metadata?.id).toBe(made.id);
    expect(all()).toHaveLength(1);
    stop.abort();
    await first;
  });

  it("deletes no successor of the same name where the process ended before its driver had answered", async () => {
    using store = new Store(":memory:");
    const driver = new MemoryDriver();
    const stop = new AbortController();
    const call = { method, principal: anonymousUser, signal: stop.signal } as never;
    const createRequest = create(openshell.OpenShell.method.createSandbox.input, { name: "one", ...here, spec: {} });
    await service(store, driver, stop.signal).createSandbox(createRequest, call);
    Object.assign(driver.implementation, { deleteSandbox: () => new Promise(() => {}) });
    const wanted = create(method.input, { requestId: "r", name: "one", ...here });
    const first = service(store, driver, stop.signal).deleteSandbox(wanted, call);
    const [deleted] = store.sandboxes.list(undefined);
    store.sandboxes.delete(deleted?.id ?? "");
    const successor = await service(store, driver, stop.signal).createSandbox(createRequest, call);
    const repeated = await service(store, driver, stop.signal).deleteSandbox(wanted, call);
    expect(repeated).toMatchObject({ sandboxId: deleted?.id, outcome: openshell.DeletionOutcome.ACCEPTED });
    const [left] = store.sandboxes.list(undefined);
    expect(left).toMatchObject({ id: successor.sandbox?.metadata?.id, lifecycle: { desired: "running" } });
    stop.abort();
    await first;
  });

  it("is not remembered when it was refused after it had begun", async () => {
    using store = new Store(":memory:");
    const replays = new Replays(store.replays);
    const refused = replays.once(context, request("r"), method.output, async (begun) => {
      begun({ sandboxId: "refused" });
      throw new OpenShellError("failed-precondition", "sentence");
    });
    await expect(refused).rejects.toThrow("sentence");
    expect(await replays.once(context, request("r"), method.output, answer)).toMatchObject({ sandboxId: "id" });
  });

  it("has a request_id of a sensible length", async () => {
    using store = new Store(":memory:");
    const once = (id: string) => new Replays(store.replays).once(context, request(id), method.output, answer);
    await expect(once("x".repeat(256))).resolves.toBeDefined();
    await expect(once("x".repeat(257))).rejects.toMatchObject({ code: "invalid-argument" });
  });
});

/** The RPCs of a process of its own. */
function service(store: Store, memory: MemoryDriver, signal: AbortSignal) {
  const sandboxes = new Sandboxes({ store, classify: classifyForTests });
  const driver = localClient(compute.ComputeDriver, memory.implementation, undefined);
  const convergence = new Convergence({ sandboxes, driver, log: quiet, signal });
  sandboxes.onChange((record) => convergence.kick(record));
  const replays = new Replays(store.replays);
  return sandboxService({ store, sandboxes, convergence, driver, replays, allowDriverConfig: false });
}
