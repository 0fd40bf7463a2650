import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import { encodeFrame } from "../common/frames.ts";
import { boundary, statusNumber } from "../wire/index.ts";
import { type ByteChannel, channelPair } from "./channel.ts";
import { openTcp, readHeader } from "./tcp.ts";

async function textOf(chunks: AsyncIterable<Uint8Array>): Promise<string> {
  const parts: Uint8Array[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  return Buffer.concat(parts).toString();
}

/** The runtime's side: accepts and gives back what it hears, once it has heard all of it. */
async function echo(channel: ByteChannel) {
  const { message, rest } = await readHeader(boundary.TcpOpenSchema, channel.readable);
  await channel.write(encodeFrame(boundary.TcpOpenedSchema, {}));
  const heard = await textOf(rest);
  await channel.write(Buffer.from(heard));
  channel.end();
  return message as boundary.TcpOpen;
}

async function* of(...chunks: readonly Uint8Array[]) {
  yield* chunks;
}

describe("a connection to a port of the sandbox", () => {
  it("names the port, then carries raw bytes with a half-close of its own in each direction", async () => {
    const [near, far] = channelPair();
    const serving = echo(far);
    const connection = await openTcp(near, "127.0.0.1", 8000);
    await connection.write(Buffer.from("hello "));
    await connection.write(Buffer.from("there"));
    connection.end();
    expect(await textOf(connection.readable)).toBe("hello there");
    expect(await serving).toMatchObject({ host: "127.0.0.1", port: 8000 });
  });

  it("that the runtime refuses throws the runtime's code and sentence", async () => {
    const [near, far] = channelPair();
    const failure = { code: statusNumber("permission-denied"), message: "only loopback addresses can be reached" };
    await far.write(encodeFrame(boundary.TcpOpenedSchema, { failure }));
    await expect(openTcp(near, "10.0.0.1", 80)).rejects.toMatchObject({
      code: "permission-denied",
      message: "only loopback addresses can be reached",
    });
  });

  it("that ends before the runtime has answered is data loss", async () => {
    const [near, far] = channelPair();
    far.end();
    await expect(openTcp(near, "127.0.0.1", 80)).rejects.toMatchObject({ code: "data-loss" });
  });

  it("that is lost while it waits throws why", async () => {
    const [near, far] = channelPair();
    const opening = openTcp(near, "127.0.0.1", 80);
    far.abort(new OpenShellError("unavailable", "the supervisor was lost"));
    await expect(opening).rejects.toMatchObject({ code: "unavailable" });
  });
});

describe("a header message before raw bytes", () => {
  it("is found wherever the stream is cut, and the bytes after it are whole", async () => {
    const header = encodeFrame(boundary.TcpOpenSchema, { host: "127.0.0.1", port: 8000 });
    await fc.assert(
      fc.asyncProperty(fc.string({ maxLength: 40 }), fc.nat(), fc.nat(), async (text, first, second) => {
        const bytes = Buffer.concat([header, Buffer.from(text)]);
        const [from, to] = [first % (bytes.length + 1), second % (bytes.length + 1)].sort((a, b) => a - b);
        const chunks = of(bytes.subarray(0, from), bytes.subarray(from, to), bytes.subarray(to));
        const { message, rest } = await readHeader(boundary.TcpOpenSchema, chunks);
        expect(message).toMatchObject({ host: "127.0.0.1", port: 8000 });
        expect(await textOf(rest)).toBe(Buffer.from(text).toString());
      }),
    );
  });
});
