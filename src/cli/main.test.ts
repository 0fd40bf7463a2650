import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
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
});
