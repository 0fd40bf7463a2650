import { setTimeout as delay } from "node:timers/promises";
import { OpenShellError } from "./errors.ts";

/** The longest time of a timer, in milliseconds; one of more fires at once. */
export const longestTimerMs = 2 ** 31 - 1;

/** Waits `ms`, at most `longestTimerMs`; rejects with the signal's reason when aborted first. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  await delay(Math.min(ms, longestTimerMs), undefined, signal === undefined ? {} : { signal });
}

/** A signal that aborts after `ms` (a fraction counts as a whole one) or with `parent`, whichever comes first. */
export function deadline(ms: number, parent?: AbortSignal): AbortSignal {
  const timeout = AbortSignal.timeout(Math.ceil(ms));
  return parent === undefined ? timeout : AbortSignal.any([timeout, parent]);
}

/**
 * What `work` comes to, unless the signal aborts first: then it goes on, and nobody hears of it.
 * @throws the signal's reason
 */
export async function abortable<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const abort = () => reject(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  if (signal.aborted) abort();
  try {
    return await Promise.race([aborted, work]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/**
 * What `work` comes to, unless that takes longer than `ms`: then it goes on, and nobody hears of it. Holds one timer, and only so long, which
 * a signal of a deadline does until its time.
 * @param late makes the error that is thrown then
 */
export async function within<T>(work: Promise<T>, ms: number, late: () => Error): Promise<T> {
  const { promise: ended, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(late()), ms);
  try {
    return await Promise.race([work, ended]);
  } finally {
    clearTimeout(timer);
  }
}

/** Milliseconds of a clock that nobody sets, and a pause by it; another one is passed in by tests. */
export interface Clock {
  now(): number;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

export const realClock: Clock = { now: () => performance.now(), sleep };

export interface BackoffOptions {
  /** First delay in milliseconds. @default 100 */
  readonly initialMs?: number;
  /** Ceiling in milliseconds. @default 30_000 */
  readonly maxMs?: number;
  /** Growth per attempt. @default 2 */
  readonly factor?: number;
  /** Source of jitter in [0, 1), passed in by tests. @default Math.random */
  readonly random?: () => number;
}

/** Delay before attempt `attempt` (0-based): exponential, capped, with half of it jittered. */
export function backoffMs(attempt: number, options: BackoffOptions = {}): number {
  const { initialMs = 100, maxMs = 30_000, factor = 2, random = Math.random } = options;
  const full = Math.min(maxMs, initialMs * factor ** attempt);
  return full / 2 + (full / 2) * random();
}

/** A stream or session that lived this long, in milliseconds, was good. */
export const goodLifeMs = 5_000;

/**
 * Failures in a row of a stream or session that is begun again each time it ends: none once one lived a while, whatever it said when it
 * began. One that breaks as soon as it says something is then begun again later and later.
 */
export function failuresAfter(failures: number, livedMs: number): number {
  return livedMs >= goodLifeMs ? 0 : failures;
}

export interface RetryOptions extends BackoffOptions {
  readonly signal?: AbortSignal;
  /** Attempts in all, the first included. @default 5 */
  readonly attempts?: number;
  /** Whether this failure is worth another attempt. @default any */
  readonly retryable?: (error: unknown) => boolean;
  /** The pause between two attempts. @default sleep */
  readonly pause?: Clock["sleep"];
}

/** Runs `operation` until it succeeds, with jittered backoff and an end; the last error is thrown as it was. */
export async function retry<T>(operation: (attempt: number) => Promise<T>, options: RetryOptions = {}): Promise<T> {
  const { attempts = 5, retryable = () => true, signal, pause = sleep } = options;
  for (let attempt = 0; ; attempt += 1) {
    signal?.throwIfAborted();
    try {
      return await operation(attempt);
    } catch (error) {
      if (attempt + 1 >= attempts || !retryable(error)) throw error;
      await pause(backoffMs(attempt, options), signal);
    }
  }
}

/** A promise with its resolvers outside, for state machines that are told of an event. */
export type Deferred<T> = ReturnType<typeof Promise.withResolvers<T>>;

/**
 * A queue between a producer that pushes and one consumer that iterates. Bounded: `push` resolves when the item has a place, so a slow
 * consumer slows its producer.
 */
export class AsyncQueue<T> implements AsyncIterable<T> {
  readonly #items: T[] = [];
  readonly #limit: number;
  #ended = false;
  #error: unknown;
  #wakeConsumer: (() => void) | undefined;
  #wakeProducers: (() => void)[] = [];

  /** @param limit items held before `push` waits */
  constructor(limit = 16) {
    this.#limit = limit;
  }

  /** Resolves false when the queue has ended and the item was dropped. */
  async push(item: T): Promise<boolean> {
    while (this.#items.length >= this.#limit && !this.#ended) {
      await new Promise<void>((resolve) => this.#wakeProducers.push(resolve));
    }
    if (this.#ended) return false;
    this.#items.push(item);
    this.#wakeConsumer?.();
    return true;
  }

  /** Puts the item in whatever the limit; for small control messages only. */
  offer(item: T): boolean {
    if (this.#ended) return false;
    this.#items.push(item);
    this.#wakeConsumer?.();
    return true;
  }

  /** No more items; what is queued is still delivered. */
  end(error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#wakeConsumer?.();
    for (const wake of this.#wakeProducers.splice(0)) wake();
  }

  get ended(): boolean {
    return this.#ended;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    try {
      for (;;) {
        if (this.#items.length > 0) {
          const item = this.#items.shift() as T;
          this.#wakeProducers.shift()?.();
          yield item;
        } else if (this.#ended) {
          if (this.#error !== undefined) throw this.#error;
          return;
        } else {
          await new Promise<void>((resolve) => {
            this.#wakeConsumer = resolve;
          });
          this.#wakeConsumer = undefined;
        }
      }
    } finally {
      this.end();
      this.#items.length = 0;
    }
  }
}

/** Runs `operation` with a deadline of `ms`; the error names `what`. */
export async function withDeadline<T>(
  what: string,
  ms: number,
  operation: (signal: AbortSignal) => Promise<T>,
  parent?: AbortSignal,
): Promise<T> {
  const signal = deadline(ms, parent);
  try {
    return await operation(signal);
  } catch (error) {
    if (signal.aborted && !parent?.aborted) {
      throw new OpenShellError("deadline-exceeded", `${what} did not finish within ${ms} ms`, { cause: error });
    }
    throw error;
  }
}
