import { expect } from "vitest";
import { hasCode } from "../../src/common/errors.ts";
import { type Conformance, type Pair, randomName } from "./conformance.ts";
import { CountingSandbox } from "./counting-sandbox.ts";
import { leftOf } from "./outcome.ts";
import type { TestSandbox } from "./test-sandbox.ts";
import { phase } from "./waits.ts";

const steps = ["creating", "stopping", "starting", "deleting"] as const;
export type Step = (typeof steps)[number];

/** Four sandboxes, each before another step of its life, and a fifth that runs all the time. */
export class Lives implements AsyncDisposable {
  readonly #suite: Conformance;
  readonly #running: CountingSandbox;
  readonly #pair: Pair;
  readonly #count: number;
  readonly #sandboxes: Readonly<Record<Exclude<Step, "creating">, TestSandbox>>;
  #hasLostSupervisor = false;
  readonly #createdName = randomName();
  #created: TestSandbox | undefined;

  private constructor(parts: {
    suite: Conformance;
    running: CountingSandbox;
    pair: Pair;
    count: number;
    sandboxes: Readonly<Record<Exclude<Step, "creating">, TestSandbox>>;
  }) {
    this.#suite = parts.suite;
    this.#running = parts.running;
    this.#pair = parts.pair;
    this.#count = parts.count;
    this.#sandboxes = parts.sandboxes;
  }

  static async prepare(suite: Conformance): Promise<Lives> {
    await using undo = new AsyncDisposableStack();
    const running = undo.use(await CountingSandbox.running(suite));
    const ready = async () => {
      const sandbox = undo.use(await suite.create());
      await sandbox.ready();
      return sandbox;
    };
    const [stopping, starting, deleting] = await Promise.all([ready(), ready(), ready()]);
    await starting.exec(["sh", "-c", "echo kept > /sandbox/kept"]);
    await starting.stop();
    await starting.until(phase("STOPPED"));
    const [pair, count] = [await suite.pair(running), await running.count()];
    undo.move();
    return new Lives({ suite, running, pair, count, sandboxes: { stopping, starting, deleting } });
  }

  /** Name of the Sandbox resource in each step, given a number for each. */
  points(counts: Readonly<Record<Step, number>>): ReadonlyMap<string, number> {
    const nameOf = (step: Step) =>
      step === "creating" ? `${this.#suite.workspace}--${this.#createdName}` : this.#sandboxes[step].resourceName;
    return new Map(steps.map((step) => [nameOf(step), counts[step]]));
  }

  /** Asks for all four steps at once. What becomes of a call that a fault meets is left open: what was asked for has to come about. */
  async begin(): Promise<void> {
    const { stopping, starting, deleting } = this.#sandboxes;
    const calls = [
      this.#suite.create({ name: this.#createdName }),
      stopping.stop(),
      starting.start(),
      deleting.delete(),
    ];
    for (const call of await Promise.allSettled(calls)) {
      if (call.status === "rejected" && !hasCode(call.reason, "unavailable", "deadline-exceeded", "cancelled"))
        throw call.reason;
    }
  }

  /** Takes the supervisor of the one that runs away: another is to come, and the workload to stay. */
  async loseSupervisor(): Promise<void> {
    const { name, namespace = "" } = this.#pair.supervisor.metadata;
    this.#hasLostSupervisor = true;
    await this.#suite.kubectl(["-n", namespace, "delete", "pod", name, "--wait=false"]);
  }

  /** Waits until every sandbox is where it was sent, and asserts that it is whole and that nothing else is left. */
  async settled(): Promise<void> {
    const { stopping, starting, deleting } = this.#sandboxes;
    const created = await this.#suite.find(this.#createdName);
    this.#created = created;
    for (const sandbox of [created, starting]) {
      await sandbox.until(phase("READY", 150_000));
      expect(await sandbox.exec(["echo", "here"])).toMatchObject({ stdout: "here\n" });
      const kinds = async () => (await leftOf(this.#suite, sandbox)).map((object) => object.split("/")[0]);
      await expect.poll(kinds, { timeout: 60_000 }).toEqual(["pod", "pod", "secret", "secret", "service"]);
    }
    expect(await starting.exec(["cat", "/sandbox/kept"])).toMatchObject({ stdout: "kept\n" });
    await stopping.until(phase("STOPPED"));
    const ofStopped = async () =>
      (await leftOf(this.#suite, stopping)).filter((object) => !object.startsWith("service/"));
    await expect.poll(ofStopped, { timeout: 60_000 }).toEqual([]);
    await deleting.gone();
    await expect.poll(() => leftOf(this.#suite, deleting), { timeout: 60_000 }).toEqual([]);

    const { workload, supervisor } = this.#pair;
    const isAsSent = (pair: Pair) =>
      (pair.supervisor.metadata.uid !== supervisor.metadata.uid) === this.#hasLostSupervisor;
    const after = await this.#suite.pair(this.#running, "the supervisor", isAsSent);
    expect(after.workload.metadata.uid).toBe(workload.metadata.uid);
    await this.#running.until(phase("READY"));
    await this.#running.countsOn(this.#count);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const created = this.#created ?? (await this.#suite.find(this.#createdName).catch(() => undefined));
    const all = [this.#running, ...Object.values(this.#sandboxes), ...(created === undefined ? [] : [created])];
    await Promise.all(all.map((sandbox) => sandbox[Symbol.asyncDispose]()));
  }
}
