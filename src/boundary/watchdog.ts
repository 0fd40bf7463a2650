/**
 * Calls `onSilence` once when `touch` was not called for `ms`. Holds one timer; `clear` ends it. After a process stood still its timers come
 * before what meanwhile arrived, so that is read before anything counts as silence.
 */
export class Watchdog {
  readonly #timer: NodeJS.Timeout;
  #expired: NodeJS.Immediate | undefined;

  constructor(ms: number, onSilence: () => void) {
    this.#timer = setTimeout(() => {
      this.#expired = setImmediate(onSilence);
    }, ms);
  }

  touch(): void {
    clearImmediate(this.#expired);
    this.#timer.refresh();
  }

  clear(): void {
    clearImmediate(this.#expired);
    clearTimeout(this.#timer);
  }
}
