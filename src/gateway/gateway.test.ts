import { describe, expect, it } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import { createLogger } from "../common/log.ts";
import { boundary, openshell } from "../wire/index.ts";
import { inDefault, TestGateway, untilPhase } from "./_testing.ts";
import { about, create, exec, ready, supervise } from "./_testing-sandbox.ts";
import { TestSupervisor } from "./_testing-supervisor.ts";

const { SandboxPhase, DeletionOutcome } = openshell;

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
    expect(echoed.largest).toBeLessThanOrEqual(64 * 1024);

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

describe("a gateway whose address is taken", () => {
  it.each(["bind", "health", "metrics"] as const)("does not start, and names the setting (%s)", async (which) => {
    await using first = await TestGateway.start();
    const taken = { host: "127.0.0.1", port: first.gateway.port };
    await expect(TestGateway.start({ [which]: taken })).rejects.toMatchObject({
      code: "unavailable",
      message:
        `${which}_address: cannot listen on 127.0.0.1:${taken.port}: another program listens there; end it, or choose another port`.replace(
          /^(health|metrics)_/,
          "$1_bind_",
        ),
    });
    // The one that is there goes on.
    expect((await first.client.health({})).version).toBe("1.2.3");
  });

  it("says that an address is of another machine", async () => {
    const elsewhere = { host: "192.0.2.1", port: 8080 };
    await expect(TestGateway.start({ bind: elsewhere })).rejects.toThrow(
      "bind_address: cannot listen on 192.0.2.1:8080: this machine has no such address",
    );
  });
});

it("tells a caller of what nobody foresaw an id alone, under which the log has the rest", async () => {
  const lines: string[] = [];
  const log = createLogger({ name: "test", level: "error", destination: { write: (line) => lines.push(line) } });
  await using test = await TestGateway.start({ log });
  test.driver.refuse.set("validate", new Error("connect ECONNREFUSED 10.1.2.3:443") as OpenShellError);
  const error = await create(test, "one").catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code: "internal" });
  const [, id = ""] =
    /^internal error; the gateway's log has it with the id ([0-9a-f-]{36})$/.exec(String((error as Error).message)) ??
    [];
  expect(id).not.toBe("");
  expect(lines).toEqual([expect.stringContaining(id)]);
  expect(lines[0]).toContain("10.1.2.3");
});

it("logs a refused call by its sentence, code and details, and with its stack where something else is behind it", async () => {
  const lines: Record<string, unknown>[] = [];
  const destination = { write: (line: string) => lines.push(JSON.parse(line)) };
  const log = createLogger({ name: "test", level: "debug", destination });
  await using test = await TestGateway.start({ log });
  await test.client.getSandbox(about("absent")).catch(() => {});
  const refusal = lines.find(({ rpc }) => rpc === "GetSandbox");
  expect(refusal).toMatchObject({
    code: "not-found",
    details: { reason: "SandboxNotFound" },
    msg: "sandbox absent not found in workspace default",
  });
  expect(refusal).not.toHaveProperty("err");
  const behind = new OpenShellError("failed-precondition", "no such class", {
    cause: new Error("what the cluster said"),
  });
  test.driver.refuse.set("validate", behind);
  await create(test, "one").catch(() => {});
  const [caused] = lines.filter(({ rpc }) => rpc === "CreateSandbox");
  expect(caused).toMatchObject({
    msg: "no such class",
    err: { stack: expect.stringContaining("what the cluster said") },
  });
});
