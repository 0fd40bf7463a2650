import { once } from "node:events";
import { createServer, type Server } from "node:net";
import { OpenShellError } from "../common/errors.ts";

/** A TCP port that accepts connections exactly while it is open: what a `tcpSocket` probe asks. */
export class ReadinessPort {
  readonly #port: number;
  #server: Server | undefined;

  /** @param port 0 takes any free one */
  constructor(port: number) {
    this.#port = port;
  }

  /** Port in use, while open. */
  get port(): number | undefined {
    const address = this.#server?.address();
    return typeof address === "object" && address !== null ? address.port : undefined;
  }

  async set(ready: boolean): Promise<void> {
    if (ready === (this.#server !== undefined)) return;
    if (!ready) {
      this.#server?.close();
      this.#server = undefined;
      return;
    }
    const server = createServer((socket) => socket.destroy());
    this.#server = server;
    server.listen(this.#port);
    try {
      await once(server, "listening");
    } catch (cause) {
      this.#server = undefined;
      throw new OpenShellError("failed-precondition", `readiness port ${this.#port} is taken`, { cause });
    }
  }
}
