import { backoffMs, sleep } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import type { Client, compute } from "../wire/index.ts";
import { isDefinitive } from "./convergence.ts";
import type { WorkspaceTable } from "./store/workspaces.ts";

/** How long the driver has for one call, in milliseconds. */
const callTimeoutMs = 60_000;

export interface WorkspaceDeletionsOptions {
  readonly workspaces: WorkspaceTable;
  readonly driver: Pick<Client<typeof compute.ComputeDriver>, "deleteWorkspace">;
  readonly log: Logger;
  readonly signal: AbortSignal;
}

/**
 * Takes terminated workspaces to their end: the driver first, then the record, so that whatever fails between leaves a workspace that says
 * TERMINATING and is taken up again, here or after a restart. One that the driver refuses to delete is as it was before.
 */
export class WorkspaceDeletions {
  readonly #options: WorkspaceDeletionsOptions;
  readonly #running = new Map<string, Promise<void>>();

  constructor(options: WorkspaceDeletionsOptions) {
    this.#options = options;
  }

  /** Goes on with what a former process left. */
  resume(): void {
    for (const { name } of this.#options.workspaces.terminating()) void this.run(name).catch(() => {});
  }

  /**
   * Resolves after the driver's first answer; the workspace is gone then, or the driver is asked again later.
   * @throws what the driver refused it with for good
   */
  run(name: string): Promise<void> {
    const running = this.#running.get(name);
    if (running !== undefined) return running;
    const first = Promise.withResolvers<void>();
    this.#running.set(name, first.promise);
    void this.#work(name, first);
    return first.promise;
  }

  async #work(name: string, first: PromiseWithResolvers<void>): Promise<void> {
    const { workspaces, driver, log, signal } = this.#options;
    try {
      for (let attempt = 0; ; attempt += 1) {
        try {
          await driver.deleteWorkspace({ workspace: name }, { signal, timeoutMs: callTimeoutMs });
          workspaces.remove(name);
          return;
        } catch (thrown) {
          signal.throwIfAborted();
          const error = OpenShellError.from(thrown);
          log.warn({ err: error, workspace: name, attempt }, "the driver did not delete a workspace");
          if (isDefinitive(error.code)) {
            workspaces.restore(name);
            throw error;
          }
          first.resolve();
          await sleep(backoffMs(attempt, { initialMs: 250 }), signal);
        }
      }
    } catch (error) {
      // Nobody waits any more when it is only that the gateway ends; the record says what is left to do.
      first.reject(error);
    } finally {
      this.#running.delete(name);
      first.resolve();
    }
  }
}
