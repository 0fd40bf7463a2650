import { constants } from "node:os";

const endSignals = ["SIGTERM", "SIGINT"] as const;
export type EndSignal = (typeof endSignals)[number];

/** Ends the program with the exit code of one that died of the signal: 128 and its number. */
export function endAtOnce(signal: EndSignal): never {
  process.exit(128 + constants.signals[signal]);
}

/**
 * The signals that ask a program to end. Make it before anything slow is loaded: in a container the program is PID 1, which the kernel
 * spares every signal that it has no handler for, and whoever asked then waits out the grace period of the Pod.
 */
export class EndSignals {
  /** Nothing is there yet that would have to end in order. */
  #handle: (signal: EndSignal) => void = endAtOnce;

  constructor() {
    for (const signal of endSignals) process.on(signal, () => this.#handle(signal));
  }

  /** From now on `handle` gets each of them; until then they end the program at once. */
  handledBy(handle: (signal: EndSignal) => void): void {
    this.#handle = handle;
  }
}
