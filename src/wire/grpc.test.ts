import { once } from "node:events";
import { type ClientHttp2Session, connect } from "node:http2";
import { setImmediate } from "node:timers/promises";
import * as grpc from "@grpc/grpc-js";
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import {
  addService,
  createChannel,
  createServer,
  grpcClient,
  type Implementation,
  localClient,
  openshell,
} from "./index.ts";
import { requestTimeoutMs } from "./server.ts";

type Service = typeof openshell.OpenShell;

/** An error whose every word somebody else chose, in three bytes a character. */
const many = "€".repeat(10_000);
const wordy = new OpenShellError("not-found", many, {
  reason: many,
  metadata: { message: many, one: many, two: many },
  violations: Array.from({ length: 20 }, () => ({ field: many, description: many })),
});

const implementation: Implementation<Service, string> = {
  health: async (_request, context) => ({ version: `seen by ${context.principal}` }),
  async getSandbox(request) {
    if (request.name === "wordy") throw wordy;
    throw new OpenShellError("not-found", `sandbox ${request.name} not found`, {
      reason: "SandboxNotFound",
      violations: [{ field: "name", description: "no such sandbox" }],
      retryAfterMs: 1500,
    });
  },
  getGatewayInfo: () => new Promise(() => {}),
  async *execSandbox(request) {
    if (request.sandbox === "gone") throw new OpenShellError("not-found", "no such sandbox");
    for (const word of request.command) yield { payload: { case: "stdout", value: { data: Buffer.from(word) } } };
    yield { payload: { case: "exit", value: { exitCode: 7 } } };
  },
  async pushSandboxLogs(requests) {
    let lines = 0;
    for await (const request of requests) lines += request.logs.length;
    if (lines !== 3) throw new OpenShellError("data-loss", `${lines} lines`);
    return {};
  },
  async *forwardTcp(requests) {
    for await (const frame of requests) yield frame;
  },
};

let server: grpc.Server;
let channel: grpc.Client;
let port: number;

beforeEach(async () => {
  server = createServer();
  addService(server, openshell.OpenShell, implementation, (context) => {
    if (context.header("x-refuse") !== undefined) throw new OpenShellError("unauthenticated", "refused");
    return "grpc";
  });
  port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    );
  });
  channel = createChannel(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
});

afterEach(() => {
  channel.close();
  server.forceShutdown();
});

describe.each(["over a socket", "in this process"])("a typed client %s", (where) => {
  const client = () =>
    where === "over a socket"
      ? grpcClient(openshell.OpenShell, channel)
      : localClient(openshell.OpenShell, implementation, "local");

  it("calls a unary method and hands the principal over", async () => {
    expect((await client().health({})).version).toMatch(/^seen by (grpc|local)$/);
  });

  it("keeps code, message and details of an error", async () => {
    const error = await client()
      .getSandbox({ name: "x" })
      .catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({
      code: "not-found",
      message: "sandbox x not found",
      details: {
        reason: "SandboxNotFound",
        retryAfterMs: 1500,
        violations: [{ field: "name", description: "no such sandbox" }],
      },
    });
  });

  it("streams responses in order", async () => {
    const seen: string[] = [];
    for await (const event of client().execSandbox({ command: ["a", "b"] })) {
      seen.push(
        event.payload.case === "stdout" ? Buffer.from(event.payload.value.data).toString() : String(event.payload.case),
      );
    }
    expect(seen).toEqual(["a", "b", "exit"]);
  });

  it("streams requests", async () => {
    async function* requests() {
      for (let line = 0; line < 3; line += 1) yield { logs: [{ message: String(line) }] };
    }
    await expect(client().pushSandboxLogs(requests())).resolves.toBeDefined();
  });

  it("carries 32 MiB both ways at once without losing a byte", async () => {
    const chunk = Buffer.alloc(64 * 1024, 7);
    async function* requests() {
      for (let index = 0; index < 512; index += 1) yield { payload: { case: "data" as const, value: chunk } };
    }
    let bytes = 0;
    for await (const frame of client().forwardTcp(requests())) {
      if (frame.payload.case === "data") bytes += frame.payload.value.length;
    }
    expect(bytes).toBe(512 * chunk.length);
  });

  it("rejects, rather than throws, when the caller has left already", async () => {
    const signal = AbortSignal.abort();
    await expect(client().health({}, { signal })).rejects.toMatchObject({ code: "cancelled" });
  });

  it("answers at the deadline though the handler does not listen", async () => {
    const call = client().getGatewayInfo({}, { timeoutMs: 50 });
    await expect(call).rejects.toMatchObject({ code: "deadline-exceeded" });
  });

  it("answers a method nobody implements with unimplemented", async () => {
    await expect(client().getDraftPolicy({})).rejects.toMatchObject({ code: "unimplemented" });
  });
});

it("authenticates before it says that a method is not implemented", async () => {
  const call = grpcClient(openshell.OpenShell, channel).getDraftPolicy({}, { headers: { "x-refuse": "1" } });
  await expect(call).rejects.toMatchObject({ code: "unauthenticated" });
});

it.each(["GetSandbox", "ExecSandbox"])("reads nothing of %s before it knows who sends it", async (method) => {
  const session = connect(`http://127.0.0.1:${port}`);
  const headers = { "content-type": "application/grpc", te: "trailers", "x-refuse": "1" };
  const call = session.request({ ":method": "POST", ":path": `/openshell.v1.OpenShell/${method}`, ...headers });
  // The beginning of a message of 7 MiB, whose rest does not come.
  call.write(Buffer.from([0, 0, 0x70, 0, 0]));
  const [answer] = await once(call, "response");
  expect(answer).toMatchObject({ "grpc-status": "16", "grpc-message": "refused" });
  session.destroy();
});

/** The beginning of a message of 7 MiB, whose rest does not come. */
function beginLarge(session: ClientHttp2Session, method: string) {
  const headers = { "content-type": "application/grpc", te: "trailers" };
  const call = session.request({ ":method": "POST", ":path": `/openshell.v1.OpenShell/${method}`, ...headers });
  call.write(Buffer.concat([Buffer.from([0, 0, 0x70, 0, 0]), Buffer.alloc(100_000)]));
  return call;
}

it("holds nothing large of a request that has nothing to say, as those that need no credential", async () => {
  const session = connect(`http://127.0.0.1:${port}`);
  const [answer] = await once(beginLarge(session, "Health"), "response");
  expect(answer).toMatchObject({ "grpc-status": "8" });
  session.destroy();
});

it.each(["GetSandbox", "ExecSandbox"])(
  "waits for the whole request of %s for a bounded time, and holds nothing of it then",
  async (method) => {
    const session = connect(`http://127.0.0.1:${port}`);
    await once(session, "connect");
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => {
      vi.useRealTimers();
      session.destroy();
    });
    const call = beginLarge(session, method);
    const answered = once(call, "response");
    while (vi.getTimerCount() === 0) await setImmediate();
    vi.advanceTimersByTime(requestTimeoutMs);
    const [answer] = await answered;
    expect(answer).toMatchObject({ "grpc-status": "4" });
    // Its own side of the stream is still open.
    call.resume();
    await once(call, "close");
    expect(call.rstCode).toBe(0);
  },
);

it("takes no request of another number of messages than one", async () => {
  for (const bodies of [
    [],
    [
      [0, 0, 0, 0, 0],
      [0, 0, 0, 0, 0],
    ],
  ]) {
    const session = connect(`http://127.0.0.1:${port}`);
    const headers = { "content-type": "application/grpc", te: "trailers" };
    const call = session.request({ ":method": "POST", ":path": "/openshell.v1.OpenShell/Health", ...headers });
    call.end(Buffer.from(bodies.flat()));
    const [answer] = await once(call, "response");
    expect(answer).toMatchObject({ "grpc-status": "3", "grpc-message": "a%20request%20is%20one%20message" });
    session.destroy();
  }
});

it("keeps the failure of a stream that is looked at later", async () => {
  const events = grpcClient(openshell.OpenShell, channel).execSandbox({ sandbox: "gone" });
  // Something else goes on meanwhile, over the same connection.
  await grpcClient(openshell.OpenShell, channel).health({});
  await grpcClient(openshell.OpenShell, channel).health({});
  const read = async () => {
    for await (const _ of events);
  };
  await expect(read()).rejects.toMatchObject({ code: "not-found" });
});

it("cancels the handler when the client leaves the stream", async () => {
  const { promise, resolve } = Promise.withResolvers<unknown>();
  const waiting: Implementation<Service, string> = {
    async *watchSandbox(_request, context) {
      yield {};
      await new Promise<void>((wake) => context.signal.addEventListener("abort", () => wake(), { once: true }));
      resolve(context.signal.reason);
    },
  };
  const second = createServer();
  addService(second, openshell.OpenShell, waiting, () => "grpc");
  const port = await new Promise<number>((bound) =>
    second.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (_error, number) => bound(number)),
  );
  const own = createChannel(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
  for await (const _event of grpcClient(openshell.OpenShell, own).watchSandbox({})) break;
  await expect(promise).resolves.toMatchObject({ code: "cancelled" });
  own.close();
  second.forceShutdown();
});

it("holds little of a source whose messages nobody reads on, and leaves it when the server ends the call", async () => {
  const { promise: full, resolve: stop } = Promise.withResolvers<void>();
  const { promise: left, resolve: leave } = Promise.withResolvers<void>();
  const deaf: Implementation<Service, string> = {
    async *forwardTcp(requests) {
      yield {};
      await requests[Symbol.asyncIterator]().next();
      await full;
    },
  };
  const second = createServer();
  addService(second, openshell.OpenShell, deaf, () => "grpc");
  const port = await new Promise<number>((bound) =>
    second.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (_error, number) => bound(number)),
  );
  const own = createChannel(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
  let sent = 0;
  async function* endless() {
    try {
      for (; ; sent += 1) yield { payload: { case: "data" as const, value: new Uint8Array(64 * 1024) } };
    } finally {
      leave();
    }
  }
  const read = async () => {
    for await (const _ of grpcClient(openshell.OpenShell, own).forwardTcp(endless()));
  };
  const reading = read();
  let before = -1;
  await vi.waitUntil(
    () => {
      const still = sent > 0 && sent === before;
      before = sent;
      return still;
    },
    { interval: 300, timeout: 15_000 },
  );
  // A window's worth, a message or two at each end, and not the 16 that Node holds of objects however large they are.
  expect(sent * 64).toBeLessThan(1536);
  stop();
  await reading;
  await left;
  own.close();
  second.forceShutdown();
});

it("carries bytes beside many calls of the same connection whose messages nobody reads", async () => {
  const { promise: over, resolve: stop } = Promise.withResolvers<void>();
  const mixed: Implementation<Service, string> = {
    async *execSandbox() {
      for (let index = 0; index < 128; index += 1) {
        yield { payload: { case: "stdout", value: { data: new Uint8Array(64 * 1024) } } };
      }
    },
    async *forwardTcp() {
      yield {};
      await over;
    },
    async pushSandboxLogs(requests) {
      for await (const _ of requests);
      return {};
    },
  };
  const second = createServer();
  addService(second, openshell.OpenShell, mixed, () => "grpc");
  const port = await new Promise<number>((bound) =>
    second.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (_error, number) => bound(number)),
  );
  const own = createChannel(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
  const client = grpcClient(openshell.OpenShell, own);
  let written = 0;
  async function* endless() {
    for (; ; written += 1) yield { payload: { case: "data" as const, value: new Uint8Array(64 * 1024) } };
  }
  const left = new AbortController();
  const deaf = Array.from({ length: 8 }, async () => {
    for await (const _ of client.forwardTcp(endless(), { signal: left.signal }));
  });
  let before = -1;
  await vi.waitUntil(
    () => {
      const still = written > 0 && written === before;
      before = written;
      return still;
    },
    { interval: 300, timeout: 15_000 },
  );
  async function* lines() {
    for (let index = 0; index < 128; index += 1) yield { logs: [{ message: "x".repeat(64 * 1024) }] };
  }
  await client.pushSandboxLogs(lines());
  let bytes = 0;
  for await (const { payload } of client.execSandbox({})) {
    if (payload.case === "stdout") bytes += payload.value.data.length;
  }
  expect(bytes).toBe(8 * 1024 * 1024);
  stop();
  left.abort();
  await Promise.allSettled(deaf);
  own.close();
  second.forceShutdown();
});

it("says an error in bounded words, and the other calls of the connection go on", async () => {
  const client = grpcClient(openshell.OpenShell, channel);
  const leave = new AbortController();
  const other = client.getGatewayInfo({}, { signal: leave.signal });
  const refused = client.getSandbox({ name: "wordy" });
  await expect(refused).rejects.toMatchObject({ code: "not-found", details: { reason: `${"€".repeat(255)}…` } });
  const error = (await refused.catch((thrown: unknown) => thrown)) as OpenShellError;
  expect(error.message).toHaveLength(2048);
  expect(error.details.violations?.length).toBeGreaterThan(8);
  leave.abort();
  await expect(other).rejects.toMatchObject({ code: "cancelled" });
});
