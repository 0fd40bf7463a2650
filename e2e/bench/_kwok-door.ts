import { createServer, type Server } from "node:http";
import { Agent, request } from "node:https";
import type { AddressInfo } from "node:net";
import type { ClusterAccess } from "../../src/kube/index.ts";

/**
 * A way to the API server for kwok on this machine, by the administrator's rights. kwok asks every watch to begin at version 0 with bookmarks,
 * which an API server over etcd before 3.5 takes for a list by watch and ends at once; without the bookmarks it is an ordinary watch.
 */
export class KwokDoor implements AsyncDisposable {
  readonly #server: Server;
  readonly #agent: Agent;

  private constructor(server: Server, agent: Agent) {
    this.#server = server;
    this.#agent = agent;
  }

  static async open(access: ClusterAccess): Promise<KwokDoor> {
    const { tls, headers } = await access.credentials(false);
    const agent = new Agent({ keepAlive: true, ...tls });
    const server = createServer((asked, answer) => {
      const url = new URL(asked.url ?? "/", access.server);
      if (url.searchParams.get("watch") === "true" && url.searchParams.get("resourceVersion") === "0") {
        url.searchParams.delete("allowWatchBookmarks");
      }
      const onwards = request(
        url,
        { agent, method: asked.method ?? "GET", headers: { ...asked.headers, ...headers, host: access.server.host } },
        (answered) => {
          answer.writeHead(answered.statusCode ?? 502, answered.headers);
          // A watch begins to be one with its head.
          answer.flushHeaders();
          answered.pipe(answer);
          answered.on("error", () => answer.destroy());
        },
      );
      onwards.on("error", () => answer.destroy());
      answer.on("close", () => onwards.destroy());
      asked.pipe(onwards);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new KwokDoor(server, agent);
  }

  /** A kubeconfig that leads here. */
  get kubeconfig(): object {
    const { port } = this.#server.address() as AddressInfo;
    const name = "kwok";
    return {
      apiVersion: "v1",
      kind: "Config",
      "current-context": name,
      clusters: [{ name, cluster: { server: `http://127.0.0.1:${port}` } }],
      users: [{ name, user: {} }],
      contexts: [{ name, context: { cluster: name, user: name } }],
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#agent.destroy();
  }
}
