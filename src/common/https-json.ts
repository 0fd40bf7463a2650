import { request as httpRequest } from "node:http";
import { request as httpsRequest, type RequestOptions } from "node:https";
import { rootCertificates } from "node:tls";
import { OpenShellError } from "./errors.ts";

/** The most that an answer may hold, in bytes. */
const limit = 1024 ** 2;

export interface JsonRequest {
  /** Sent as application/x-www-form-urlencoded by POST. @default GET without a body */
  readonly form?: Readonly<Record<string, string>>;
  /** Certificate authorities, PEM, beside those that everyone knows. */
  readonly ca?: string;
  readonly signal?: AbortSignal;
  /** For the whole exchange, in milliseconds. @default 15_000 */
  readonly timeoutMs?: number;
}

export interface JsonAnswer {
  readonly status: number;
  readonly body: unknown;
}

/**
 * One request of a JSON document. Redirects are not followed: whoever is asked answers.
 * @returns the body undefined for an answer with another status than 200 that is no JSON
 * @throws unavailable when nobody answers in time, data-loss for an answer of 200 that is no JSON, or one that is too large
 */
export async function requestJson(url: string, options: JsonRequest = {}): Promise<JsonAnswer> {
  const { form, ca, signal, timeoutMs = 15_000 } = options;
  const body = form === undefined ? undefined : new URLSearchParams(form).toString();
  const timeout = AbortSignal.timeout(timeoutMs);
  const settings: RequestOptions = {
    method: body === undefined ? "GET" : "POST",
    headers: {
      accept: "application/json",
      ...(body === undefined
        ? {}
        : { "content-type": "application/x-www-form-urlencoded", "content-length": Buffer.byteLength(body) }),
    },
    signal: signal === undefined ? timeout : AbortSignal.any([timeout, signal]),
    // A connection that is kept would outlive a change of the authorities.
    agent: false,
    ...(ca === undefined ? {} : { ca: [...rootCertificates, ca] }),
  };
  let answer: { readonly status: number; readonly text: string };
  try {
    answer = await exchange(url, settings, body);
  } catch (cause) {
    signal?.throwIfAborted();
    if (cause instanceof OpenShellError) throw cause;
    const why = timeout.aborted ? `no answer within ${timeoutMs / 1000} s` : (cause as Error).message || String(cause);
    throw new OpenShellError("unavailable", `cannot reach ${url}: ${why}`, { cause });
  }
  try {
    return { status: answer.status, body: JSON.parse(answer.text) };
  } catch (cause) {
    // The page of an error is no JSON, and the status says it all.
    if (answer.status !== 200) return { status: answer.status, body: undefined };
    throw new OpenShellError("data-loss", `${url} answered 200 and no JSON`, { cause });
  }
}

function exchange(url: string, settings: RequestOptions, body: string | undefined) {
  const request = new URL(url).protocol === "https:" ? httpsRequest : httpRequest;
  return new Promise<{ status: number; text: string }>((resolve, reject) => {
    const outgoing = request(url, settings, (incoming) => {
      const chunks: Buffer[] = [];
      let length = 0;
      incoming.on("data", (chunk: Buffer) => {
        length += chunk.length;
        if (length <= limit) chunks.push(chunk);
        else incoming.destroy(new OpenShellError("data-loss", `${url} answered with more than 1 MiB`));
      });
      incoming.on("error", reject);
      incoming.on("end", () =>
        resolve({ status: incoming.statusCode ?? 0, text: Buffer.concat(chunks).toString("utf8") }),
      );
    });
    outgoing.on("error", reject);
    outgoing.end(body);
  });
}
