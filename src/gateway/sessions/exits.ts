import { exitFinalized } from "../sandbox/lifecycle.ts";
import type { Sandboxes } from "../sandbox/sandboxes.ts";
import type { SandboxRecord } from "../store/sandboxes.ts";

/** How long a supervisor has between reporting an exit and finalizing it, in milliseconds. */
const finalizeWithinMs = 30_000;

/** Finalizes exits whose supervisor never did, so that the Pods of an ended run always stop. */
export class Exits {
  readonly #sandboxes: Sandboxes;
  readonly #timers = new Map<string, NodeJS.Timeout>();

  constructor(sandboxes: Sandboxes) {
    this.#sandboxes = sandboxes;
  }

  review({ id, lifecycle: { exit } }: SandboxRecord): void {
    if (exit === undefined || exit.finalized) {
      this.forget(id);
    } else if (!this.#timers.has(id)) {
      const finalize = () => {
        this.#timers.delete(id);
        this.#sandboxes.change(id, (life) => exitFinalized(life, exit.instanceId));
      };
      this.#timers.set(id, setTimeout(finalize, finalizeWithinMs));
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
}
