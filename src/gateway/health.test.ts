import { describe, expect, it, onTestFinished } from "vitest";
import { openshell } from "../wire/index.ts";
import { TestGateway } from "./_testing.ts";
import { MemoryDriver } from "./_testing-driver.ts";

/** Starts a gateway with a health port; what its two paths and its Health RPC say. */
async function probed(driver: MemoryDriver) {
  const test = await TestGateway.start({ driver, health: { host: "127.0.0.1", port: 0 } });
  onTestFinished(() => test[Symbol.asyncDispose]());
  const ask = async (path: string) => {
    const answer = await fetch(`http://127.0.0.1:${test.gateway.healthPort}${path}`);
    return { status: answer.status, body: await answer.json() };
  };
  const health = async () => openshell.ServiceStatus[(await test.client.health({})).status];
  return { test, ask, health };
}

const alive = { status: 200, body: { status: "ok" } };
const isReady = { status: 200, body: { status: "ready" } };
const notReady = (reason: string) => ({ status: 503, body: { status: "not ready", reason } });

describe("/readyz", () => {
  it("waits for the driver's informers, and for their sandboxes to be compared with the store; /healthz waits for nothing", async () => {
    const driver = new MemoryDriver();
    const listed = Promise.withResolvers<void>();
    const { listSandboxes } = driver.implementation;
    Object.assign(driver.implementation, {
      listSandboxes: async (...call: Parameters<NonNullable<typeof listSandboxes>>) => {
        await listed.promise;
        return listSandboxes?.(...call);
      },
    });
    driver.hasSynced = false;
    const { ask, health } = await probed(driver);
    expect(await ask("/readyz")).toEqual(notReady("the compute driver is not ready"));
    expect(await ask("/healthz")).toEqual(alive);
    expect(await health()).toBe("DEGRADED");
    driver.hasSynced = true;
    await expect
      .poll(() => ask("/readyz"))
      .toEqual(notReady("the driver's sandboxes are not compared with the store yet"));
    listed.resolve();
    await expect.poll(() => ask("/readyz")).toEqual(isReady);
    expect(await health()).toBe("HEALTHY");
  });

  it("keeps a gateway whose driver has lost its lease, as when the API server is away, with its users; Health says that it is degraded", async () => {
    const driver = new MemoryDriver();
    const { ask, health } = await probed(driver);
    await expect.poll(() => ask("/readyz")).toEqual(isReady);
    driver.hasLease = false;
    expect(await ask("/readyz")).toEqual(isReady);
    expect(await ask("/healthz")).toEqual(alive);
    expect(await health()).toBe("DEGRADED");
  });

  it("waits for the driver to start, for as long as that takes", async () => {
    const driver = new MemoryDriver();
    const started = Promise.withResolvers<void>();
    driver.start = () => started.promise;
    const { ask } = await probed(driver);
    expect(await ask("/readyz")).toEqual(notReady("the compute driver is not ready"));
    expect(await ask("/healthz")).toEqual(alive);
    started.resolve();
    await expect.poll(() => ask("/readyz")).toEqual(isReady);
  });
});

describe("a gateway that stops", () => {
  it("is not ready any more", async () => {
    const { test, ask } = await probed(new MemoryDriver());
    await expect.poll(() => ask("/readyz")).toEqual(isReady);
    await test.gateway.stop();
    expect(test.gateway.unready()).toBe("the gateway is shutting down");
  });
});
