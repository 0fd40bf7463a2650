import type { Logger } from "../common/log.ts";
import { mayPass } from "../kube/index.ts";

/** In an outage every watch of every namespace fails, again and again: as often as this it is said, for all of them. */
const saidEveryMs = 10_000;

/** Says that watches fail. */
export class OutageLog {
  readonly #log: Logger;
  #failures = 0;
  #saidAt = Number.NEGATIVE_INFINITY;

  constructor(log: Logger) {
    this.#log = log;
  }

  tell(error: unknown): void {
    const message = "a watch failed; it goes on by itself";
    if (!mayPass(error)) {
      this.#log.warn({ err: error }, message);
      return;
    }
    this.#failures += 1;
    const now = performance.now();
    if (now - this.#saidAt < saidEveryMs) return;
    this.#log.warn({ err: error, failures: this.#failures }, message);
    this.#failures = 0;
    this.#saidAt = now;
  }
}
