/** Calls `onSilence` once when `touch` was not called for `ms`. Holds one timer; `clear` ends it. */
export class Watchdog {
  readonly #timer: NodeJS.Timeout;

  constructor(ms: number, onSilence: () => void) {
    this.#timer = setTimeout(onSilence, ms);
  }

  touch(): void {
    this.#timer.refresh();
  }

  clear(): void {
    clearTimeout(this.#timer);
  }
}
