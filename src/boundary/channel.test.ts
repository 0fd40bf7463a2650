import { describe, expect, it } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import { decodeFrames, encodeFrame } from "../common/frames.ts";
import { boundary } from "../wire/index.ts";
import { bytesFields, encodeBytesFrame } from "./bytes-frame.ts";
import { type ByteChannel, channelPair, join } from "./channel.ts";
import { type ExecInputEvent, type ExecOutputEvent, runExec } from "./exec.ts";
import { chunkBytes, pieceBytes } from "./protocol.ts";
import { openTcp, readHeader } from "./tcp.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

async function textOf(readable: AsyncIterable<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of readable) text += decoder.decode(chunk, { stream: true });
  return text;
}

describe("a channel", () => {
  it("carries bytes both ways, each way ending on its own", async () => {
    const [near, far] = channelPair();
    const there = textOf(far.readable);
    await near.write(bytes("ping"));
    near.end();
    expect(await there).toBe("ping");
    const back = textOf(near.readable);
    await far.write(bytes("pong"));
    far.end();
    expect(await back).toBe("pong");
  });

  it("holds a writer that nobody reads", async () => {
    const [near, far] = channelPair();
    let written = 0;
    const writing = (async () => {
      for (; written < 100; written += 1) await near.write(new Uint8Array(1));
      near.end();
    })();
    await new Promise((resolve) => setImmediate(resolve));
    expect(written).toBeLessThan(10);
    expect((await textOf(far.readable)).length).toBe(100);
    await writing;
  });

  it("carries a data message of full size in one piece, and a larger one in as few as its reader may expect", async () => {
    const [near, far] = channelPair();
    const frame = encodeBytesFrame(bytesFields.downloaded, new Uint8Array(chunkBytes));
    const writing = (async () => {
      await near.write(frame);
      await near.write(new Uint8Array(2 * pieceBytes + 1));
      near.end();
    })();
    const lengths: number[] = [];
    for await (const piece of far.readable) lengths.push(piece.length);
    await writing;
    expect(lengths).toEqual([frame.length, pieceBytes, pieceBytes, 1]);
  });

  it("that is aborted fails on the other side with the reason", async () => {
    const [near, far] = channelPair();
    near.abort(new OpenShellError("cancelled", "gone"));
    await expect(textOf(far.readable)).rejects.toThrow("gone");
    await expect(near.write(bytes("x"))).rejects.toMatchObject({ code: "unavailable" });
  });

  it("is joined to another until both directions have ended", async () => {
    const [client, left] = channelPair();
    const [right, server] = channelPair();
    const joined = join(left, right);
    const echo = (async () => {
      const text = await textOf(server.readable);
      await server.write(bytes(text.toUpperCase()));
      server.end();
    })();
    await client.write(bytes("hello"));
    client.end();
    expect(await textOf(client.readable)).toBe("HELLO");
    await Promise.all([joined, echo]);
  });

  it("that is lost drops what it was joined to", async () => {
    const [client, left] = channelPair();
    const [right, server] = channelPair();
    const joined = join(left, right);
    client.abort(new OpenShellError("cancelled", "gone"));
    await expect(joined).rejects.toThrow("gone");
    await expect(textOf(server.readable)).rejects.toThrow("gone");
  });
});

/** Plays the runtime: collects what comes in and answers. */
async function answer(channel: ByteChannel, ...outputs: readonly Parameters<typeof output>[0][]) {
  const inputs: string[] = [];
  const reading = (async () => {
    for await (const { payload } of decodeFrames(boundary.ExecInputSchema, channel.readable)) {
      inputs.push(payload.case === "stdin" ? `stdin ${new TextDecoder().decode(payload.value)}` : (payload.case ?? ""));
    }
  })();
  for (const one of outputs) await channel.write(output(one));
  channel.end();
  await reading.catch(() => {});
  return inputs;
}

function output(
  payload:
    | { case: "stdout" | "stderr"; value: Uint8Array }
    | { case: "exit"; value: { exitCode: number } }
    | { case: "failure"; value: { code: number; message: string } },
): Uint8Array {
  return encodeFrame(boundary.ExecOutputSchema, { payload });
}

async function* once(...events: readonly ExecInputEvent[]) {
  yield* events;
}

describe("the client of an exec", () => {
  it("gives output and the exit, and sends input, sizes and the end of input", async () => {
    const [near, far] = channelPair();
    const served = answer(
      far,
      { case: "stdout", value: bytes("a") },
      { case: "stderr", value: bytes("b") },
      { case: "exit", value: { exitCode: 3 } },
    );
    const events: ExecOutputEvent[] = [];
    const input = once({ kind: "stdin", data: bytes("x") }, { kind: "resize", columns: 1, rows: 2 });
    for await (const event of runExec(near, { command: ["x"] }, input)) events.push(event);
    expect(events.map((one) => one.kind)).toEqual(["stdout", "stderr", "exit"]);
    expect(events.at(-1)).toEqual({ kind: "exit", code: 3 });
    expect((await served)[0]).toBe("start");
  });

  it("throws what the runtime refused it with", async () => {
    const [near, far] = channelPair();
    void answer(far, { case: "failure", value: { code: 3, message: "the command is empty" } });
    await expect(runExec(near, { command: [] }).next()).rejects.toMatchObject({
      code: "invalid-argument",
      message: "the command is empty",
    });
  });

  it("takes an end without an exit for a lost connection", async () => {
    const [near, far] = channelPair();
    void answer(far);
    await expect(runExec(near, { command: ["x"] }).next()).rejects.toMatchObject({ code: "unavailable" });
  });

  it("that leaves early drops the channel", async () => {
    const [near, far] = channelPair();
    const run = runExec(near, { command: ["x"] });
    const first = run.next();
    await far.write(output({ case: "stdout", value: bytes("a") }));
    await first;
    await run.return();
    await expect(far.write(bytes("more"))).rejects.toMatchObject({ code: "unavailable" });
  });
});

describe("the client of a connection", () => {
  it("gets raw bytes after the header, also those that came with it", async () => {
    const [near, far] = channelPair();
    const opened = openTcp(near, "127.0.0.1", 80);
    const { message } = await readHeader(boundary.TcpOpenSchema, far.readable);
    expect(message).toMatchObject({ host: "127.0.0.1", port: 80 });
    const header = encodeFrame(boundary.TcpOpenedSchema, {});
    await far.write(Buffer.concat([header, bytes("220 ready")]));
    far.end();
    expect(await textOf((await opened).readable)).toBe("220 ready");
  });
});
