import { heartbeat } from "../boundary/index.ts";
import { AsyncQueue } from "../common/async.ts";
import type { RuntimeFrame } from "./status-frames.ts";

export interface ConnectionOptions {
  /** Called with every heartbeat sent, for what has to be repeated. */
  readonly beaten: () => void;
  /** Called once when the supervisor has fallen silent or takes nothing any more. */
  readonly lost: (why: string) => void;
}

/** Frames that may wait for a supervisor that does not read: minutes of heartbeats. */
const maxWaiting = 256;

/** One Session call of an accepted supervisor: what it is told, and whether it is still there. */
export class Connection {
  readonly id: number;
  readonly #queue = new AsyncQueue<RuntimeFrame>();
  readonly #options: ConnectionOptions;
  readonly #beat: NodeJS.Timeout;
  #silence: NodeJS.Timeout | undefined;
  #expired: NodeJS.Immediate | undefined;
  #sequence = 0n;
  #waiting = 0;

  constructor(id: number, options: ConnectionOptions) {
    this.id = id;
    this.#options = options;
    this.#beat = setInterval(() => {
      this.#sequence += 1n;
      this.send({ payload: { case: "heartbeat", value: { sequence: this.#sequence } } });
      options.beaten();
    }, heartbeat.intervalMs);
    this.heard();
  }

  /** What is sent, in order; ends when the connection is over. One consumer. */
  get frames(): AsyncIterable<RuntimeFrame> {
    return this.#taken();
  }

  send(frame: RuntimeFrame): void {
    if (this.#queue.ended) return;
    if (this.#waiting >= maxWaiting) {
      this.#options.lost(`it took none of ${maxWaiting} frames`);
      return;
    }
    this.#waiting += 1;
    this.#queue.offer(frame);
  }

  /** Something arrived; the supervisor is alive. */
  heard(): void {
    if (this.#queue.ended) return;
    this.#forgetSilence();
    this.#silence = setTimeout(() => {
      // After this process stood still its timers come before what meanwhile arrived: that is read first.
      this.#expired = setImmediate(() => this.#options.lost(`it was silent for ${heartbeat.lostAfterMs} ms`));
    }, heartbeat.lostAfterMs);
  }

  /** What is queued is still sent. */
  close(): void {
    clearInterval(this.#beat);
    this.#forgetSilence();
    this.#queue.end();
  }

  #forgetSilence(): void {
    clearTimeout(this.#silence);
    clearImmediate(this.#expired);
  }

  async *#taken(): AsyncGenerator<RuntimeFrame, void, undefined> {
    for await (const frame of this.#queue) {
      this.#waiting -= 1;
      yield frame;
    }
  }
}
