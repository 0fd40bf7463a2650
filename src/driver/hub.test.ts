import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { compute } from "../wire/index.ts";
import { Hub } from "./hub.ts";

const sandbox = (id: string, reason = "") =>
  create(compute.DriverSandboxSchema, { id, status: { conditions: [{ type: "WorkloadReady", reason }] } });

describe("a watch", () => {
  test("begins with everything that is known and goes on with every difference", async () => {
    const hub = new Hub();
    hub.publish(sandbox("a"));
    const watch = hub.watch(new AbortController().signal);
    const next = async () => (await watch.next()).value?.payload;
    expect(await next()).toMatchObject({ case: "sandbox", value: { sandbox: { id: "a" } } });
    hub.publish(sandbox("a"));
    hub.publish(sandbox("a", "WorkloadRunning"));
    expect(await next()).toMatchObject({
      value: { sandbox: { status: { conditions: [{ reason: "WorkloadRunning" }] } } },
    });
    hub.remove("a");
    hub.remove("a");
    hub.publish(sandbox("b"));
    expect(await next()).toMatchObject({ case: "deleted", value: { sandboxId: "a" } });
    expect(await next()).toMatchObject({ case: "sandbox", value: { sandbox: { id: "b" } } });
    await watch.return();
  });

  test("that does not keep up ends with ABORTED, so that its reader takes a new snapshot", async () => {
    const hub = new Hub();
    hub.publish(sandbox("a"));
    const watch = hub.watch(new AbortController().signal);
    await watch.next();
    for (let count = 0; count <= 1100; count += 1) hub.publish(sandbox("a", String(count)));
    const drain = async () => {
      for await (const _ of watch);
    };
    await expect(drain()).rejects.toMatchObject({ code: "aborted" });
  });

  test("ends when its reader goes away", async () => {
    const stop = new AbortController();
    const watch = new Hub().watch(stop.signal);
    const end = watch.next();
    stop.abort();
    expect(await end).toEqual({ done: true, value: undefined });
  });
});
