import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { OpenShellError } from "../common/errors.ts";
import type { Credentials } from "./_credentials.ts";
import type { ClusterAccess } from "./access.ts";

/** One HTTP exchange with the API server. */
export interface Exchange {
  readonly method: "GET" | "POST" | "PATCH" | "DELETE";
  readonly path: string;
  readonly body?: { readonly contentType: string; readonly text: string };
  /** Ends the exchange, also while the body streams. */
  readonly signal: AbortSignal;
  /** The answer is a stream that lives for minutes: it gets a connection of its own. */
  readonly longLived?: boolean;
  /** It has connections beside those of all others. */
  readonly urgent?: boolean;
  /** The last answer was 401. */
  readonly refreshCredentials?: boolean;
}

/** Idle connections are dropped well before the API server's own 90 s, so that none is used just as it closes. */
const idleConnectionMs = 30_000;
const maxConnections = 64;
const maxUrgentConnections = 2;
const maxBodyBytes = 64 * 1024 * 1024;
/** One object in a stream; etcd holds none above 1.5 MiB unless told to. */
const maxLineLength = 8 * 1024 * 1024;

type Agents = Readonly<Record<"short" | "urgent" | "long", HttpAgent>>;

/** Connections to one API server, by the access's current TLS material. */
export class Transport {
  readonly #access: ClusterAccess;
  readonly #userAgent: string;
  #fingerprint = "";
  #agents: Agents | undefined;

  constructor(access: ClusterAccess, userAgent: string) {
    this.#access = access;
    this.#userAgent = userAgent;
  }

  /** Resolves with the answer's head; the body is read by the caller, or destroyed. */
  async send(exchange: Exchange): Promise<IncomingMessage> {
    const credentials = await this.#access.credentials(exchange.refreshCredentials ?? false);
    const agents = this.#agentsFor(credentials);
    const url = new URL(this.#access.server.pathname.replace(/\/$/, "") + exchange.path, this.#access.server);
    const { body, signal } = exchange;
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const options = {
      method: exchange.method,
      agent: credentials.agent ?? (exchange.longLived ? agents.long : exchange.urgent ? agents.urgent : agents.short),
      signal,
      headers: {
        accept: "application/json",
        "user-agent": this.#userAgent,
        ...credentials.headers,
        ...(body && { "content-type": body.contentType, "content-length": Buffer.byteLength(body.text) }),
      },
    };
    const request =
      url.protocol === "http:"
        ? httpRequest(url, options)
        : httpsRequest(url, { ...options, ...(credentials.agent ? credentials.tls : {}) });
    request.once("response", resolve);
    request.on("error", reject);
    if (exchange.longLived) request.once("socket", (socket) => socket.setKeepAlive(true, 15_000));
    request.end(body?.text);
    return promise;
  }

  close(): void {
    for (const agent of Object.values(this.#agents ?? {})) agent.destroy();
    this.#agents = undefined;
  }

  #agentsFor(credentials: Credentials): Agents {
    if (this.#agents && credentials.fingerprint === this.#fingerprint) return this.#agents;
    // Connections made with the former material finish what they do; nothing new goes over them.
    this.#fingerprint = credentials.fingerprint;
    const make = (maxSockets: number, keepAlive: boolean): HttpAgent =>
      this.#access.server.protocol === "http:"
        ? new HttpAgent({ keepAlive, maxSockets, timeout: idleConnectionMs })
        : new HttpsAgent({ keepAlive, maxSockets, timeout: idleConnectionMs, ...credentials.tls });
    this.#agents = {
      short: make(maxConnections, true),
      urgent: make(maxUrgentConnections, true),
      long: make(Number.POSITIVE_INFINITY, false),
    };
    return this.#agents;
  }
}

/** The whole body as text. */
export async function readText(answer: IncomingMessage, limit = maxBodyBytes): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > limit) {
      answer.destroy();
      throw new OpenShellError("resource-exhausted", `the API server's answer is larger than ${limit} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/**
 * The body as lines without their ends. A last line without an end is an error: the stream was cut.
 *
 * @param text what was called, as in "watch pods default"
 * @throws resource-exhausted for a line that is too long
 */
export async function* readLines(answer: IncomingMessage, text: string): AsyncGenerator<string> {
  answer.setEncoding("utf8");
  let rest = "";
  for await (const chunk of answer as AsyncIterable<string>) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > maxLineLength) {
      throw new OpenShellError(
        "resource-exhausted",
        `cannot ${text}: a line is longer than ${maxLineLength} characters`,
      );
    }
    for (const line of lines) if (line !== "") yield line;
  }
  if (rest !== "") throw new RangeError("stream ended in the middle of a line");
}
