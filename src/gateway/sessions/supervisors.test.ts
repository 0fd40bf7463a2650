import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { setImmediate } from "node:timers/promises";
import { create as message } from "@bufbuild/protobuf";
import { describe, expect, it, vi } from "vitest";
import { services } from "../../boundary/index.ts";
import { OpenShellError } from "../../common/errors.ts";
import { openshell } from "../../wire/index.ts";
import { inDefault, quiet, TestGateway } from "../_testing.ts";
import { classifyForTests } from "../_testing-driver.ts";
import { about, create, exec, ready } from "../_testing-sandbox.ts";
import { Sandboxes } from "../sandbox/sandboxes.ts";
import { Store } from "../store/store.ts";
import { maxDataBytes, RelayBroker } from "./relay-broker.ts";
import { Supervisors } from "./supervisors.ts";

/** Two ends of a connection over a real socket. */
async function socketPair() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const writer = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const [reader] = (await once(server, "connection")) as [Socket];
  return {
    writer,
    reader,
    async [Symbol.asyncDispose]() {
      for (const socket of [writer, reader]) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

const measured = { metrics: { host: "127.0.0.1", port: 0 } };

/** A metric without labels, as the listener prints it. */
async function metric(test: TestGateway, name: string): Promise<number> {
  const answer = await fetch(`http://127.0.0.1:${test.gateway.metricsPort}/metrics`);
  const [, value] = new RegExp(`^${name} (\\d+)$`, "m").exec(await answer.text()) ?? [];
  return Number(value);
}

describe("a supervisor's session", () => {
  it("ends with its sandbox, and nothing of it is kept", async () => {
    await using test = await TestGateway.start(measured);
    const { supervisor } = await ready(test, "one");
    expect(await metric(test, "openshell_supervisor_sessions")).toBe(1);
    expect(await metric(test, "openshell_relays")).toBe(1);
    await test.client.deleteSandbox(about("one"));
    expect(await supervisor.ended.promise).toMatchObject({ code: "permission-denied" });
    expect(await metric(test, "openshell_supervisor_sessions")).toBe(0);
    expect(await metric(test, "openshell_relays")).toBe(0);
  });

  it("that ended while its hello was on the way is refused", async () => {
    using store = new Store(":memory:");
    const sandboxes = new Sandboxes({ store, classify: classifyForTests });
    const { id } = sandboxes.create(
      message(openshell.SandboxSchema, { metadata: { id: "id-1", name: "one", workspace: "default" } }),
    );
    const session = { sandboxId: id, sessionId: "s1", runtimeIdentity: "r", bearer: "pod", connected: false };
    store.sessions.put(session);
    const supervisors = new Supervisors({ store, sandboxes, log: quiet });
    async function* late() {
      // Between the token's check and the hello, another supervisor got the session.
      store.sessions.put({ ...session, sessionId: "s2" });
      const value = { sandboxId: id, instanceId: "i", connectionEpoch: 1n };
      yield message(openshell.SupervisorMessageSchema, { payload: { case: "hello", value } });
    }
    const principal = { kind: "sandbox", sandboxId: id, sessionId: "s1" } as const;
    const answer = supervisors.connect(late(), principal, new AbortController().signal).next();
    await expect(answer).rejects.toMatchObject({ code: "permission-denied" });
    expect(supervisors.connected).toBe(0);
    expect(store.sessions.bySandbox(id)?.connected).toBe(false);
  });

  it("that the store does not take leaves nothing, and is taken when it comes again", async () => {
    using store = new Store(":memory:");
    const sandboxes = new Sandboxes({ store, classify: classifyForTests });
    const { id } = sandboxes.create(
      message(openshell.SandboxSchema, { metadata: { id: "id-1", name: "one", workspace: "default" } }),
    );
    store.sessions.put({ sandboxId: id, sessionId: "s1", runtimeIdentity: "r", bearer: "pod", connected: false });
    const supervisors = new Supervisors({ store, sandboxes, log: quiet });
    async function* hello(connectionEpoch: bigint) {
      const value = { sandboxId: id, instanceId: "i", connectionEpoch };
      yield message(openshell.SupervisorMessageSchema, { payload: { case: "hello", value } });
    }
    const principal = { kind: "sandbox", sandboxId: id, sessionId: "s1" } as const;
    const { signal } = new AbortController();
    const full = vi.spyOn(store.sessions, "markConnected").mockImplementation(() => {
      throw new OpenShellError("internal", "the disk is full");
    });
    await expect(supervisors.connect(hello(1n), principal, signal).next()).rejects.toThrow("the disk is full");
    expect(supervisors.connected).toBe(0);
    full.mockRestore();
    const again = supervisors.connect(hello(2n), principal, signal);
    expect((await again.next()).value?.payload?.case).toBe("sessionAccepted");
    await again.return();
  });

  it("goes on when the gateway's clock is set forward", async () => {
    using store = new Store(":memory:");
    const sandboxes = new Sandboxes({ store, classify: classifyForTests });
    const { id } = sandboxes.create(
      message(openshell.SandboxSchema, { metadata: { id: "id-1", name: "one", workspace: "default" } }),
    );
    store.sessions.put({ sandboxId: id, sessionId: "s1", runtimeIdentity: "r", bearer: "pod", connected: false });
    const supervisors = new Supervisors({ store, sandboxes, log: quiet, heartbeatMs: 200 });
    const silent = Promise.withResolvers<void>();
    async function* hello() {
      const value = { sandboxId: id, instanceId: "i", connectionEpoch: 1n };
      yield message(openshell.SupervisorMessageSchema, { payload: { case: "hello", value } });
      await silent.promise;
    }
    const principal = { kind: "sandbox", sandboxId: id, sessionId: "s1" } as const;
    const answers = supervisors.connect(hello(), principal, new AbortController().signal);
    const next = async () => (await answers.next()).value?.payload?.case;
    expect(await next()).toBe("sessionAccepted");
    const clock = vi.spyOn(Date, "now").mockReturnValue(Date.now() + 3_600_000);
    try {
      expect(await next()).toBe("heartbeat");
    } finally {
      clock.mockRestore();
      silent.resolve();
      await answers.return();
    }
  });

  it("goes on when the gateway stood still while its supervisor spoke, and ends when that says nothing", async () => {
    using store = new Store(":memory:");
    const sandboxes = new Sandboxes({ store, classify: classifyForTests });
    const { id } = sandboxes.create(
      message(openshell.SandboxSchema, { metadata: { id: "id-1", name: "one", workspace: "default" } }),
    );
    store.sessions.put({ sandboxId: id, sessionId: "s1", runtimeIdentity: "r", bearer: "pod", connected: false });
    const supervisors = new Supervisors({ store, sandboxes, log: quiet, heartbeatMs: 400 });
    await using pair = await socketPair();
    const heard = vi.fn();
    async function* messages() {
      const value = { sandboxId: id, instanceId: "i", connectionEpoch: 1n };
      yield message(openshell.SupervisorMessageSchema, { payload: { case: "hello", value } });
      for await (const _ of pair.reader) {
        heard();
        yield message(openshell.SupervisorMessageSchema, { payload: { case: "heartbeat", value: {} } });
      }
    }
    const principal = { kind: "sandbox", sandboxId: id, sessionId: "s1" } as const;
    const ended = (async () => {
      for await (const _ of supervisors.connect(messages(), principal, new AbortController().signal));
    })().catch((error: unknown) => error);
    const isOver = vi.fn();
    void ended.then(isOver);
    await vi.waitUntil(() => supervisors.connected === 1);
    // Outside of a timer, as nearly all that the gateway does.
    await setImmediate();
    pair.writer.write(".");
    const until = performance.now() + 1_800;
    while (performance.now() < until);
    await vi.waitUntil(() => heard.mock.calls.length > 0, { interval: 10 });
    await setImmediate();
    expect(isOver).not.toHaveBeenCalled();
    expect(await ended).toMatchObject({ code: "unavailable", message: "no heartbeat for 3 intervals" });
  });

  it("ends with a stop, which a command that ran is told of", async () => {
    await using test = await TestGateway.start();
    const begun = Promise.withResolvers<void>();
    const { supervisor } = await ready(test, "one", {}, async (channel) => {
      for await (const _ of channel.readable) begun.resolve();
    });
    const running = exec(test, "one", "x").catch((error: unknown) => error);
    await begun.promise;
    await test.client.stopSandbox(about("one"));
    // As its Pod ends.
    await supervisor[Symbol.asyncDispose]();
    expect(await running).toMatchObject({ code: "failed-precondition", message: "the sandbox was stopped" });
  });

  it("hears of no relay's end that its messages say themselves", async () => {
    await using test = await TestGateway.start();
    const { supervisor } = await ready(test, "one");
    await using _ = supervisor;
    expect((await exec(test, "one", "x".repeat(200_000))).stdout).toHaveLength(200_000);
    // A RelayClose would come on another stream than the data, and before it where the reader is slow.
    expect(supervisor.closes).toEqual([]);
  });
});

describe("a relay", () => {
  it("breaks at a frame that is larger than agreed", async () => {
    let channelId = "";
    const broker = new RelayBroker((_sandbox, { payload }) => {
      if (payload?.case === "relayOpen") channelId = payload.value.channelId ?? "";
      return true;
    });
    const { signal } = new AbortController();
    const opening = broker.open("id-1", services.exec, signal);
    async function* frames() {
      yield message(openshell.RelayFrameSchema, { payload: { case: "init", value: { channelId } } });
      const value = new Uint8Array(maxDataBytes + 1);
      yield message(openshell.RelayFrameSchema, { payload: { case: "data", value } });
    }
    const serving = broker.serve(frames(), "id-1", signal);
    const served = serving.next();
    const channel = await opening;
    await expect(channel.readable[Symbol.asyncIterator]().next()).rejects.toMatchObject({ code: "unavailable" });
    channel.end();
    expect((await served).done).toBe(true);
    expect(broker.size).toBe(0);
  });
});

describe("a gateway that stops", () => {
  it("ends commands, watches and sessions, and waits for none of them", async () => {
    const test = await TestGateway.start();
    const begun = Promise.withResolvers<void>();
    const { supervisor } = await ready(test, "one", {}, async (channel) => {
      for await (const _ of channel.readable) begun.resolve();
    });
    const running = exec(test, "one", "x").catch((error: unknown) => error);
    await begun.promise;
    const watching = (async () => {
      const request = { workspaceScope: inDefault, sandbox: "one", followStatus: true };
      for await (const _ of test.client.watchSandbox(request));
    })().catch((error: unknown) => error);
    await test.gateway.stop();
    expect(await running).toMatchObject({ code: "unavailable" });
    expect([undefined, "unavailable", "cancelled"]).toContain(
      ((await watching) as { code?: string } | undefined)?.code,
    );
    expect(await supervisor.ended.promise).toMatchObject({ code: "unavailable" });
    await test[Symbol.asyncDispose]();
  });

  it("is counted in no restart; a stream of the driver that broke is", async () => {
    await using test = await TestGateway.start(measured);
    await create(test, "one");
    expect(await metric(test, "openshell_driver_stream_restarts_total")).toBe(0);
    test.driver.breakWatches();
    while ((await metric(test, "openshell_driver_stream_restarts_total")) === 0) {
      // Asked again until the stream's end has reached the gateway.
    }
    expect(await metric(test, "openshell_driver_stream_restarts_total")).toBe(1);
  });
});
