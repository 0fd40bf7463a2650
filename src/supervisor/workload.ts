import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Clock, realClock } from "../common/async.ts";
import type { boundary } from "../wire/index.ts";

export type LaunchEvent = MessageInitShape<typeof boundary.LaunchEventSchema>;
export type LaunchPayload = NonNullable<LaunchEvent["payload"]>;
type Kind = "boundary" | "fence" | "mainProcess" | "tree";

const order: readonly Kind[] = ["boundary", "fence", "mainProcess", "tree"];

/** Changes that a reader is told of without a pause; then one in each `paceMs`. */
const burst = 16;
/** A workload may change as often as it likes, and each change that the gateway hears of is a write of its store. */
const paceMs = 250;

/**
 * What is known of the workload: the last status of each kind. A reader gets all of it first and then the changes, at a pace; it misses
 * values in between, never the last one, so nothing queues up.
 */
export class WorkloadStatus {
  readonly #latest = new Map<Kind, LaunchPayload>();
  readonly #readers = new Set<Reader>();
  readonly #clock: Clock;

  constructor(clock = realClock) {
    this.#clock = clock;
  }

  set(payload: LaunchPayload): void {
    if (payload.case === undefined) return;
    this.#latest.set(payload.case, payload);
    for (const reader of this.#readers) reader.notify(payload.case);
  }

  /** Endless until `signal` aborts, which ends it without an error. */
  async *events(signal: AbortSignal): AsyncGenerator<LaunchEvent, void, undefined> {
    const reader = new Reader(this.#latest.keys());
    this.#readers.add(reader);
    const wake = () => reader.wake();
    signal.addEventListener("abort", wake, { once: true });
    const { now, sleep } = this.#clock;
    let due = Number.NEGATIVE_INFINITY;
    try {
      while (!signal.aborted) {
        const early = due - now();
        if (early > 0) {
          await sleep(early, signal).catch(() => {});
          continue;
        }
        const kind = reader.take();
        if (kind === undefined) {
          await reader.changed();
          continue;
        }
        due = Math.max(due, now() - (burst - 1) * paceMs) + paceMs;
        const payload = this.#latest.get(kind);
        if (payload !== undefined) yield { payload };
      }
    } finally {
      signal.removeEventListener("abort", wake);
      this.#readers.delete(reader);
    }
  }
}

class Reader {
  readonly #dirty: Set<Kind>;
  #wake: (() => void) | undefined;

  constructor(initial: Iterable<Kind>) {
    this.#dirty = new Set(initial);
  }

  notify(kind: Kind): void {
    this.#dirty.add(kind);
    this.wake();
  }

  take(): Kind | undefined {
    const kind = order.find((one) => this.#dirty.has(one));
    if (kind !== undefined) this.#dirty.delete(kind);
    return kind;
  }

  changed(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  wake(): void {
    this.#wake?.();
    this.#wake = undefined;
  }
}
