import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { retry } from "../../src/common/async.ts";
import { containers } from "../../src/manifests/names.ts";
import type { Conformance, NewSandbox } from "./conformance.ts";
import type { TestSandbox } from "./test-sandbox.ts";
import type { Sandbox, SandboxWait } from "./waits.ts";

/** Counts in its memory, ten times a second; what it has counted to is in a file. */
const counter =
  "echo started >> /sandbox/starts; i=0; while :; do i=$((i+1)); echo $i > /sandbox/next; mv /sandbox/next /sandbox/count; sleep 0.1; done";

/** A sandbox whose main process shows by its counting that it is the same one, and that it runs. */
export class CountingSandbox implements AsyncDisposable {
  readonly #suite: Conformance;
  readonly sandbox: TestSandbox;

  private constructor(suite: Conformance, sandbox: TestSandbox) {
    this.#suite = suite;
    this.sandbox = sandbox;
  }

  static async create(suite: Conformance, options: Pick<NewSandbox, "driverConfig"> = {}): Promise<CountingSandbox> {
    return new CountingSandbox(suite, await suite.create({ command: ["sh", "-c", counter], ...options }));
  }

  /** Makes one and waits until it counts. */
  static async running(suite: Conformance, options: Pick<NewSandbox, "driverConfig"> = {}): Promise<CountingSandbox> {
    await using undo = new AsyncDisposableStack();
    const counting = undo.use(await CountingSandbox.create(suite, options));
    await counting.sandbox.ready();
    await counting.countsOn(0);
    undo.move();
    return counting;
  }

  get id(): string {
    return this.sandbox.id;
  }

  get name(): string {
    return this.sandbox.name;
  }

  until(wait: SandboxWait): Promise<Sandbox> {
    return this.sandbox.until(wait);
  }

  /** What it has counted to, as a client sees it. */
  async count(): Promise<number> {
    return Number((await this.sandbox.exec(["cat", "/sandbox/count"])).stdout);
  }

  /** The same past the gateway and the supervisor, for the time in which there is none. */
  async #countSeenByKubelet(): Promise<number> {
    const { namespace, name } = (this.#suite.podOf(this.sandbox, "workload") ?? expect.fail("no workload Pod"))
      .metadata;
    const command = ["exec", name, "-c", containers.agent, "--", "cat", "/sandbox/count"];
    // The freezer's patrol stops what comes from outside, too; a `cat` that it meets never ends.
    return retry(async () =>
      Number(await this.#suite.kubectl(["-n", namespace ?? "", ...command], { timeoutMs: 5_000 })),
    );
  }

  /** Asserts that it does not count, past the gateway; gives what it has counted to. */
  async frozen(): Promise<number> {
    const count = await this.#countSeenByKubelet();
    // Time for fifteen more: that nothing happens can only be waited for.
    await sleep(1500);
    expect(await this.#countSeenByKubelet()).toBe(count);
    return count;
  }

  /** Waits until the same process has counted beyond `count`. */
  async countsOn(count: number): Promise<void> {
    const further = () => this.count().catch(() => 0);
    await expect.poll(further, { timeout: 60_000, interval: 250 }).toBeGreaterThan(count);
    // The connection over which it was told may have been a lost supervisor's last.
    const starts = () => this.sandbox.exec(["cat", "/sandbox/starts"]).then(({ stdout }) => stdout, String);
    await expect.poll(starts, { timeout: 20_000, interval: 250 }).toBe("started\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.sandbox[Symbol.asyncDispose]();
  }
}
