import type { IncomingMessage } from "node:http";
import { backoffMs, deadline, sleep } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { type Exchange, readLines, readText, type Transport } from "./_transport.ts";
import { errorFromAnswer, errorFromConnection } from "./errors.ts";
import type { CallOptions, RequestRecord } from "./types.ts";

/** A request with what is said about it. */
export interface Call {
  readonly verb: RequestRecord["verb"];
  /** As in `create pods default/web`; begins every error message. */
  readonly text: string;
  readonly resource: string;
  readonly exchange: Omit<Exchange, "signal">;
  readonly options: CallOptions;
  /** Made by `deadlineOf` for all requests of one call. @default one of its own by the options */
  readonly deadline?: AbortSignal;
}

export interface RequestsOptions {
  readonly transport: Transport;
  /** Told of every answer, those that are repeated too. */
  readonly onRequest: (record: RequestRecord) => void;
  /** Milliseconds for a call that names no other. */
  readonly deadlineMs: number;
  /** Milliseconds beyond the end that a stream was promised, after which its connection is given up. */
  readonly overdueMs: number;
}

/** Repeats of a read whose connection broke. What the server puts off is repeated until the deadline. */
const maxReadRepeats = 2;
/** For a stream's first answer. */
const streamHeadMs = 30_000;

/** Sends calls until they are answered for good: waits where the server asks to, repeats what is safe to, and gives every failure its words. */
export class Requests {
  readonly #options: RequestsOptions;

  constructor(options: RequestsOptions) {
    this.#options = options;
  }

  /** The deadline of a call with these options, for calls that take several requests. It aborts with their signal, too. */
  deadlineOf(options: CallOptions): AbortSignal {
    return deadline(this.#deadlineMs(options), options.signal);
  }

  async json(call: Call): Promise<unknown> {
    const text = await this.text(call);
    try {
      return JSON.parse(text);
    } catch (cause) {
      throw new OpenShellError("internal", `cannot ${call.text}: the API server's answer is not JSON`, { cause });
    }
  }

  /** @param limit bytes of the longest answer that is taken. @default 64 MiB */
  async text(call: Call, limit?: number): Promise<string> {
    const ms = this.#deadlineMs(call.options);
    const signal = call.deadline ?? deadline(ms, call.options.signal);
    try {
      for (let repeat = 0; ; repeat += 1) {
        try {
          return await readText(await this.#exchange({ ...call, options: { ...call.options, signal } }), limit);
        } catch (error) {
          const broken = !(error instanceof OpenShellError);
          if (signal.aborted || !broken || call.exchange.method !== "GET" || repeat >= maxReadRepeats) throw error;
          await sleep(backoffMs(repeat), signal);
        }
      }
    } catch (error) {
      if (call.options.signal?.aborted) throw cancelled(call.text, error);
      if (error instanceof OpenShellError) throw error;
      if (!signal.aborted) throw errorFromConnection(call.text, error);
      throw new OpenShellError("deadline-exceeded", `cannot ${call.text}: no answer within ${ms} ms`, { cause: error });
    }
  }

  /**
   * The lines of an answer that streams, on a connection of its own.
   *
   * @param seconds after which the server was asked to end the stream; one that goes on beyond is dead without having said so
   */
  async *lines(call: Call, seconds: number): AsyncGenerator<string> {
    const silent = new AbortController();
    const outer = call.options.signal;
    const signal = outer ? AbortSignal.any([outer, silent.signal]) : silent.signal;
    let timer = setTimeout(() => silent.abort(), streamHeadMs);
    let answer: IncomingMessage | undefined;
    try {
      answer = await this.#exchange({ ...call, options: { signal } });
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), seconds * 1000 + this.#options.overdueMs);
      yield* readLines(answer, call.text);
    } catch (error) {
      if (outer?.aborted) throw cancelled(call.text, error);
      if (error instanceof OpenShellError) throw error;
      throw errorFromConnection(call.text, silent.signal.aborted ? "the stream fell silent" : error);
    } finally {
      clearTimeout(timer);
      answer?.destroy();
    }
  }

  #deadlineMs(options: CallOptions): number {
    return Math.ceil(options.deadlineMs ?? this.#options.deadlineMs);
  }

  /**
   * The head of an answer that is a success. Waits where the server asks to, until the signal aborts.
   * @throws what the server refused the call with; its last refusal, when the signal aborts in such a wait
   */
  async #exchange(call: Call): Promise<IncomingMessage> {
    const { signal = new AbortController().signal, urgent = false } = call.options;
    let refreshCredentials = false;
    let refreshed = false;
    for (;;) {
      const startedAt = performance.now();
      const report = (code: number, date?: string): void => {
        const answeredAt = new Date(date ?? Number.NaN);
        this.#options.onRequest({
          verb: call.verb,
          resource: call.resource,
          code,
          durationMs: performance.now() - startedAt,
          ...(Number.isNaN(answeredAt.getTime()) ? {} : { answeredAt }),
        });
      };
      let answer: IncomingMessage;
      try {
        answer = await this.#options.transport.send({ ...call.exchange, signal, urgent, refreshCredentials });
      } catch (error) {
        report(0);
        throw error;
      }
      refreshCredentials = false;
      const code = answer.statusCode ?? 0;
      report(code, answer.headers.date);
      if (code < 300) return answer;
      const body = parsed(await readText(answer));
      const refusal = errorFromAnswer(call.text, code, body, answer.headers["retry-after"]);
      const wait = waitSeconds(code, answer.headers["retry-after"]);
      if (wait !== undefined) {
        // Whoever waits no longer is told what he waited for.
        await sleep(wait * 1000 * (1 + Math.random() / 2), signal).catch(() => Promise.reject(refusal));
      } else if (code === 401 && !refreshed) {
        refreshed = true;
        refreshCredentials = true;
      } else {
        throw refusal;
      }
    }
  }
}

/** Seconds the server wants us to wait, or undefined when the answer is final. */
function waitSeconds(code: number, retryAfter: string | undefined): number | undefined {
  const seconds = Number(retryAfter ?? Number.NaN);
  if (code === 429) return Number.isFinite(seconds) ? Math.max(seconds, 0.1) : 1;
  return code === 503 && Number.isFinite(seconds) ? Math.max(seconds, 0.1) : undefined;
}

/** JSON where it is JSON, text where it is not. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function cancelled(text: string, cause: unknown): OpenShellError {
  return new OpenShellError("cancelled", `${text}: cancelled`, { cause });
}
