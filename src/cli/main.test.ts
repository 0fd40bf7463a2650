import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { TestGateway } from "./_test-gateway.ts";

const main = fileURLToPath(new URL("main.ts", import.meta.url));

let gateway: TestGateway;
let child: ChildProcess | undefined;

beforeEach(() => {
  gateway = new TestGateway();
});
afterEach(async () => {
  child?.kill("SIGKILL");
  await gateway[Symbol.asyncDispose]();
});

/** The command line as a process of its own, at the test gateway. */
function openshell(line: string) {
  const started = spawn(process.execPath, [main, ...line.split(" ")], {
    env: { HOME: "/nonexistent", OPENSHELL_GATEWAY_ENDPOINT: gateway.endpoint },
    stdio: ["ignore", "pipe", "pipe"],
  });
  child = started;
  return started;
}

describe("the process", () => {
  it.each(["SIGINT", "SIGTERM", "SIGHUP"] as const)(
    "deletes a sandbox that nobody is to keep at %s",
    async (signal) => {
      gateway.script = [["PROVISIONING"]];
      await gateway.start();
      const running = openshell("sandbox create --no-keep -- true");
      const exit = once(running, "exit");
      await expect.poll(() => gateway.watchers).toBe(1);
      running.kill(signal);
      expect(await exit).toEqual([130, null]);
      await expect.poll(() => gateway.sandboxes.size).toBe(0);
    },
  );

  it("does what it was told, though nobody reads what it says meanwhile", async () => {
    gateway.script = [["PROVISIONING", "Unschedulable: no node fits"], ["PROVISIONING", "Pulling: image"], ["READY"]];
    await gateway.start();
    const running = openshell("sandbox create --name box");
    running.stderr.destroy();
    const exit = once(running, "exit");
    expect(await text(running.stdout)).toMatch(/^NAME +PHASE.*\nbox +READY/);
    expect(await exit).toEqual([0, null]);
  });

  it("has the exit code of a command whose errors nobody reads", async () => {
    gateway.override = {
      async *execSandboxInteractive() {
        for (let count = 0; count < 5; count += 1) {
          yield { payload: { case: "stderr", value: { data: Buffer.alloc(1_000_000, "x") } } };
        }
        yield { payload: { case: "exit", value: { exitCode: 42 } } };
      },
    };
    await gateway.start();
    const running = openshell("sandbox exec box -- sh");
    const exit = once(running, "exit");
    await once(running.stderr, "data");
    running.stderr.destroy();
    expect(await exit).toEqual([42, null]);
  });
});
