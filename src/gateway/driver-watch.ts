import { create } from "@bufbuild/protobuf";
import { type BackoffOptions, backoffMs, failuresAfter, sleep } from "../common/async.ts";
import { cut, longestText, longestWord } from "../common/cut.ts";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { type Client, type compute, openshell } from "../wire/index.ts";
import type { Sandboxes } from "./sandbox/sandboxes.ts";

export interface DriverWatchOptions {
  readonly sandboxes: Sandboxes;
  readonly driver: Client<typeof compute.ComputeDriver>;
  readonly log: Logger;
  readonly signal: AbortSignal;
  /** Told each time the stream had to be opened again. */
  readonly onRestart?: () => void;
  /** Before the stream is opened again. */
  readonly backoff?: BackoffOptions;
  /** Milliseconds of a clock that nobody sets. @default performance.now */
  readonly now?: () => number;
}

/**
 * Follows what the driver reports. Each time the stream begins, the driver's list is compared with the store: what the store believes to
 * be there, or to be on its way out, and the driver does not have is gone.
 */
export class DriverWatch {
  readonly #options: DriverWatchOptions;
  #synced = false;

  constructor(options: DriverWatchOptions) {
    this.#options = options;
  }

  /** True once the driver's sandboxes were compared with the store, while the stream is up. */
  get synced(): boolean {
    return this.#synced;
  }

  /** Until the signal aborts. */
  async run(): Promise<void> {
    const { driver, log, signal, onRestart, backoff, now = () => performance.now() } = this.#options;
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      const stop = new AbortController();
      const openedAt = now();
      try {
        const events = driver.watchSandboxes({}, { signal: AbortSignal.any([signal, stop.signal]) });
        await Promise.all([this.#follow(events), this.#compare(AbortSignal.any([signal, stop.signal]))]);
        log.warn("the driver ended its stream of events; it is opened again");
      } catch (error) {
        if (signal.aborted) return;
        log.warn({ err: error }, "the driver's stream of events was lost; it is opened again");
      } finally {
        this.#synced = false;
        stop.abort();
      }
      onRestart?.();
      attempt = failuresAfter(attempt, now() - openedAt);
      await sleep(backoffMs(attempt, { maxMs: 10_000, ...backoff }), signal).catch(() => {});
    }
  }

  async #follow(events: AsyncIterable<compute.WatchSandboxesEvent>): Promise<void> {
    const { sandboxes } = this.#options;
    for await (const { payload } of events) {
      switch (payload.case) {
        case "sandbox":
          this.#observe(payload.value.sandbox);
          break;
        case "deleted":
          sandboxes.missing(payload.value.sandboxId);
          break;
        case "platformEvent": {
          const { sandboxId, event } = payload.value;
          if (event === undefined || sandboxes.byId(sandboxId) === undefined) break;
          sandboxes.hub.event(sandboxId, shown(event));
          break;
        }
      }
    }
  }

  async #compare(signal: AbortSignal): Promise<void> {
    const { sandboxes, driver } = this.#options;
    const believed: string[] = [];
    for (const { id, lifecycle } of sandboxes.all()) {
      if (lifecycle.applied.state !== "absent" || lifecycle.applied.deleting) believed.push(id);
    }
    const { sandboxes: listed } = await driver.listSandboxes({}, { signal, timeoutMs: 60_000 });
    const present = new Set(listed.map(({ id }) => id));
    for (const sandbox of listed) this.#observe(sandbox);
    const absent = believed.filter((id) => !present.has(id));
    const undecided = await this.#decide(absent, signal);
    this.#synced = true;
    await this.#decideLater(undecided, signal);
  }

  /** @returns those of which the driver cannot say yet whether they are there: it cannot look everywhere */
  async #decide(absent: readonly string[], signal: AbortSignal): Promise<string[]> {
    const { sandboxes, driver, log } = this.#options;
    const undecided: string[] = [];
    for (const id of absent) {
      try {
        const { sandbox } = await driver.getSandbox({ sandboxId: id }, { signal, timeoutMs: 60_000 });
        this.#observe(sandbox);
      } catch (error) {
        if (OpenShellError.from(error).code === "not-found") sandboxes.missing(id);
        else {
          log.warn({ err: error, sandbox: id }, "the driver cannot say whether a sandbox is there; it is asked again");
          undecided.push(id);
        }
      }
    }
    return undecided;
  }

  async #decideLater(undecided: readonly string[], signal: AbortSignal): Promise<void> {
    let left = undecided;
    for (let attempt = 0; left.length > 0; attempt += 1) {
      await sleep(backoffMs(attempt, { initialMs: 1_000 }), signal);
      left = await this.#decide(left, signal);
    }
  }

  #observe(sandbox: compute.DriverSandbox | undefined): void {
    const { sandboxes, log } = this.#options;
    if (sandbox?.status === undefined) return;
    if (sandboxes.byId(sandbox.id) === undefined) {
      log.warn({ sandbox: sandbox.id, name: sandbox.name }, "the driver has a sandbox that this gateway does not know");
    } else {
      sandboxes.observe(sandbox.id, sandbox.status);
    }
  }
}

/** An event as users see it. Whoever may write Events in the namespace chose its words. */
function shown({ eventTime, source, type, reason, message, metadata }: compute.DriverPlatformEvent) {
  return create(openshell.PlatformEventSchema, {
    ...(eventTime === undefined ? {} : { eventTime }),
    source: cut(source, longestWord),
    type: cut(type, longestWord),
    reason: cut(reason, longestWord),
    message: cut(message, longestText),
    metadata,
  });
}
