import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type ClusterAccess, fixedAccess } from "./access.ts";

export interface ScriptedRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingMessage["headers"];
  /** Parsed JSON; undefined when there is none. */
  readonly body: unknown;
}

export type ScriptedStep = (request: ScriptedRequest, response: ServerResponse) => void | Promise<void>;

/** An API server for tests that does what its script says, one step a request; a request after the last step is a 500. */
export class ScriptedServer implements AsyncDisposable {
  readonly access: ClusterAccess;
  readonly requests: ScriptedRequest[] = [];
  /** Connections that are open now. */
  readonly sockets: ReadonlySet<object>;
  readonly #close: () => Promise<void>;

  private constructor(access: ClusterAccess, sockets: ReadonlySet<object>, close: () => Promise<void>) {
    this.access = access;
    this.sockets = sockets;
    this.#close = close;
  }

  static async start(steps: ScriptedStep[] | ScriptedStep): Promise<ScriptedServer> {
    const sockets = new Set<object>();
    const server = createServer(async (request, response) => {
      const url = new URL(request.url ?? "/", "http://server");
      const chunks: Buffer[] = [];
      for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
      const text = Buffer.concat(chunks).toString();
      const scripted: ScriptedRequest = {
        method: request.method ?? "",
        path: url.pathname,
        query: url.searchParams,
        headers: request.headers,
        body: text === "" ? undefined : JSON.parse(text),
      };
      started.requests.push(scripted);
      const step = typeof steps === "function" ? steps : steps.shift();
      if (step) await step(scripted, response);
      else
        answer(500, { kind: "Status", message: `not in the script: ${request.method} ${request.url}` })(
          scripted,
          response,
        );
    });
    server.on("connection", (socket) => {
      sockets.add(socket);
      socket.on("close", () => sockets.delete(socket));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const access = fixedAccess(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    const started: ScriptedServer = new ScriptedServer(access, sockets, async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    });
    return started;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#close();
  }
}

/** Answers with JSON. */
export function answer(code: number, body: unknown, headers: Record<string, string> = {}): ScriptedStep {
  return (_, response) => {
    response.writeHead(code, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify(body));
  };
}

/** Answers with a `Status`, as the API server refuses things. */
export function refuse(
  code: number,
  reason: string,
  message: string,
  headers: Record<string, string> = {},
): ScriptedStep {
  return answer(code, { kind: "Status", apiVersion: "v1", status: "Failure", code, reason, message }, headers);
}

/** Answers with lines as they are, and ends the stream cleanly. */
export function lines(...texts: string[]): ScriptedStep {
  return (_, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(texts.map((text) => `${text}\n`).join(""));
  };
}

/** Answers with lines and then keeps the stream open without a word. */
export function linesThenSilence(...texts: string[]): ScriptedStep {
  return (_, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.write(texts.map((text) => `${text}\n`).join(""));
    response.flushHeaders();
  };
}

/** Answers with lines and then breaks the connection. */
export function linesThenBreak(...texts: string[]): ScriptedStep {
  return (_, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.write(texts.map((text) => `${text}\n`).join(""), () => response.destroy());
  };
}

/** A Pod as JSON. */
export function pod(name: string, resourceVersion: string, uid = `uid-${name}`) {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default", uid, resourceVersion, labels: { app: name } },
  };
}

export function podList(resourceVersion: string, ...items: unknown[]): ScriptedStep {
  return answer(200, { kind: "PodList", apiVersion: "v1", metadata: { resourceVersion }, items });
}

export function watchLine(type: string, object: unknown): string {
  return JSON.stringify({ type, object });
}
