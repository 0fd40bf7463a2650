import { backoffMs, sleep } from "../common/async.ts";
import type { Logger } from "../common/log.ts";
import type { Client, compute } from "../wire/index.ts";
import type { Sandboxes } from "./sandbox/sandboxes.ts";

export interface DriverWatchOptions {
  readonly sandboxes: Sandboxes;
  readonly driver: Client<typeof compute.ComputeDriver>;
  readonly log: Logger;
  readonly signal: AbortSignal;
  /** Told each time the stream had to be opened again. */
  readonly onRestart?: () => void;
}

/**
 * Follows what the driver reports. Each time the stream begins, the driver's list is compared with the store: what the store believes to
 * be there and the driver does not have was deleted behind our back.
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
    const { driver, log, signal, onRestart } = this.#options;
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      const stop = new AbortController();
      try {
        const events = driver.watchSandboxes({}, { signal: AbortSignal.any([signal, stop.signal]) });
        const following = this.#follow(events, () => {
          attempt = 0;
        });
        await Promise.all([following, this.#compare()]);
        log.warn("the driver ended its stream of events; it is opened again");
      } catch (error) {
        if (signal.aborted) return;
        log.warn({ err: error }, "the driver's stream of events was lost; it is opened again");
      } finally {
        this.#synced = false;
        stop.abort();
      }
      onRestart?.();
      await sleep(backoffMs(attempt), signal).catch(() => {});
    }
  }

  async #follow(events: AsyncIterable<compute.WatchSandboxesEvent>, onEvent: () => void): Promise<void> {
    const { sandboxes } = this.#options;
    for await (const { payload } of events) {
      onEvent();
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
          const { $typeName: _type, ...rest } = event;
          sandboxes.hub.event(sandboxId, { $typeName: "openshell.v1.PlatformEvent", ...rest });
          break;
        }
      }
    }
  }

  async #compare(): Promise<void> {
    const { sandboxes, driver, signal } = this.#options;
    const believed = sandboxes.all().filter(({ lifecycle }) => lifecycle.applied.state !== "absent");
    const { sandboxes: listed } = await driver.listSandboxes({}, { signal, timeoutMs: 60_000 });
    const present = new Set(listed.map(({ id }) => id));
    for (const sandbox of listed) this.#observe(sandbox);
    for (const { id } of believed) if (!present.has(id)) sandboxes.missing(id);
    this.#synced = true;
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
