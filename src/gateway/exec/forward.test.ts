import { describe, expect, it } from "vitest";
import { type ByteChannel, readHeader, services } from "../../boundary/index.ts";
import { encodeFrame } from "../../common/frames.ts";
import { boundary, statusNumber } from "../../wire/index.ts";
import { TestGateway } from "../_testing.ts";
import { ready } from "../_testing-sandbox.ts";

type Target = { readonly host?: string; readonly port: number };

/** ForwardTcp to a port: sends `parts`, then nothing more; what came back. */
async function forward(test: TestGateway, { host = "", port }: Target, parts: readonly string[], signal?: AbortSignal) {
  async function* frames() {
    const target = { case: "tcp" as const, value: { host, port } };
    yield { payload: { case: "init" as const, value: { workspace: "default", sandbox: "one", target } } };
    for (const part of parts) yield { payload: { case: "data" as const, value: Buffer.from(part) } };
  }
  let received = "";
  for await (const { payload } of test.client.forwardTcp(frames(), signal === undefined ? {} : { signal })) {
    if (payload.case === "data") received += Buffer.from(payload.value).toString();
  }
  return received;
}

/** The runtime's side: accepts, reads to the end of the client's direction, and answers afterwards. */
function answering(seen: boundary.TcpOpen[]) {
  return async (channel: ByteChannel, serviceId: string) => {
    expect(serviceId).toBe(services.tcp);
    const { message, rest } = await readHeader(boundary.TcpOpenSchema, channel.readable);
    seen.push(message as boundary.TcpOpen);
    await channel.write(encodeFrame(boundary.TcpOpenedSchema, {}));
    let text = "";
    for await (const chunk of rest) text += Buffer.from(chunk).toString();
    await channel.write(Buffer.from(`heard ${text.length}: ${text.slice(0, 20)}`));
  };
}

describe("ForwardTcp to a port", () => {
  it("carries the bytes there and back, and the client's half-close in order with them", async () => {
    await using test = await TestGateway.start();
    const seen: boundary.TcpOpen[] = [];
    const { supervisor } = await ready(test, "one", {}, answering(seen));
    await using _ = supervisor;
    expect(await forward(test, { port: 8000 }, ["GET / ", "HTTP/1.1"])).toBe("heard 14: GET / HTTP/1.1");
    expect(await forward(test, { host: "::1", port: 8001 }, ["x".repeat(500_000)])).toMatch(/^heard 500000: xxx/);
    expect(seen.map(({ host, port }) => [host, port])).toEqual([
      ["127.0.0.1", 8000],
      ["::1", 8001],
    ]);
  });

  it("takes an empty frame of the client for nothing, not for its end", async () => {
    await using test = await TestGateway.start();
    const { supervisor } = await ready(test, "one", {}, answering([]));
    await using _ = supervisor;
    expect(await forward(test, { port: 8000 }, ["a", "", "b"])).toBe("heard 2: ab");
  });

  it("that nobody listens on answers with the runtime's refusal", async () => {
    await using test = await TestGateway.start();
    const { supervisor } = await ready(test, "one", {}, async (channel) => {
      const failure = { code: statusNumber("unavailable"), message: "127.0.0.1:8000 refused the connection" };
      await channel.write(encodeFrame(boundary.TcpOpenedSchema, { failure }));
    });
    await using _ = supervisor;
    await expect(forward(test, { port: 8000 }, [])).rejects.toMatchObject({
      code: "unavailable",
      message: "127.0.0.1:8000 refused the connection",
    });
  });

  it("that is no port is refused before anything is opened", async () => {
    await using test = await TestGateway.start();
    const { supervisor } = await ready(test, "one");
    await using _ = supervisor;
    for (const port of [0, 65_536]) {
      await expect(forward(test, { port }, [])).rejects.toMatchObject({
        code: "invalid-argument",
        message: `init.tcp.port: ${port} is no port (1 to 65535)`,
      });
    }
  });

  it("lets go of the relay when the client leaves before the connection stands", async () => {
    await using test = await TestGateway.start();
    const asked = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<unknown>();
    const { supervisor } = await ready(test, "one", {}, async (channel) => {
      try {
        for await (const _ of channel.readable) asked.resolve();
        ended.resolve("end");
      } catch (error) {
        ended.resolve(error);
      }
    });
    await using _ = supervisor;
    const leave = new AbortController();
    const call = forward(test, { port: 8000 }, [], leave.signal);
    await asked.promise;
    leave.abort();
    await expect(call).rejects.toMatchObject({ code: "cancelled" });
    await ended.promise;
  });
});
