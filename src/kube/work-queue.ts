import { type BackoffOptions, backoffMs, longestTimerMs } from "../common/async.ts";

export interface WorkQueueOptions {
  /**
   * Brings one thing to its desired state. A number is the milliseconds after which it is run again; an error means that
   * it is run again with growing back-off. `signal` aborts when the queue is stopped.
   */
  readonly reconcile: (key: string, signal: AbortSignal) => Promise<number | undefined>;
  /** Keys worked on at a time. @default 4 */
  readonly concurrency?: number;
  /** @default 100 ms doubling to 30 s, jittered */
  readonly backoff?: BackoffOptions;
  /** Told of every failure, with the number of failures in a row. */
  readonly onError?: (key: string, error: unknown, failures: number) => void;
  /** Stops the queue. */
  readonly signal?: AbortSignal;
}

/**
 * Keys that wait for work. A key is in the queue once, however often it is added; it is never worked on twice at the
 * same time; added while it is worked on, it is worked on once more afterwards.
 */
export class WorkQueue {
  readonly #options: WorkQueueOptions;
  readonly #waiting = new Set<string>();
  readonly #running = new Set<string>();
  readonly #again = new Set<string>();
  readonly #timers = new Map<string, { dueAt: number; timer: NodeJS.Timeout }>();
  readonly #failures = new Map<string, number>();
  readonly #stop = new AbortController();
  readonly #signal: AbortSignal;
  #idle = Promise.withResolvers<void>();

  constructor(options: WorkQueueOptions) {
    this.#options = options;
    this.#signal = options.signal ? AbortSignal.any([options.signal, this.#stop.signal]) : this.#stop.signal;
    this.#signal.addEventListener("abort", () => this.#clear(), { once: true });
    this.#idle.resolve();
  }

  /** Keys that wait or are worked on; delayed ones are not counted. */
  get depth(): number {
    return this.#waiting.size + this.#running.size;
  }

  /** Works on the key as soon as there is room, also when it is in back-off. */
  add(key: string): void {
    if (this.#signal.aborted) return;
    this.#cancelTimer(key);
    if (this.depth === 0) this.#idle = Promise.withResolvers();
    if (this.#running.has(key)) this.#again.add(key);
    else this.#waiting.add(key);
    this.#pump();
  }

  /** Works on the key after `ms`, or earlier when it was to be worked on earlier. */
  addAfter(key: string, ms: number): void {
    if (this.#signal.aborted) return;
    const dueAt = performance.now() + ms;
    if ((this.#timers.get(key)?.dueAt ?? Number.POSITIVE_INFINITY) <= dueAt) return;
    this.#cancelTimer(key);
    // Longer delays than a timer can hold are cut; the reconcile then asks for the rest.
    this.#timers.set(key, { dueAt, timer: setTimeout(() => this.add(key), Math.min(ms, longestTimerMs)) });
  }

  /** Resolves when nothing waits and nothing is worked on. */
  async idle(): Promise<void> {
    while (this.depth > 0) await this.#idle.promise;
  }

  /** Takes nothing more, forgets what waits, and resolves when what is being worked on has ended. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.idle();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #pump(): void {
    for (const key of this.#waiting) {
      if (this.#running.size >= (this.#options.concurrency ?? 4)) return;
      this.#waiting.delete(key);
      this.#running.add(key);
      void this.#work(key);
    }
  }

  async #work(key: string): Promise<void> {
    try {
      const again = await this.#options.reconcile(key, this.#signal);
      this.#failures.delete(key);
      if (typeof again === "number") this.addAfter(key, again);
    } catch (error) {
      const failures = (this.#failures.get(key) ?? 0) + 1;
      if (!this.#signal.aborted) {
        this.#failures.set(key, failures);
        this.addAfter(key, backoffMs(failures - 1, this.#options.backoff));
        this.#options.onError?.(key, error, failures);
      }
    }
    if (this.#again.delete(key)) {
      this.#cancelTimer(key);
      this.#waiting.add(key);
    }
    this.#running.delete(key);
    this.#pump();
    if (this.depth === 0) this.#idle.resolve();
  }

  #cancelTimer(key: string): void {
    clearTimeout(this.#timers.get(key)?.timer);
    this.#timers.delete(key);
  }

  #clear(): void {
    for (const key of [...this.#timers.keys()]) this.#cancelTimer(key);
    this.#waiting.clear();
    this.#again.clear();
    this.#failures.clear();
    if (this.depth === 0) this.#idle.resolve();
  }
}
