import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import { boundary, openshell } from "../wire/index.ts";
import { inDefault, TestGateway, untilPhase } from "./_testing.ts";
import { MemoryDriver } from "./_testing-driver.ts";
import { TestSupervisor, type TestSupervisorOptions } from "./_testing-supervisor.ts";

const { SandboxPhase, DeletionOutcome } = openshell;

type Spec = Parameters<TestGateway["client"]["createSandbox"]>[0]["spec"];

async function create(test: TestGateway, name: string, spec: Spec = {}): Promise<string> {
  const { sandbox } = await test.client.createSandbox({ workspaceScope: inDefault, name, spec });
  return sandbox?.metadata?.id ?? "";
}

async function supervise(test: TestGateway, sandboxId: string, options: Partial<TestSupervisorOptions> = {}) {
  const supervisor = new TestSupervisor({ client: test.client, sandboxId, ...options });
  await supervisor.authenticate();
  supervisor.connect();
  return supervisor;
}

/** A sandbox that is READY, and its supervisor. */
async function ready(test: TestGateway, name: string, spec: Spec = {}, serve?: TestSupervisorOptions["serve"]) {
  const id = await create(test, name, spec);
  const supervisor = await supervise(test, id, serve === undefined ? {} : { serve });
  const launch = await supervisor.serveWorkload();
  await untilPhase(test.client, name, "READY");
  return { id, supervisor, launch };
}

async function exec(test: TestGateway, name: string, stdin = "") {
  const seen = { stdout: "", stderr: "", exit: -1, events: [] as string[] };
  const request = { workspaceScope: inDefault, sandbox: name, command: ["say", "it"], stdin: Buffer.from(stdin) };
  for await (const { payload } of test.client.execSandbox(request)) {
    seen.events.push(String(payload.case));
    if (payload.case === "exit") seen.exit = payload.value.exitCode;
    else if (payload.case !== undefined) {
      expect(payload.value.data.length).toBeLessThanOrEqual(64 * 1024);
      seen[payload.case] += Buffer.from(payload.value.data).toString();
    }
  }
  return seen;
}

const about = (name: string) => ({ workspaceScope: inDefault, name });

describe("a gateway with a supervisor", () => {
  it("takes a sandbox from creation over READY, exec, stop and start to its deletion", async () => {
    await using test = await TestGateway.start();
    const { supervisor, launch, id } = await ready(test, "one", {
      environment: { A: "1" },
      template: { environment: { A: "0", B: "2" } },
    });
    expect(launch.baseEnvironment).toEqual({ A: "1", B: "2" });
    const printed = JSON.stringify(test.driver.created, (_key, value) => (typeof value === "bigint" ? 0 : value));
    expect(printed).not.toContain('"B"');

    expect(await exec(test, "one", "hello")).toMatchObject({ stdout: "hello", stderr: "say it", exit: 3 });
    const big = "x".repeat(3_000_000);
    const echoed = await exec(test, "one", big);
    expect(echoed.stdout === big).toBe(true);
    expect(echoed.events.filter((one) => one === "exit")).toEqual(["exit"]);
    expect(echoed.events.at(-1)).toBe("exit");

    await test.client.stopSandbox(about("one"));
    await untilPhase(test.client, "one", "STOPPED");
    const started = await test.client.startSandbox(about("one"));
    expect(started.sandbox?.status?.phase).toBe(SandboxPhase.STARTING);
    expect(await supervisor.ended.promise).toMatchObject({ code: "permission-denied" });

    await using second = await supervise(test, id);
    await second.serveWorkload();
    await untilPhase(test.client, "one", "READY");
    expect((await exec(test, "one")).exit).toBe(0);

    const deleted = await test.client.deleteSandbox(about("one"));
    expect(deleted.sandboxId).toBe(id);
    expect([DeletionOutcome.ACCEPTED, DeletionOutcome.COMPLETED]).toContain(deleted.outcome);
    await expect(test.client.getSandbox(about("one"))).rejects.toMatchObject({ code: "not-found" });
    await expect(test.client.deleteSandbox(about("one"))).rejects.toMatchObject({ code: "not-found" });
    expect(await test.client.deleteSandbox({ ...about("one"), allowMissing: true })).toMatchObject({
      outcome: DeletionOutcome.ALREADY_ABSENT,
    });
  });

  it("freezes with its supervisor and answers exec with when to try again", async () => {
    await using test = await TestGateway.start();
    const { supervisor, id } = await ready(test, "one");
    await supervisor[Symbol.asyncDispose]();
    const frozen = await untilPhase(test.client, "one", "STARTING");
    const connected = frozen.status?.conditions.find(({ type }) => type === "SupervisorConnected");
    expect(connected).toMatchObject({ status: "False", reason: "ReplacingSupervisor" });
    await expect(exec(test, "one")).rejects.toMatchObject({ code: "unavailable", details: { retryAfterMs: 2_000 } });
    // The same process is back, with its token.
    const again = new TestSupervisor({ client: test.client, sandboxId: id });
    again.token = supervisor.token;
    again.connect(5n);
    await again.serveWorkload();
    await untilPhase(test.client, "one", "READY");
    await again[Symbol.asyncDispose]();
  });

  it("lets a newer connection of the same supervisor replace the older one, and no other instance", async () => {
    await using test = await TestGateway.start();
    const { supervisor, id } = await ready(test, "one");
    await using other = new TestSupervisor({ client: test.client, sandboxId: id, instanceId: "instance-2" });
    other.token = supervisor.token;
    other.connect(9n);
    await expect(other.accepted.promise).rejects.toThrow(/belongs to supervisor instance instance-1/);

    await using newer = new TestSupervisor({ client: test.client, sandboxId: id });
    newer.token = supervisor.token;
    newer.connect(2n);
    expect(await supervisor.ended.promise).toMatchObject({ code: "aborted" });
    await newer.serveWorkload();
    await untilPhase(test.client, "one", "READY");
  });

  it("gives a connected supervisor no second session, and makes the token before a new session void", async () => {
    await using test = await TestGateway.start();
    const id = await create(test, "one");
    const supervisor = new TestSupervisor({ client: test.client, sandboxId: id });
    await supervisor.authenticate();
    const first = supervisor.headers;
    await supervisor.authenticate();
    await expect(test.client.refreshSandboxToken({}, { headers: first })).rejects.toMatchObject({
      code: "unauthenticated",
      details: { reason: "SessionOver" },
    });
    supervisor.connect();
    await supervisor.accepted.promise;
    await expect(supervisor.authenticate()).rejects.toMatchObject({ code: "permission-denied" });
    const { token } = await test.client.refreshSandboxToken({}, { headers: supervisor.headers });
    expect(token).not.toBe(supervisor.token);
    await supervisor[Symbol.asyncDispose]();
  });

  it.each([
    [0, "COMPLETED"],
    [7, "ERROR"],
  ] as const)("ends a run whose main process exits with %i in %s and stops its Pods", async (code, phase) => {
    await using test = await TestGateway.start();
    const { supervisor, id } = await ready(test, "one", { command: ["work"] });
    await using _ = supervisor;
    const of = { sandboxId: id, instanceId: "main-1" };
    const { headers } = supervisor;
    await test.client.reportMainProcessExit({ ...of, exitCode: code }, { headers });
    await test.client.reportMainProcessExit({ ...of, exitCode: 99 }, { headers });
    expect(test.driver.calls).not.toContain("stop");
    await test.client.finalizeMainProcessExit(of, { headers });
    const ended = await untilPhase(test.client, "one", phase);
    expect(ended.status?.exitCode).toBe(code);
    expect(test.driver.calls).toContain("stop");
    expect(test.driver.held.has(id)).toBe(true);
    const foreign = { ...of, sandboxId: "another", exitCode: 0 };
    await expect(test.client.reportMainProcessExit(foreign, { headers })).rejects.toMatchObject({
      code: "permission-denied",
    });
  });

  it("fails a sandbox whose NetworkPolicy the cluster does not enforce, and stops its Pods", async () => {
    await using test = await TestGateway.start();
    const id = await create(test, "one");
    await using supervisor = await supervise(test, id);
    await supervisor.launched.promise;
    await supervisor.tell({
      case: "fence",
      value: { state: boundary.FenceStatus_State.NOT_ENFORCED, reachable: "10.0.0.1:443" },
    });
    const { status } = await untilPhase(test.client, "one", "ERROR");
    expect(status?.conditions.find(({ type }) => type === "Ready")?.reason).toBe("NetworkPolicyNotEnforced");
    expect(status?.conditions.find(({ type }) => type === "Fenced")?.message).toContain("10.0.0.1:443");
  });

  it("loses an exec with the supervisor: unavailable, and no exit event", async () => {
    await using test = await TestGateway.start();
    const begun = Promise.withResolvers<void>();
    const { supervisor } = await ready(test, "one", {}, async (channel) => {
      for await (const _ of channel.readable) begun.resolve();
    });
    const running = exec(test, "one", "x");
    await begun.promise;
    await supervisor[Symbol.asyncDispose]();
    await expect(running).rejects.toMatchObject({ code: "unavailable" });
  });

  it("carries stdin and window sizes of an interactive exec as they come", async () => {
    await using test = await TestGateway.start();
    const { supervisor } = await ready(test, "one");
    await using _ = supervisor;
    const typed = Promise.withResolvers<void>();
    async function* typing() {
      yield {
        payload: {
          case: "start",
          value: { workspaceScope: inDefault, sandbox: "one", command: ["sh"] as string[], tty: true },
        },
      } as const;
      yield { payload: { case: "stdin", value: Buffer.from("a") } } as const;
      await typed.promise;
      yield { payload: { case: "resize", value: { cols: 100, rows: 40 } } } as const;
      yield { payload: { case: "stdin", value: Buffer.from("b") } } as const;
    }
    let output = "";
    let exit: number | undefined;
    for await (const { payload } of test.client.execSandboxInteractive(typing())) {
      if (payload.case === "stdout") output += Buffer.from(payload.value.data).toString();
      if (output === "a") typed.resolve();
      if (payload.case === "exit") exit = payload.value.exitCode;
    }
    expect({ output, exit }).toEqual({ output: "ab", exit: 3 });
  });

  it("forwards bytes to the files service without looking at them, both ways, to the end of each", async () => {
    await using test = await TestGateway.start();
    const services: string[] = [];
    const { supervisor } = await ready(test, "one", {}, async (channel, service) => {
      services.push(service);
      let bytes = 0;
      for await (const chunk of channel.readable) {
        bytes += chunk.length;
        await channel.write(chunk);
        if (bytes === 4_000_000) break;
      }
    });
    await using _ = supervisor;
    async function* frames() {
      const serviceId = "openshell.boundary.v1/files";
      yield { payload: { case: "init", value: { workspace: "default", sandbox: "one", serviceId } } } as const;
      for (let part = 0; part < 10; part += 1)
        yield { payload: { case: "data", value: Buffer.alloc(400_000, part) } } as const;
    }
    let bytes = 0;
    for await (const { payload } of test.client.forwardTcp(frames()))
      if (payload.case === "data") bytes += payload.value.length;
    expect(bytes).toBe(4_000_000);
    expect(services).toEqual(["openshell.boundary.v1/files"]);
  });
});

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

  it("keeps a create that the driver could not take now, and asks again", async () => {
    await using test = await TestGateway.start();
    test.driver.refuse.set("create", new OpenShellError("unavailable", "the cluster is away"));
    const { sandbox } = await test.client.createSandbox(about("one"));
    expect(sandbox?.status?.phase).toBe(SandboxPhase.PROVISIONING);
    await using _ = await supervised(test, sandbox?.metadata?.id ?? "");
    await untilPhase(test.client, "one", "READY");
    expect(test.driver.calls.filter((call) => call === "create")).toHaveLength(2);
  });

  it("goes on after a restart: a create that never arrived, a delete under way, a sandbox deleted behind its back", async () => {
    const directory = mkdtempSync(join(tmpdir(), "openshell-gateway-"));
    const databasePath = join(directory, "store.db");
    const driver = new MemoryDriver();
    driver.automatic = false;
    try {
      const ids: Record<string, string> = {};
      {
        await using test = await TestGateway.start({ databasePath, driver });
        for (const name of ["lost", "leaving", "kept"]) ids[name] = await create(test, name);
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
      expect(names).toEqual(["kept", "late", "lost"]);
      expect(test.gateway.unready()).toBeUndefined();
      // Started anew, it is made anew.
      await test.client.startSandbox(about("lost"));
      await using _ = await supervised(test, ids.lost ?? "", () => driver.report(ids.lost ?? "", "Running"));
      await untilPhase(test.client, "lost", "READY");
    } finally {
      rmSync(directory, { recursive: true });
    }
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

/** Connects a supervisor whose workload is up. */
async function supervised(test: TestGateway, id: string, before: () => void = () => {}) {
  for (;;) {
    try {
      const supervisor = await supervise(test, id);
      before();
      await supervisor.serveWorkload();
      return supervisor;
    } catch (error) {
      // The driver is asked again after a while; until then it knows no such token.
      if ((error as OpenShellError).code !== "unauthenticated") throw error;
    }
  }
}
