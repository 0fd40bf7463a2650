import { type ChildProcess, type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync } from "node:fs";
import type { Readable } from "node:stream";
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
function openshell(line: string, output: ("pipe" | number)[] = ["pipe", "pipe"]) {
  const started = spawn(process.execPath, [main, ...line.split(" ")], {
    env: { HOME: "/nonexistent", OPENSHELL_GATEWAY_ENDPOINT: gateway.endpoint },
    stdio: ["ignore", ...output],
  }) as ChildProcessByStdio<null, Readable, Readable>;
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

  describe.skipIf(!existsSync("/dev/full"))("on a full disk", () => {
    let full: number;
    beforeEach(() => {
      full = openSync("/dev/full", "w");
    });
    afterEach(() => closeSync(full));

    it.each([
      ["sandbox list", 1],
      ["--help", 1],
      ["sandbox exec box -- ls", 125],
    ])('says of "%s" in one sentence that its output is lost, and ends with code %i', async (line, code) => {
      await gateway.start();
      const running = openshell(line, [full, "pipe"]);
      const exit = once(running, "exit");
      expect((await text(running.stderr)).split("\n").filter((said) => said !== "warned")).toEqual([
        expect.stringMatching(/^(warned)?openshell: standard output cannot be written: ENOSPC/),
        "",
      ]);
      expect(await exit).toEqual([code, null]);
    });

    it("does what it was told, though nothing can be said of it", async () => {
      gateway.script = [["PROVISIONING", "Pulling: image"], ["READY"], ["COMPLETED"]];
      await gateway.start();
      const running = openshell("sandbox create --no-keep -- true", ["pipe", full]);
      expect(await once(running, "exit")).toEqual([0, null]);
      expect(gateway.sandboxes.size).toBe(0);
    });
  });

  it("deletes every sandbox it was told to, though the reader of what it says leaves", async () => {
    await gateway.start();
    for (const name of ["a", "b", "c"]) gateway.put(name, "READY");
    const running = openshell("sandbox delete a b c");
    const exit = once(running, "exit");
    running.stdout.destroy();
    expect(await exit).toEqual([141, null]);
    expect(gateway.sandboxes.size).toBe(0);
  });

  it("ends what it runs when the reader of what it says has left", async () => {
    const ended = Promise.withResolvers<void>();
    gateway.override = {
      async *execSandboxInteractive(_requests, { signal }) {
        signal.addEventListener("abort", () => ended.resolve());
        while (!signal.aborted) {
          yield { payload: { case: "stdout", value: { data: Buffer.alloc(65_536, "y\n") } } };
        }
      },
    };
    await gateway.start();
    const running = openshell("sandbox exec box -- yes");
    const exit = once(running, "exit");
    await once(running.stdout, "data");
    running.stdout.destroy();
    expect(await exit).toEqual([141, null]);
    await ended.promise;
  });

  it("ends at the first SIGTERM, though the reader of what it says has stalled", async () => {
    let sent = 0;
    gateway.override = {
      async *execSandboxInteractive() {
        for (; ; sent += 1) {
          yield { payload: { case: "stdout", value: { data: Buffer.alloc(65_536, "y\n") } } };
        }
      },
    };
    await gateway.start();
    const running = openshell("sandbox exec box -- yes");
    const exit = once(running, "exit");
    let before = 0;
    const isStalled = () => {
      const isSame = sent > 8 && sent === before;
      before = sent;
      return isSame;
    };
    await expect.poll(isStalled, { interval: 200 }).toBe(true);
    running.kill("SIGTERM");
    expect(await exit).toEqual([130, null]);
  });
});
