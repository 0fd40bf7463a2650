import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { hasCode } from "../../../src/common/errors.ts";
import { Breakpoints } from "../../support/breakpoints.ts";
import { randomName } from "../../support/conformance.ts";
import { canBreak, FaultSuite } from "../../support/fault-suite.ts";
import { leftOf } from "../../support/outcome.ts";
import type { TestSandbox } from "../../support/test-sandbox.ts";
import { phase } from "../../support/waits.ts";

let bench: FaultSuite;
/** Writes of a sandbox in each step of its life, as nobody disturbs it. */
const writes = { create: 0, stop: 0, start: 0, delete: 0 };

async function counted(sandbox: TestSandbox, act: () => Promise<unknown>): Promise<number> {
  const at = performance.now();
  await act();
  await bench.quiet();
  return bench.writesSince(at).get(sandbox.resourceName)?.length ?? 0;
}

const stopped = async (sandbox: TestSandbox) => {
  await sandbox.stop();
  await sandbox.until(phase("STOPPED"));
};

describe("a gateway that is killed", { skip: !canBreak }, () => {
  beforeAll(async () => {
    bench = await FaultSuite.open();
    const begin = performance.now();
    const sandbox = await bench.suite.create();
    await sandbox.ready();
    await bench.quiet();
    writes.create = bench.writesSince(begin).get(sandbox.resourceName)?.length ?? 0;
    writes.stop = await counted(sandbox, () => stopped(sandbox));
    writes.start = await counted(sandbox, async () => {
      await sandbox.start();
      await sandbox.ready();
    });
    writes.delete = await counted(sandbox, () => sandbox[Symbol.asyncDispose]());
  });

  afterAll(async () => bench?.[Symbol.asyncDispose]());

  /** 0 to `count`: before the first write, and after each. */
  const points = (count: number) => Array.from({ length: count + 1 }, (_, point) => point);

  /** Kills the gateway when of each sandbox as many writes as its place in the list were accepted. */
  async function killedAtEach(names: readonly string[], act: (name: string) => Promise<unknown>): Promise<number> {
    const { suite, proxy } = bench;
    const places = new Map(names.map((name, point) => [`${suite.workspace}--${name}`, point]));
    using held = new Breakpoints(bench.writes, places);
    using _fault = proxy.breaking(held.fault);
    // Some of these calls die with the gateway.
    const calls = Promise.allSettled(names.map(act));
    await held.reached();
    const at = performance.now();
    await bench.crash();
    await calls;
    return at;
  }

  async function expectWhole(sandbox: TestSandbox): Promise<void> {
    await sandbox.ready();
    // A gateway that has just begun shows what it had stored until it has heard of its sandboxes.
    const here = () =>
      sandbox.exec(["echo", "here"]).catch((error: unknown) => {
        if (!hasCode(error, "unavailable")) throw error;
      });
    await expect.poll(here, { timeout: 60_000 }).toMatchObject({ stdout: "here\n" });
    const kinds = async () => (await leftOf(bench.suite, sandbox)).map((object) => object.split("/")[0]);
    const whole = ["pod", "pod", "secret", "secret", "service"];
    await expect.poll(kinds, { timeout: 60_000 }).toEqual(whole);
  }

  async function expectOnly(count: number, at: number, most: number): Promise<void> {
    await bench.quiet();
    expect(bench.suite.resources.list()).toHaveLength(count);
    for (const [sandbox, made] of bench.writesSince(at)) {
      expect(made.length, `${sandbox}: ${made.join(", ")}`).toBeLessThanOrEqual(most);
    }
  }

  /** Deletes them all at once when the block ends, however it does. */
  const deleted = (sandboxes: readonly TestSandbox[]): AsyncDisposable => ({
    [Symbol.asyncDispose]: async () =>
      void (await Promise.all(sandboxes.map((sandbox) => sandbox[Symbol.asyncDispose]()))),
  });

  it("at each step of a create has lost none of the sandboxes, and each of them is whole", async () => {
    const { suite } = bench;
    expect(writes.create).toBeGreaterThanOrEqual(7);
    const names = points(writes.create).map(() => randomName());
    const at = await killedAtEach(names, (name) => suite.create({ name }));
    const sandboxes = await Promise.all(names.map((name) => suite.find(name)));
    await using _deleted = deleted(sandboxes);
    await Promise.all(sandboxes.map(expectWhole));
    await expectOnly(sandboxes.length, at, writes.create + 3);
  }, 600_000);

  it("at each step of a stop stops them all the same, and of each only its volume is left", async () => {
    const { suite } = bench;
    expect(writes.stop).toBeGreaterThanOrEqual(2);
    const sandboxes = await Promise.all(points(writes.stop).map(() => suite.create()));
    await using _deleted = deleted(sandboxes);
    await Promise.all(sandboxes.map((sandbox) => sandbox.ready()));
    await bench.quiet();
    const byName = new Map(sandboxes.map((sandbox) => [sandbox.name, sandbox]));
    const at = await killedAtEach([...byName.keys()], async (name) => byName.get(name)?.stop());
    for (const sandbox of sandboxes) {
      await sandbox.until(phase("STOPPED"));
      const left = async () => (await leftOf(suite, sandbox)).filter((object) => !object.startsWith("service/"));
      await expect.poll(left, { timeout: 60_000 }).toEqual([]);
    }
    await expectOnly(sandboxes.length, at, writes.stop + 1);
  }, 600_000);

  it("at each step of a start starts one generation of each, with the files of the one before", async () => {
    const { suite } = bench;
    expect(writes.start).toBeGreaterThanOrEqual(6);
    const sandboxes = await Promise.all(points(writes.start).map(() => suite.create()));
    await using _deleted = deleted(sandboxes);
    for (const sandbox of sandboxes) {
      await sandbox.ready();
      await sandbox.exec(["sh", "-c", "echo kept > /sandbox/kept"]);
    }
    await Promise.all(sandboxes.map(stopped));
    await bench.quiet();
    const byName = new Map(sandboxes.map((sandbox) => [sandbox.name, sandbox]));
    const at = await killedAtEach([...byName.keys()], async (name) => byName.get(name)?.start());
    await Promise.all(sandboxes.map(expectWhole));
    for (const sandbox of sandboxes) {
      expect(await sandbox.exec(["cat", "/sandbox/kept"])).toMatchObject({ stdout: "kept\n" });
    }
    await expectOnly(sandboxes.length, at, writes.start + 3);
  }, 600_000);

  it("at each step of a delete deletes them all the same, with everything that was theirs", async () => {
    const { suite } = bench;
    expect(writes.delete).toBeGreaterThanOrEqual(1);
    const sandboxes = await Promise.all(points(writes.delete).map(() => suite.create()));
    await using _deleted = deleted(sandboxes);
    await Promise.all(sandboxes.map((sandbox) => sandbox.ready()));
    await bench.quiet();
    const byName = new Map(sandboxes.map((sandbox) => [sandbox.name, sandbox]));
    const at = await killedAtEach([...byName.keys()], async (name) => byName.get(name)?.delete());
    for (const sandbox of sandboxes) {
      await sandbox.gone();
      await expect.poll(() => leftOf(suite, sandbox), { timeout: 60_000 }).toEqual([]);
    }
    await expectOnly(0, at, writes.delete + 1);
  }, 600_000);
});
