import { heartbeat, Outbox, Watchdog } from "../boundary/index.ts";
import type { RuntimeFrame } from "./status-frames.ts";

export interface ConnectionOptions {
  /** Called with every heartbeat sent, for what has to be repeated. */
  readonly beaten: () => void;
  /** Called once when the supervisor has fallen silent or takes nothing any more. */
  readonly lost: (why: string) => void;
}

/** One Session call of an accepted supervisor: what it is told, and whether it is still there. */
export class Connection {
  readonly id: number;
  readonly #out: Outbox<RuntimeFrame>;
  readonly #beat: NodeJS.Timeout;
  readonly #silence: Watchdog;
  #sequence = 0n;

  constructor(id: number, options: ConnectionOptions) {
    this.id = id;
    this.#out = new Outbox((why) => options.lost(`it ${why}`));
    this.#beat = setInterval(() => {
      this.#sequence += 1n;
      this.send({ payload: { case: "heartbeat", value: { sequence: this.#sequence } } });
      options.beaten();
    }, heartbeat.intervalMs);
    const { lostAfterMs } = heartbeat;
    this.#silence = new Watchdog(lostAfterMs, () => options.lost(`it was silent for ${lostAfterMs} ms`));
  }

  /** What is sent, in order; ends when the connection is over. One consumer. */
  get frames(): AsyncIterable<RuntimeFrame> {
    return this.#out;
  }

  send(frame: RuntimeFrame): void {
    this.#out.offer(frame);
  }

  /** Something arrived; the supervisor is alive. */
  heard(): void {
    if (!this.#out.ended) this.#silence.touch();
  }

  /** What is queued is still sent. */
  close(): void {
    clearInterval(this.#beat);
    this.#silence.clear();
    this.#out.end();
  }
}
