import type { Logger } from "../../common/log.ts";
import { exitFinalized } from "../sandbox/lifecycle.ts";
import type { Sandboxes } from "../sandbox/sandboxes.ts";
import type { SandboxRecord } from "../store/sandboxes.ts";

/** How long a supervisor has between reporting an exit and finalizing it, in milliseconds. */
const finalizeWithinMs = 30_000;

/** Finalizes exits whose supervisor never did, so that the Pods of an ended run always stop. */
export class Exits {
  readonly #sandboxes: Pick<Sandboxes, "change">;
  readonly #log: Logger;
  readonly #timers = new Map<string, NodeJS.Timeout>();

  constructor(sandboxes: Pick<Sandboxes, "change">, log: Logger) {
    this.#sandboxes = sandboxes;
    this.#log = log;
  }

  review({ id, lifecycle: { exit } }: SandboxRecord): void {
    if (exit === undefined || exit.finalized) {
      this.forget(id);
    } else if (!this.#timers.has(id)) {
      this.#finalizeLater(id, exit.instanceId);
    }
  }

  /** The sandbox is gone, or its run is over. */
  forget(id: string): void {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
  }

  close(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }

  #finalizeLater(id: string, instanceId: string): void {
    const finalize = () => {
      this.#timers.delete(id);
      try {
        this.#sandboxes.change(id, (life) => exitFinalized(life, instanceId));
      } catch (error) {
        this.#log.error({ err: error, sandbox: id }, "the store failed; the exit is finalized later");
        this.#finalizeLater(id, instanceId);
      }
    };
    this.#timers.set(id, setTimeout(finalize, finalizeWithinMs));
  }
}
