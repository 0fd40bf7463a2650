import { once } from "node:events";
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { Agent, createServer, request as httpsRequest, type Server } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";

/** A request to the API server, as the proxy saw it. */
export interface SeenRequest {
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly body: string;
  /** Address of who asks. */
  readonly from: string;
  /** `performance.now()` of its arrival. */
  readonly at: number;
}

export interface Answer {
  readonly status: number;
  readonly headers?: IncomingHttpHeaders;
  readonly body: string;
}

/**
 * What becomes of a request that is no watch: an answer, or undefined for a connection that breaks instead.
 *
 * @param pass asks the API server, with another body where one is given
 */
export type Fault = (request: SeenRequest, pass: (body?: string) => Promise<Answer>) => Promise<Answer | undefined>;

/** What becomes of a line of a watch. */
export type LineFault = (line: string) => readonly string[];

export interface ApiProxyOptions {
  /** Where the API server is, and what its certificate is checked against. */
  readonly server: URL;
  readonly ca: string | Buffer | undefined;
  /** Where this one listens, on a port of its own, and its certificate. */
  readonly address: string;
  readonly certificate: string;
  readonly key: string;
}

interface OpenWatch {
  readonly outgoing: ServerResponse;
  /** Nothing is written to it any more. */
  isSilent: boolean;
}

/**
 * Stands between one client and the API server, passes everything on, and breaks what it is told to. It authenticates nobody: what it is
 * sent, token and all, is what the API server gets.
 */
export class ApiProxy implements AsyncDisposable {
  /** Everything that was asked, watches too, in the order of arrival. */
  readonly requests: SeenRequest[] = [];
  /** Told of each of them as it arrives. */
  onRequest: ((request: SeenRequest) => void) | undefined;
  fault: Fault | undefined;
  lineFault: LineFault | undefined;
  readonly #options: ApiProxyOptions;
  readonly #server: Server;
  readonly #upstream: Agent;
  readonly #sockets = new Set<Socket>();
  readonly #watches = new Set<OpenWatch>();
  readonly #refused = new Set<string>();
  #isAway = false;
  #connections = 0;

  private constructor(options: ApiProxyOptions) {
    this.#options = options;
    this.#upstream = new Agent({ keepAlive: true, ...(options.ca === undefined ? {} : { ca: options.ca }) });
    const { certificate: cert, key } = options;
    // Longer than a client keeps an idle connection, so that none is used just as it closes.
    this.#server = createServer({ cert, key, keepAliveTimeout: 120_000 }, (incoming, outgoing) => {
      this.#serve(incoming, outgoing).catch(() => outgoing.destroy());
    });
    this.#server.on("connection", (socket: Socket) => this.#accept(socket));
    // A client that was cut off in its handshake.
    this.#server.on("tlsClientError", (_error, socket) => socket.destroy());
  }

  static async open(options: ApiProxyOptions): Promise<ApiProxy> {
    const proxy = new ApiProxy(options);
    proxy.#server.listen(0, options.address);
    await once(proxy.#server, "listening");
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Connections that were begun, those that were refused too. */
  get connections(): number {
    return this.#connections;
  }

  /** Cuts every connection and takes no other one until disposed of: the API server is not there. */
  away(): Disposable {
    this.#isAway = true;
    for (const socket of this.#sockets) socket.destroy();
    return {
      [Symbol.dispose]: () => {
        this.#isAway = false;
      },
    };
  }

  /** Cuts the connections of one address and takes no other one of it, ever. */
  refuse(address: string): void {
    this.#refused.add(address);
    for (const socket of this.#sockets) if (this.#isRefused(socket)) socket.destroy();
  }

  /** Breaks requests with `fault` until disposed of. */
  breaking(fault: Fault): Disposable {
    this.fault = fault;
    return {
      [Symbol.dispose]: () => {
        this.fault = undefined;
      },
    };
  }

  /** Ends every watch that is open, in the middle of its stream, and says `last` before. @returns how many there were */
  dropWatches(last?: string): number {
    const open = [...this.#watches].filter(({ isSilent }) => !isSilent);
    for (const { outgoing } of open) {
      if (last === undefined) outgoing.destroy();
      else outgoing.end(`${last}\n`);
    }
    return open.length;
  }

  /** Leaves every watch that is open as it is, and says nothing on it any more. @returns how many there were */
  silenceWatches(): number {
    for (const watch of this.#watches) watch.isSilent = true;
    return this.#watches.size;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    this.#upstream.destroy();
    await once(this.#server, "close");
  }

  #accept(socket: Socket): void {
    this.#connections += 1;
    if (this.#isAway || this.#isRefused(socket)) {
      socket.destroy();
      return;
    }
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    // Its end is what counts.
    socket.on("error", () => undefined);
  }

  #isRefused({ remoteAddress = "" }: Socket): boolean {
    return this.#refused.has(remoteAddress);
  }

  async #serve(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const url = new URL(incoming.url ?? "/", this.#options.server);
    const request: SeenRequest = {
      method: incoming.method ?? "GET",
      path: url.pathname,
      query: url.searchParams,
      body: await text(incoming),
      from: incoming.socket.remoteAddress ?? "",
      at: performance.now(),
    };
    this.requests.push(request);
    this.onRequest?.(request);
    const left = new AbortController();
    outgoing.once("close", () => left.abort());
    const ask = (body = request.body) => this.#ask(incoming, url, request.method, body, left.signal);
    if (request.query.has("watch")) {
      await this.#relay(await ask(), outgoing);
      return;
    }
    const pass = async (body?: string): Promise<Answer> => {
      const answer = await ask(body);
      return { status: answer.statusCode ?? 502, headers: answer.headers, body: await text(answer) };
    };
    const answer = this.fault === undefined ? await pass() : await this.fault(request, pass);
    if (answer === undefined) {
      outgoing.destroy();
      return;
    }
    outgoing.writeHead(answer.status, endToEnd(answer.headers ?? { "content-type": "application/json" }));
    outgoing.end(answer.body);
  }

  async #relay(answer: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    outgoing.writeHead(answer.statusCode ?? 502, endToEnd(answer.headers));
    outgoing.flushHeaders();
    const watch: OpenWatch = { outgoing, isSilent: false };
    this.#watches.add(watch);
    outgoing.once("close", () => {
      this.#watches.delete(watch);
      answer.destroy();
    });
    try {
      for await (const line of createInterface({ input: answer, crlfDelay: Number.POSITIVE_INFINITY })) {
        if (watch.isSilent) continue;
        // It was dropped, and what was still on its way comes too late.
        if (outgoing.writableEnded) break;
        for (const each of this.lineFault?.(line) ?? [line]) outgoing.write(`${each}\n`);
      }
    } finally {
      // One that fell silent does not say that it ended, either.
      if (!watch.isSilent) outgoing.end();
    }
  }

  async #ask(
    incoming: IncomingMessage,
    url: URL,
    method: string,
    body: string,
    signal: AbortSignal,
  ): Promise<IncomingMessage> {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    // Answers are looked at as text.
    const { "accept-encoding": _, ...headers } = endToEnd(incoming.headers);
    const length = body === "" ? {} : { "content-length": Buffer.byteLength(body) };
    const options = { method, agent: this.#upstream, signal, headers: { ...headers, ...length } };
    const outgoing = httpsRequest(url, options, resolve);
    outgoing.on("error", reject);
    outgoing.end(body);
    return promise;
  }
}

/** Headers that are not about one connection (RFC 9110, 7.6.1), or about how a body is sent over it. */
function endToEnd(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const hop = ["connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host", "content-length"];
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !hop.includes(name)));
}

/** A failure as the API server answers it. */
export function statusAnswer(code: number, reason: string, message: string, headers: IncomingHttpHeaders = {}): Answer {
  const body = JSON.stringify(statusObject(code, reason, message));
  return { status: code, headers: { "content-type": "application/json", ...headers }, body };
}

/** The last line of a watch whose place the API server has forgotten. */
export const expiredWatch = JSON.stringify({
  type: "ERROR",
  object: statusObject(410, "Expired", "too old resource version"),
});

function statusObject(code: number, reason: string, message: string): object {
  return { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", code, reason, message };
}
