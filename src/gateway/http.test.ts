import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { describe, expect, it } from "vitest";
import { HttpListener, healthPaths } from "./http.ts";

async function ask(port: number, target: string): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  socket.end(`GET ${target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`);
  const answer = await text(socket);
  return answer.split("\r\n")[0] ?? "";
}

describe("the health listener", () => {
  it("answers its paths, whatever follows a question mark, and nothing else", async () => {
    let reason: string | undefined = "the compute driver is not ready";
    const failing = {
      "/fails": () => {
        throw new Error("no");
      },
    };
    const paths = { ...healthPaths(() => reason), ...failing };
    const listener = await HttpListener.listen("health_bind_address", { host: "127.0.0.1", port: 0 }, paths);
    try {
      const { port } = listener;
      expect(await ask(port, "/healthz")).toBe("HTTP/1.1 200 OK");
      expect(await ask(port, "/readyz?verbose")).toBe("HTTP/1.1 503 Service Unavailable");
      reason = undefined;
      expect(await ask(port, "/readyz")).toBe("HTTP/1.1 200 OK");
      // Targets that URL does not parse must not end the process.
      for (const target of ["//", "/other", "http://[", "*"]) {
        expect(await ask(port, target), target).toBe("HTTP/1.1 404 Not Found");
      }
      expect(await ask(port, "/fails")).toBe("HTTP/1.1 500 Internal Server Error");
    } finally {
      await listener.close();
    }
  });
});
