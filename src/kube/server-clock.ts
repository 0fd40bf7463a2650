import type { RequestRecord } from "./types.ts";

/** An answer's time has no fraction of a second. */
const granularityMs = 1_000;

/**
 * The API server's clock: what the cluster writes into its objects is compared with it, not with this machine's, which may be an hour off.
 * Each answer tells when it was written, and that was between our question and its arrival; the clock is moved only as far as it has to
 * be for that to hold. Two machines that agree are left alone.
 */
export class ServerClock {
  readonly #local: () => number;
  #offsetMs = 0;

  /** @param local milliseconds since the epoch. @default those since this process began, so that nobody who sets this machine's clock moves it */
  constructor(local: () => number = () => performance.timeOrigin + performance.now()) {
    this.#local = local;
  }

  now(): Date {
    return new Date(this.#local() + this.#offsetMs);
  }

  /** Takes note of an answer that has just arrived. */
  hear({ answeredAt, durationMs }: Pick<RequestRecord, "answeredAt" | "durationMs">): void {
    if (answeredAt === undefined) return;
    const least = answeredAt.getTime() - this.#local();
    const most = least + durationMs + granularityMs;
    this.#offsetMs = Math.min(Math.max(this.#offsetMs, least), most);
  }
}
