import type { MessageInitShape } from "@bufbuild/protobuf";
import type { boundary } from "../wire/index.ts";

export type LaunchEvent = MessageInitShape<typeof boundary.LaunchEventSchema>;
export type LaunchPayload = NonNullable<LaunchEvent["payload"]>;
type Kind = "boundary" | "fence" | "mainProcess" | "tree";

const order: readonly Kind[] = ["boundary", "fence", "mainProcess", "tree"];

/**
 * What is known of the workload: the last status of each kind. A reader gets all of it first and then each change; a slow reader misses
 * values in between, never the last one, so nothing queues up.
 */
export class WorkloadStatus {
  readonly #latest = new Map<Kind, LaunchPayload>();
  readonly #readers = new Set<Reader>();

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
    try {
      while (!signal.aborted) {
        const kind = reader.take();
        if (kind === undefined) {
          await reader.changed();
          continue;
        }
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
