import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { OpenShellError } from "../common/errors.ts";
import type { Address } from "./address.ts";
import { listenError } from "./listen-error.ts";
import { printMetrics, type Readings } from "./metrics/print.ts";

interface Answer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

/** A small HTTP listener of GET paths. */
export class HttpListener {
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  /** @throws unavailable when the address cannot be had */
  static async listen(what: string, address: Address, paths: Readonly<Record<string, () => Answer>>) {
    const server = createServer((request, response) => {
      const { status, type, body } = answerOf(paths, request.url ?? "/");
      response.writeHead(status, { "content-type": type }).end(body);
    });
    await new Promise<void>((resolve, reject) => {
      server.once("error", (cause) => reject(listenError(what, address, cause)));
      server.listen(address.port, address.host, resolve);
    });
    return new HttpListener(server);
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}

function answerOf(paths: Readonly<Record<string, () => Answer>>, target: string): Answer {
  // Cut by hand: URL throws on targets like "//", which anybody who reaches the port may send.
  const [path = ""] = target.split("?", 1);
  const answer = Object.hasOwn(paths, path) ? paths[path] : undefined;
  if (answer === undefined) return { status: 404, type: "text/plain", body: "not found\n" };
  try {
    return answer();
  } catch (error) {
    return { status: 500, type: "text/plain", body: `${OpenShellError.from(error).message}\n` };
  }
}

/**
 * /healthz: the process answers; it says nothing of the cluster, so that no outage of the API server restarts a gateway. /readyz: the store is
 * open and the driver's informers have synced, else why not; once so, an API server that is away does not take the gateway from its users.
 */
export function healthPaths(unready: () => string | undefined) {
  const type = "application/json";
  return {
    "/healthz": () => ({ status: 200, type, body: '{"status":"ok"}\n' }),
    "/readyz": () => {
      const reason = unready();
      return reason === undefined
        ? { status: 200, type, body: '{"status":"ready"}\n' }
        : { status: 503, type, body: `${JSON.stringify({ status: "not ready", reason })}\n` };
    },
  };
}

export function metricsPaths(measured: Partial<Readings>) {
  return {
    "/metrics": () => ({ status: 200, type: "text/plain; version=0.0.4; charset=utf-8", body: printMetrics(measured) }),
  };
}
