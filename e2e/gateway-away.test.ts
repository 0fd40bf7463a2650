/** A real supervisor at a real gateway that is away for longer than a session token lives. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { quiet, TestGateway, tokenKeys } from "../src/gateway/_testing.ts";
import { MemoryDriver } from "../src/gateway/_testing-driver.ts";
import { create } from "../src/gateway/_testing-sandbox.ts";
import { testAuthority } from "../src/supervisor/_test-certificates.ts";
import { Log, TestRuntime } from "../src/supervisor/_test-peers.ts";
import type { End, SupervisorState } from "../src/supervisor/state.ts";
import { Supervisor } from "../src/supervisor/supervisor.ts";

const serverName = "runtime.g1.openshell.internal";
const tokenTtlSeconds = 2;
const keys = tokenKeys();

let directory: string;
let driver: MemoryDriver;
let gateway: TestGateway;
let runtime: TestRuntime;
let end: Promise<End> | undefined;
const stop = new AbortController();

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), "openshell-away-"));
  driver = new MemoryDriver();
  gateway = await startGateway(0);
  runtime = new TestRuntime();
});

afterEach(async () => {
  stop.abort();
  await end;
  runtime.server.forceShutdown();
  await gateway[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true });
});

function startGateway(port: number): Promise<TestGateway> {
  const bind = { host: "127.0.0.1", port };
  return TestGateway.start({
    bind,
    driver,
    tokenTtlSeconds,
    tokenKeys: keys,
    databasePath: join(directory, "store.db"),
  });
}

async function startSupervisor(sandboxId: string): Promise<Log<SupervisorState>> {
  const authority = await testAuthority();
  await runtime.listen(authority.certificate, await authority.issue(serverName));
  const tokenFile = join(directory, "token");
  writeFileSync(tokenFile, `projected.${sandboxId}`);
  const states = new Log<SupervisorState>();
  const supervisor = new Supervisor({
    settings: {
      sandboxId,
      generationId: "g1",
      podUid: "uid-1",
      logLevel: "error",
      readinessPort: 0,
      gateway: { target: `127.0.0.1:${gateway.gateway.port}`, tls: false, tokenFile },
      boundary: {
        target: `127.0.0.1:${runtime.port}`,
        serverName,
        ca: authority.certificate,
        ...(await authority.issue("supervisor")),
        grant: "grant-jws",
      },
    },
    build: "test",
    log: quiet,
    boundaryTiming: { intervalMs: 20, lostAfterMs: 30_000, retryMs: 5 },
    onState: (state) => states.add(state),
  });
  end = supervisor.run(stop.signal);
  return states;
}

/** The name of the session over which the supervisor is connected next. */
async function nextSession(states: Log<SupervisorState>): Promise<string> {
  const state = await states.next((one) => one.name === "ended" || linkOf(one)?.name === "connected");
  const link = linkOf(state);
  return link?.name === "connected" ? link.sessionId : JSON.stringify(state);
}

const linkOf = (state: SupervisorState) => (state.name === "running" ? state.gateway : undefined);

it("is outlived by the supervisor and by its session, each time", async () => {
  const { port } = gateway.gateway;
  const states = await startSupervisor(await create(gateway, "one"));
  const session = await nextSession(states);
  for (let outages = 0; outages < 2; outages += 1) {
    await gateway[Symbol.asyncDispose]();
    // A token that lives is not asked for: this one has run out.
    await states.next((one) => {
      const link = linkOf(one);
      return link?.name === "exchanging-token" && link.attempt >= 2;
    });
    gateway = await startGateway(port);
    const back = performance.now();
    expect(await nextSession(states)).toBe(session);
    expect(performance.now() - back).toBeLessThan(4000);
  }
});
