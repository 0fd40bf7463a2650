import { describe, expect, it } from "vitest";
import { openshell } from "../wire/index.ts";
import { inDefault, TestGateway, untilPhase } from "./_testing.ts";
import { TestSupervisor } from "./_testing-supervisor.ts";

const { SandboxPhase, DeletionOutcome } = openshell;

/** A sandbox that is READY, and its supervisor. */
async function ready(
  test: TestGateway,
  name: string,
  spec: Parameters<TestGateway["client"]["createSandbox"]>[0]["spec"] = {},
) {
  const { sandbox } = await test.client.createSandbox({ workspaceScope: inDefault, name, spec });
  const supervisor = new TestSupervisor({ client: test.client, sandboxId: sandbox?.metadata?.id ?? "" });
  await supervisor.authenticate();
  supervisor.connect();
  const launch = await supervisor.serveWorkload();
  await untilPhase(test.client, name, "READY");
  return { sandbox, supervisor, launch };
}

async function exec(test: TestGateway, name: string, stdin = "") {
  const seen = { stdout: "", stderr: "", exit: -1, events: [] as string[] };
  const request = { workspaceScope: inDefault, sandbox: name, command: ["say", "it"], stdin: Buffer.from(stdin) };
  for await (const { payload } of test.client.execSandbox(request)) {
    seen.events.push(String(payload.case));
    if (payload.case === "exit") seen.exit = payload.value.exitCode;
    else if (payload.case !== undefined) seen[payload.case] += Buffer.from(payload.value.data).toString();
  }
  return seen;
}

describe("a gateway with a supervisor", () => {
  it("takes a sandbox from creation over READY, exec, stop and start to its deletion", async () => {
    await using test = await TestGateway.start();
    const { supervisor, launch, sandbox } = await ready(test, "one", {
      environment: { A: "1" },
      template: { environment: { A: "0", B: "2" } },
    });
    expect(launch.baseEnvironment).toEqual({ A: "1", B: "2" });
    expect(JSON.stringify(test.driver.created, (_key, value) => (typeof value === "bigint" ? 0 : value))).not.toContain(
      '"B"',
    );

    expect(await exec(test, "one", "hello")).toMatchObject({ stdout: "hello", stderr: "say it", exit: 3 });
    const big = "x".repeat(3_000_000);
    const echoed = await exec(test, "one", big);
    expect(echoed.stdout).toBe(big);
    expect(echoed.events.filter((one) => one === "exit")).toEqual(["exit"]);
    expect(echoed.events.at(-1)).toBe("exit");

    await test.client.stopSandbox({ workspaceScope: inDefault, name: "one" });
    await untilPhase(test.client, "one", "STOPPED");
    const started = await test.client.startSandbox({ workspaceScope: inDefault, name: "one" });
    expect(started.sandbox?.status?.phase).toBe(SandboxPhase.STARTING);
    expect(await supervisor.ended.promise).toMatchObject({ code: "permission-denied" });

    await using second = new TestSupervisor({ client: test.client, sandboxId: sandbox?.metadata?.id ?? "" });
    await second.authenticate();
    second.connect();
    await second.serveWorkload();
    await untilPhase(test.client, "one", "READY");
    expect((await exec(test, "one")).exit).toBe(0);

    const deleted = await test.client.deleteSandbox({ workspaceScope: inDefault, name: "one" });
    expect(deleted).toMatchObject({ outcome: DeletionOutcome.ACCEPTED, sandboxId: sandbox?.metadata?.id });
    await expect(test.client.getSandbox({ workspaceScope: inDefault, name: "one" })).rejects.toMatchObject({
      code: "not-found",
    });
  });
});
