import { heartbeat } from "../boundary/index.ts";
import { AsyncQueue } from "../common/async.ts";
import type { RuntimeFrame } from "./status-frames.ts";

/** One Session call of an accepted supervisor: what it is told, and whether it is still there. */
export class Connection {
  readonly id: number;
  /** What is sent, in order; ends when the connection is over. */
  readonly frames = new AsyncQueue<RuntimeFrame>();
  readonly #beat: NodeJS.Timeout;
  #silence: NodeJS.Timeout | undefined;
  #sequence = 0n;

  /** @param beaten called with every heartbeat sent, for what has to be repeated */
  constructor(id: number, beaten: () => void) {
    this.id = id;
    this.#beat = setInterval(() => {
      this.#sequence += 1n;
      this.send({ payload: { case: "heartbeat", value: { sequence: this.#sequence } } });
      beaten();
    }, heartbeat.intervalMs);
    this.heard();
  }

  send(frame: RuntimeFrame): void {
    this.frames.offer(frame);
  }

  /** Something arrived; the supervisor is alive. */
  heard(): void {
    if (this.frames.ended) return;
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.close(), heartbeat.lostAfterMs);
  }

  /** What is queued is still sent. */
  close(): void {
    clearInterval(this.#beat);
    clearTimeout(this.#silence);
    this.frames.end();
  }
}
