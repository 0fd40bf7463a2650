import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { services } from "../boundary/index.ts";
import { sleep } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { encodeFrame, FrameDecoder } from "../common/frames.ts";
import { createLogger } from "../common/log.ts";
import { boundary, type openshell, statusNumber } from "../wire/index.ts";
import { type Authority, type Pair, testAuthority } from "./_test-certificates.ts";
import { Log, TestGateway, TestRuntime } from "./_test-peers.ts";
import type { SupervisorSettings } from "./settings.ts";
import { type End, isReady, type SupervisorState } from "./state.ts";
import { Supervisor } from "./supervisor.ts";

const serverName = "runtime.g1.openshell.internal";
/** Silence that no busy machine comes to by itself. */
const patientMs = 30_000;

let authority: Authority;
let runtimePair: Pair;
let supervisorPair: Pair;
let directory: string;
let gateway: TestGateway;
let runtime: TestRuntime;
let stop: AbortController;
let states: Log<SupervisorState>;
let supervisor: Supervisor;
let end: Promise<End>;
/** Looks at the gateway's certificate, or whether one is needed. */
let looks = 0;

beforeAll(async () => {
  authority = await testAuthority();
  runtimePair = await authority.issue(serverName);
  supervisorPair = await authority.issue("supervisor");
});

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), "supervisor-"));
  writeFileSync(join(directory, "token"), "projected\n");
  gateway = new TestGateway();
  runtime = new TestRuntime();
  stop = new AbortController();
  states = new Log();
  await gateway.listen();
  await runtime.listen(authority.certificate, runtimePair);
});

afterEach(async () => {
  stop.abort();
  await end;
  gateway.server.forceShutdown();
  runtime.server.forceShutdown();
  rmSync(directory, { recursive: true });
});

interface Change {
  readonly boundary?: Partial<SupervisorSettings["boundary"]>;
  readonly gatewayPort?: number;
  /** Of a gateway with a certificate, whose name is localhost. */
  readonly gatewayCa?: Buffer;
  readonly rawLingerMs?: number;
  /** Silence of the runtime after which the session counts as lost. */
  readonly lostAfterMs?: number;
}

function start(change: Change = {}): void {
  const settings: SupervisorSettings = {
    sandboxId: "sb-1",
    generationId: "g1",
    podUid: "uid-1",
    logLevel: "error",
    readinessPort: 0,
    gateway: {
      target: `${change.gatewayCa ? "localhost" : "127.0.0.1"}:${change.gatewayPort ?? gateway.port}`,
      tls: change.gatewayCa !== undefined,
      ...(change.gatewayCa === undefined ? {} : { ca: change.gatewayCa }),
      tokenFile: join(directory, "token"),
    },
    boundary: {
      target: `127.0.0.1:${runtime.port}`,
      serverName,
      ca: authority.certificate,
      ...supervisorPair,
      grant: "grant-jws",
      ...change.boundary,
    },
  };
  const log = createLogger({ name: "test", level: "error" });
  const onState = (state: SupervisorState) => states.add(state);
  const linger = change.rawLingerMs === undefined ? {} : { rawLingerMs: change.rawLingerMs };
  const boundaryTiming = { intervalMs: 20, lostAfterMs: change.lostAfterMs ?? patientMs, retryMs: 5 };
  const trustClock = {
    sleep: () => {
      looks += 1;
      return sleep(5);
    },
  };
  supervisor = new Supervisor({ settings, build: "test", log, boundaryTiming, trustClock, onState, ...linger });
  end = supervisor.run(stop.signal);
}

async function startReady(change: Change = {}): Promise<void> {
  start(change);
  await states.next(isReady);
}

function data(text: string): { payload: { case: "data"; value: Uint8Array } } {
  return { payload: { case: "data", value: Buffer.from(text) } };
}

function textOf(next: IteratorResult<openshell.RelayFrame | boundary.ChannelFrame>): string {
  if (next.done === true || next.value.payload.case !== "data") return `no data: ${JSON.stringify(next)}`;
  return Buffer.from(next.value.payload.value).toString();
}

describe("a supervisor", () => {
  it("exchanges its projected token, then opens both sessions with one instance id and its grant", async () => {
    await startReady();
    expect(gateway.tokens.seen).toEqual(["issued for Bearer projected"]);
    const hello = gateway.hellos.seen[0];
    expect(hello).toMatchObject({ sandboxId: "sb-1", connectionEpoch: 1n });
    expect(runtime.hellos.seen[0]).toMatchObject({ sessionGrant: "grant-jws", instanceId: hello?.instanceId });
  });

  it("waits for a gateway that is late, and reads the projected token anew for each try", async () => {
    gateway.refuseExchange.push(new OpenShellError("unavailable", "starting"));
    gateway.refuseExchange.push(new OpenShellError("unauthenticated", "pod not seen yet"));
    start();
    await gateway.tokens.next();
    writeFileSync(join(directory, "token"), "renewed");
    await states.next(isReady);
    expect(gateway.tokens.seen.at(-1)).toBe("issued for Bearer renewed");
  });

  it("reconnects to the gateway with a higher epoch and the same instance", async () => {
    await startReady();
    gateway.drop();
    await states.next((state) => !isReady(state));
    await states.next(isReady);
    const [first, second] = gateway.hellos.seen;
    expect(second?.connectionEpoch).toBe(2n);
    expect(second?.instanceId).toBe(first?.instanceId);
    expect(gateway.tokens.seen).toHaveLength(1);
  });

  it("is back within seconds after a gateway that was away long enough to be refused many times", async () => {
    await startReady();
    const { port } = gateway;
    gateway.server.forceShutdown();
    let waits = 0;
    await states.next((state) => state.name === "running" && state.gateway.name === "waiting" && ++waits === 6);
    gateway = new TestGateway();
    await gateway.listen(port);
    const back = performance.now();
    await states.next(isReady);
    expect(performance.now() - back).toBeLessThan(4000);
    expect(gateway.hellos.seen[0]?.connectionEpoch).toBeGreaterThan(1n);
  });

  it("tries a rejected session again, with a higher epoch", async () => {
    gateway.refuseSession.push("not yet");
    start();
    await states.next(isReady);
    expect(gateway.hellos.seen.map((hello) => hello.connectionEpoch)).toEqual([1n, 2n]);
  });

  it("renews its session token before it expires, though its own clock is hours behind the gateway's", async () => {
    gateway.clockAheadMs = 2 * 3_600_000;
    gateway.tokenLifeMs = 1500;
    await startReady();
    const renewed = await gateway.tokens.next((line) => line.startsWith("refreshed"));
    expect(renewed).toMatch(/^refreshed for Bearer e30\..*\.1$/);
  });

  it("keeps a token as long as it lives, though its own clock is hours ahead of the gateway's", async () => {
    gateway.clockAheadMs = -2 * 3_600_000;
    await startReady();
    gateway.drop();
    await states.next((state) => !isReady(state));
    await states.next(isReady);
    expect(gateway.tokens.seen).toEqual(["issued for Bearer projected"]);
  });

  it("begins a new session with a new token when the gateway refuses to renew its token", async () => {
    gateway.tokenLifeMs = 1500;
    await startReady();
    const refusal = new OpenShellError("unauthenticated", "the session is over");
    gateway.refuseRefresh.push(refusal, refusal);
    await gateway.tokens.next((line) => line.startsWith("refreshed"));
    gateway.tokenLifeMs = 3_600_000;
    await states.next((state) => !isReady(state));
    await states.next(isReady);
    expect(gateway.tokens.seen.at(-1)).toBe("issued for Bearer projected");
    expect(gateway.hellos.seen.map((hello) => hello.connectionEpoch)).toEqual([1n, 2n]);
  });

  it("ends when the gateway refuses to renew its token and issues no other", async () => {
    gateway.tokenLifeMs = 1500;
    await startReady();
    const refusal = new OpenShellError("permission-denied", "this supervisor has its session already");
    gateway.refuseExchange.push(...Array<OpenShellError>(5).fill(refusal));
    gateway.refuseRefresh.push(...Array<OpenShellError>(6).fill(new OpenShellError("unauthenticated", "expired")));
    expect(await end).toMatchObject({ reason: "CredentialLost" });
  });

  it("ends when its gateway comes to show certificates of another issuer only", async () => {
    const { port } = gateway;
    gateway.server.forceShutdown();
    gateway = new TestGateway();
    await gateway.listen(port, await authority.issue("localhost"));
    await startReady({ gatewayCa: authority.certificate });
    const before = looks;
    await vi.waitUntil(() => looks > before + 1, { timeout: 10_000 });
    gateway.server.forceShutdown();
    gateway = new TestGateway();
    await gateway.listen(port, await (await testAuthority()).issue("localhost"));
    expect((await end).reason).toBe("GatewayDistrusted");
  });

  it("ends with a named reason when the runtime refuses its session", async () => {
    runtime.refuse = { reason: boundary.SessionRefused_Reason.OLDER_SESSION, message: "session 2 is in force" };
    start();
    expect(await end).toEqual({ reason: "Superseded", message: "session 2 is in force" });
  });

  it("never gets through the handshake of a runtime of another generation", async () => {
    const other = await testAuthority();
    start({ boundary: { ...(await other.issue("supervisor")) } });
    await states.next((state) => state.name === "running" && state.boundary.name === "lost");
    expect(runtime.hellos.seen).toEqual([]);
  });

  it("does not speak to a runtime whose certificate has another generation's name", async () => {
    start({ boundary: { serverName: "runtime.g2.openshell.internal" } });
    await states.next((state) => state.name === "running" && state.boundary.name === "lost");
    expect(runtime.hellos.seen).toEqual([]);
  });

  it("notices within its bound that the runtime fell silent, and takes up the session again", async () => {
    await startReady({ lostAfterMs: 500 });
    runtime.heartbeats = false;
    const lost = await states.next((state) => state.name === "running" && state.boundary.name === "lost");
    expect(lost).toMatchObject({ boundary: { reason: "HeartbeatLost" } });
    runtime.heartbeats = true;
    await states.next(isReady);
    expect(runtime.hellos.seen[1]?.instanceId).toBe(runtime.hellos.seen[0]?.instanceId);
  });

  it("ends when another runtime process answers", async () => {
    await startReady();
    runtime.instanceId = "runtime-2";
    runtime.drop();
    expect(await end).toMatchObject({ reason: "RuntimeEnded" });
  });

  it("accepts on its readiness port exactly while both sessions are up", async () => {
    await startReady({ lostAfterMs: 500 });
    await vi.waitUntil(() => supervisor.readinessPort !== undefined);
    const port = supervisor.readinessPort ?? 0;
    expect(await canConnect(port)).toBe(true);
    runtime.heartbeats = false;
    await states.next((state) => !isReady(state));
    expect(await canConnect(port)).toBe(false);
  });

  it("stops cleanly on request and closes both sessions", async () => {
    await startReady();
    stop.abort();
    expect(await end).toEqual({ reason: "Stopped", message: "asked to stop" });
  });

  it("reports the main process's exit until the gateway has it, and then that it is final", async () => {
    gateway.refuseReport.push(new OpenShellError("unavailable", "restarting"));
    await startReady();
    const state = boundary.MainProcessStatus_State.EXITED;
    runtime.send({ case: "mainProcess", value: { state, instanceId: "main-1", exitCode: 3 } });
    await gateway.exits.next((line) => line.startsWith("finalize"));
    expect(gateway.exits.seen).toEqual(["report main-1 3", "finalize main-1"]);
    const acknowledged = await runtime.frames.next((frame) => frame.case === "exitAcknowledged");
    expect(acknowledged.value).toMatchObject({ instanceId: "main-1" });
  });

  it("does not report a main process that will run again", async () => {
    await startReady();
    const State = boundary.MainProcessStatus_State;
    runtime.send({ case: "mainProcess", value: { state: State.RESTARTING, instanceId: "main-1", exitCode: 3 } });
    runtime.send({ case: "mainProcess", value: { state: State.EXITED, instanceId: "main-2", exitCode: 0 } });
    await gateway.exits.next((line) => line.startsWith("finalize"));
    expect(gateway.exits.seen).toEqual(["report main-2 0", "finalize main-2"]);
  });
});

describe("a relay", () => {
  it("carries bytes both ways and passes each end on", async () => {
    await startReady();
    gateway.open("c1", services.exec);
    const channel = await runtime.channels.next();
    channel.output.offer({ payload: { case: "opened", value: {} } });
    const relay = await gateway.relays.next();
    expect([channel.serviceId, relay.channelId]).toEqual([services.exec, "c1"]);
    relay.output.offer(data("in"));
    expect(textOf(await channel.input.next())).toBe("in");
    channel.output.offer(data("out"));
    expect(textOf(await relay.input.next())).toBe("out");
    channel.output.end();
    expect((await relay.input.next()).done).toBe(true);
    relay.output.end();
    const result = await gateway.messages.next((message) => message.case === "relayOpenResult");
    expect(result.value).toMatchObject({ channelId: "c1", success: true });
  });

  it("half-closes a raw connection on an empty data frame and still carries the answer", async () => {
    await startReady();
    gateway.open("c1", services.tcp);
    const channel = await runtime.channels.next();
    channel.output.offer({ payload: { case: "opened", value: {} } });
    const relay = await gateway.relays.next();
    relay.output.offer(data("question"));
    relay.output.offer(data(""));
    expect(textOf(await channel.input.next())).toBe("question");
    expect((await channel.input.next()).done).toBe(true);
    channel.output.offer(data("answer"));
    expect(textOf(await relay.input.next())).toBe("answer");
    relay.output.end();
  });

  it.each([services.exec, services.files])("of %s keeps all that was sent for a slow reader", async (serviceId) => {
    const rawLingerMs = 20;
    await startReady({ rawLingerMs });
    gateway.open("c1", serviceId);
    const channel = await runtime.channels.next();
    channel.output.offer({ payload: { case: "opened", value: {} } });
    const relay = await gateway.relays.next();
    for (let sent = 0; sent < 20; sent += 1) {
      await channel.output.push({ payload: { case: "data", value: new Uint8Array(64 * 1024) } });
    }
    channel.output.end();
    // The reader is slower than what a raw connection would be given.
    await sleep(25 * rawLingerMs);
    let received = 0;
    while ((await relay.input.next()).done !== true) received += 1;
    expect(received).toBe(20);
    relay.output.end();
  });

  it("of a raw connection ends at last though the gateway never ends its side", async () => {
    await startReady({ rawLingerMs: 20 });
    gateway.open("c1", services.tcp);
    const channel = await runtime.channels.next();
    channel.output.offer({ payload: { case: "opened", value: {} } });
    const relay = await gateway.relays.next();
    channel.output.end();
    await new Promise((resolve) => relay.signal.addEventListener("abort", resolve));
  });

  it("stops a sender whose receiver does not read", async () => {
    await startReady();
    gateway.open("c1", services.files);
    const channel = await runtime.channels.next();
    channel.output.offer({ payload: { case: "opened", value: {} } });
    const relay = await gateway.relays.next();
    const chunk = new Uint8Array(64 * 1024);
    let sent = 0;
    const sending = (async () => {
      while (await channel.output.push({ payload: { case: "data", value: chunk } })) sent += 1;
    })();
    // Nothing is read until the sender has stood still for a while: 64 MiB would pass in far less.
    await vi.waitUntil(
      (() => {
        let before = -1;
        return () => {
          const still = sent > 0 && sent === before;
          before = sent;
          return still;
        };
      })(),
      { interval: 300, timeout: 10_000 },
    );
    expect(sent).toBeLessThan(64);
    const stoodAt = sent;
    let received = 0;
    while (received <= stoodAt) if (!(await relay.input.next()).done) received += 1;
    channel.output.end();
    await sending;
    relay.output.end();
  });

  it("ends the channel when the gateway closes the relay", async () => {
    await startReady();
    gateway.open("c1", services.exec);
    const channel = await runtime.channels.next();
    channel.output.offer({ payload: { case: "opened", value: {} } });
    await gateway.relays.next();
    const aborted = new Promise((resolve) => channel.signal.addEventListener("abort", resolve));
    gateway.send({ payload: { case: "relayClose", value: { channelId: "c1", reason: "client went away" } } });
    await aborted;
  });

  it("hands the runtime's refusal to the gateway", async () => {
    await startReady();
    gateway.open("c1", services.exec);
    const channel = await runtime.channels.next();
    const code = statusNumber("failed-precondition");
    channel.output.offer({ payload: { case: "refused", value: { code, message: "not fenced yet" } } });
    const result = await gateway.messages.next((message) => message.case === "relayOpenResult");
    expect(result.value).toMatchObject({ channelId: "c1", success: false, error: "not fenced yet" });
  });

  it("is refused for a service that nobody serves", async () => {
    await startReady();
    gateway.open("c1", "openshell.boundary.v1/nothing");
    const result = await gateway.messages.next((message) => message.case === "relayOpenResult");
    expect(result.value).toMatchObject({ channelId: "c1", success: false });
  });

  it("for launch takes the main process and tells the current state first, then each change", async () => {
    await startReady();
    const State = boundary.FenceStatus_State;
    runtime.send({ case: "fence", value: { state: State.PROBING } });
    gateway.open("c1", services.launch);
    const relay = await gateway.relays.next();
    const events = new Log<boundary.LaunchEvent["payload"]>();
    void (async () => {
      const decoder = new FrameDecoder(boundary.LaunchEventSchema);
      for (;;) {
        const next = await relay.input.next();
        if (next.done === true) return;
        if (next.value.payload.case !== "data") continue;
        for (const event of decoder.push(next.value.payload.value)) events.add(event.payload);
      }
    })().catch(() => {});
    expect(await events.next()).toMatchObject({ case: "boundary", value: { connected: true } });
    await events.next((event) => event.case === "fence" && event.value.state === State.PROBING);

    const launch = create(boundary.LaunchSchema, { command: ["sleep", "1"] });
    const value = encodeFrame(boundary.LaunchRequestSchema, { launch });
    relay.output.offer({ payload: { case: "data", value } });
    const frame = await runtime.frames.next((payload) => payload.case === "launch");
    expect(frame.value).toMatchObject({ command: ["sleep", "1"] });
    runtime.send({ case: "fence", value: { state: State.FENCED } });
    await events.next((event) => event.case === "fence" && event.value.state === State.FENCED);

    runtime.drop();
    await events.next((event) => event.case === "boundary" && !event.value.connected);
    const again = await runtime.frames.next((payload) => payload.case === "launch");
    expect(again.value).toMatchObject({ command: ["sleep", "1"] });
    relay.output.end();
  });
});

function canConnect(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}
