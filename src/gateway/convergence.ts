import { type BackoffOptions, backoffMs, sleep } from "../common/async.ts";
import { type ErrorCode, OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import type { Client, compute } from "../wire/index.ts";
import { driverSandbox } from "./sandbox/driver-request.ts";
import { afterAction, type DriverAction, failed, found, nextAction } from "./sandbox/lifecycle.ts";
import type { Sandboxes } from "./sandbox/sandboxes.ts";
import type { SandboxRecord } from "./store/sandboxes.ts";

/** How long the driver has for one call, in milliseconds. */
const callTimeoutMs = 60_000;

/** Answers that another try would only repeat. */
const definitive: ReadonlySet<ErrorCode> = new Set([
  "invalid-argument",
  "already-exists",
  "permission-denied",
  "failed-precondition",
  "resource-exhausted",
  "out-of-range",
  "unimplemented",
]);

/** Whether asking the driver again would only get the same answer. */
export function isDefinitive(code: ErrorCode): boolean {
  return definitive.has(code);
}

export interface ConvergenceOptions {
  readonly sandboxes: Sandboxes;
  readonly driver: Client<typeof compute.ComputeDriver>;
  readonly log: Logger;
  readonly signal: AbortSignal;
  /** Before the driver is asked again. */
  readonly backoff?: BackoffOptions;
}

/** One call to the driver, and the pause after it when it is to be made again. */
interface Work {
  action: DriverAction | undefined;
  /** Aborted when something else is wanted meanwhile. */
  readonly overtaken: AbortController;
}

/** Whoever waits for the outcome of one kind of call. */
interface Waiter extends PromiseWithResolvers<void> {
  readonly action: DriverAction;
}

/**
 * Tells the driver what is wanted of each sandbox, one call at a time per sandbox, until it has accepted. The store is always written
 * first, every call may be repeated, so a gateway that dies anywhere goes on from the store.
 */
export class Convergence {
  readonly #options: ConvergenceOptions;
  readonly #working = new Map<string, Work>();
  readonly #waiters = new Map<string, readonly Waiter[]>();

  constructor(options: ConvergenceOptions) {
    this.#options = options;
  }

  /**
   * Goes on with a sandbox where something is left to do. What waits to ask for something else again waits no longer, nor does a start or a
   * stop that the driver has not answered: one that waits for a lost node would keep a delete from being asked for.
   */
  kick({ id, lifecycle }: SandboxRecord): void {
    const action = nextAction(lifecycle);
    const work = this.#working.get(id);
    if (work !== undefined) {
      if (work.action !== action) work.overtaken.abort();
    } else if (action !== undefined) {
      void this.#work(id);
    }
  }

  /**
   * The outcome of the sandbox's next call of this kind: resolves when the driver accepted it or has to be asked again later, and when nothing
   * is left to ask.
   * @throws what the driver refused it with
   */
  outcome(id: string, action: DriverAction): Promise<void> {
    if (!this.#working.has(id)) return Promise.resolve();
    const waiter = { action, ...Promise.withResolvers<void>() };
    this.#waiters.set(id, [...(this.#waiters.get(id) ?? []), waiter]);
    return waiter.promise;
  }

  async #work(id: string): Promise<void> {
    const { sandboxes, log, signal, backoff } = this.#options;
    let before: DriverAction | undefined;
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      const work: Work = { action: undefined, overtaken: new AbortController() };
      this.#working.set(id, work);
      try {
        const record = sandboxes.byId(id);
        const action = record === undefined ? undefined : nextAction(record.lifecycle);
        if (record === undefined || action === undefined) break;
        if (action !== before) attempt = 0;
        before = action;
        work.action = action;
        if (await this.#attempt(record, action, work.overtaken.signal, attempt)) {
          attempt = -1;
          continue;
        }
      } catch (error) {
        if (!signal.aborted)
          log.error({ err: error, sandbox: id, attempt }, "the store failed; the driver is asked again");
      }
      this.#settle(id, work.action);
      const until = AbortSignal.any([signal, work.overtaken.signal]);
      await sleep(backoffMs(attempt, { initialMs: 250, ...backoff }), until).catch(() => {});
    }
    this.#working.delete(id);
    this.#settle(id);
  }

  /**
   * @returns false when the same call is to be made again, later
   * @throws what the store cannot be read or written with
   */
  async #attempt(
    record: SandboxRecord,
    action: DriverAction,
    overtaken: AbortSignal,
    attempt: number,
  ): Promise<boolean> {
    const { log, signal } = this.#options;
    try {
      await this.#perform(record, action, overtaken);
      this.#settle(record.id, action);
      return true;
    } catch (thrown) {
      if (signal.aborted) return false;
      const error = OpenShellError.from(thrown);
      const level = overtaken.aborted && error.code === "cancelled" ? "debug" : "warn";
      log[level]({ err: error, sandbox: record.id, action, attempt }, "the driver did not do what was asked");
      return this.#giveUp(record, action, error);
    }
  }

  /** True when another try makes no sense; the sandbox then says why. */
  #giveUp({ id }: SandboxRecord, action: DriverAction, error: OpenShellError): boolean {
    const { sandboxes } = this.#options;
    if (action === "stop" || action === "delete" || action === "start") {
      if (error.code === "not-found") {
        sandboxes.missing(id);
        return true;
      }
    }
    if (action === "stop" || action === "delete") return false;
    if (!isDefinitive(error.code)) {
      // Nobody knows what becomes of a start that was not answered. Where it is not wanted any more, it is to be stopped.
      if (action === "start") sandboxes.change(id, (life) => found(life, true));
      return false;
    }
    sandboxes.change(id, (life) => failed(life, error.details.reason ?? "DriverRefused", error.message));
    this.#settle(id, action, error);
    return true;
  }

  async #perform(record: SandboxRecord, action: DriverAction, overtaken: AbortSignal): Promise<void> {
    const { sandboxes, driver, signal } = this.#options;
    const { id, name, workspace, lifecycle } = record;
    const call = { signal, timeoutMs: callTimeoutMs };
    const untilOvertaken = { ...call, signal: AbortSignal.any([signal, overtaken]) };
    using _ = action === "create" ? sandboxes.beingCreated(id) : undefined;
    let identity = "";
    switch (action) {
      case "create":
        await driver.ensureWorkspace({ workspace }, call);
        ({ runtimeIdentity: identity } = await driver.createSandbox({ sandbox: driverSandbox(record) }, call));
        break;
      case "start": {
        const { generationId, runtimeIdentity: expectedRuntimeIdentity } = lifecycle;
        const request = { sandboxId: id, name, generationId, expectedRuntimeIdentity };
        ({ runtimeIdentity: identity } = await driver.startSandbox(request, untilOvertaken));
        break;
      }
      case "stop":
        await driver.stopSandbox({ sandboxId: id, name }, untilOvertaken);
        break;
      case "delete": {
        const { deleted } = await driver.deleteSandbox({ sandboxId: id, name }, call);
        if (deleted) break;
        sandboxes.missing(id);
        return;
      }
    }
    // A start that was overtaken by a newer one is not recorded as the newer one.
    sandboxes.change(id, (now) =>
      now.generationId === lifecycle.generationId ? afterAction(now, action, identity) : now,
    );
  }

  /** @param action whose waiters have their answer. @default every one's */
  #settle(id: string, action?: DriverAction, error?: OpenShellError): void {
    const waiters = this.#waiters.get(id) ?? [];
    const waiting = waiters.filter((one) => action !== undefined && one.action !== action);
    if (waiting.length === 0) this.#waiters.delete(id);
    else this.#waiters.set(id, waiting);
    for (const waiter of waiters) {
      if (waiting.includes(waiter)) continue;
      if (error === undefined) waiter.resolve();
      else waiter.reject(error);
    }
  }
}
