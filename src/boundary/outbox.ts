import { AsyncQueue } from "../common/async.ts";

/** Frames that may wait for a peer that does not read: minutes of heartbeats. */
const maxWaiting = 256;

/** What is sent on a control stream, in order, to a peer that may take none of it. One consumer. */
export class Outbox<T> implements AsyncIterable<T> {
  readonly #queue = new AsyncQueue<T>();
  readonly #onFull: (why: string) => void;
  #waiting = 0;

  /** @param onFull called for each frame that finds no place, and is dropped */
  constructor(onFull: (why: string) => void) {
    this.#onFull = onFull;
  }

  get ended(): boolean {
    return this.#queue.ended;
  }

  offer(frame: T): void {
    if (this.ended) return;
    if (this.#waiting >= maxWaiting) {
      this.#onFull(`took none of ${maxWaiting} frames`);
      return;
    }
    this.#waiting += 1;
    this.#queue.offer(frame);
  }

  /** What waits is still sent. */
  end(): void {
    this.#queue.end();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for await (const frame of this.#queue) {
      this.#waiting -= 1;
      yield frame;
    }
  }
}
