import { once } from "node:events";
import {
  connect,
  constants,
  createServer,
  type Http2Server,
  type Http2Session,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import { type AddressInfo, Socket } from "node:net";
import * as grpc from "@grpc/grpc-js";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { createChannel, createServer as createGrpcServer, grpcClient, openshell } from "./index.ts";

let server: Http2Server;
let channel: grpc.Client;
let pings: number;

/** Real connections, and a clock that only the test moves. */
beforeEach(async () => {
  pings = 0;
  server = createServer();
  server.on("session", (session: ServerHttp2Session) => {
    session.on("ping", () => {
      pings += 1;
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const { port } = server.address() as AddressInfo;
  channel = createChannel(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
});

afterEach(() => {
  vi.useRealTimers();
  channel.close();
  server.close();
});

/** A call that the server leaves open. */
async function openCall() {
  const come = new Promise<ServerHttp2Stream>((resolve) => server.once("stream", resolve));
  const call = grpcClient(openshell.OpenShell, channel)
    .getGatewayInfo({})
    .catch(() => {});
  const stream = await come;
  return { call, stream, session: stream.session as ServerHttp2Session };
}

/** Resolves when the server answers a question that goes after everything sent before. */
function roundTrip(session: Http2Session): Promise<void> {
  return new Promise((resolve, reject) => {
    session.ping((error) => (error === null ? resolve() : reject(error)));
  });
}

it("asks every 10 s whether the server lives while a call is under way", async () => {
  const { session } = await openCall();
  vi.advanceTimersByTime(9_999);
  await roundTrip(session);
  expect(pings).toBe(0);
  vi.advanceTimersByTime(1);
  await roundTrip(session);
  expect(pings).toBe(1);
});

it.each<[string, (stream: ServerHttp2Stream) => void]>([
  ["reset for an internal error", (stream) => stream.close(constants.NGHTTP2_INTERNAL_ERROR)],
  ["reset because it took too long", (stream) => stream.close(constants.NGHTTP2_CANCEL)],
  ["ended without a status", (stream) => stream.end()],
])("takes a call that a proxy %s for one whose connection was lost", async (_, end) => {
  server.once("stream", (stream: ServerHttp2Stream) => {
    stream.on("error", () => {});
    stream.respond({ ":status": 200, "content-type": "application/grpc" });
    end(stream);
  });
  const read = async () => {
    for await (const _ of grpcClient(openshell.OpenShell, channel).watchSandbox({}));
  };
  await expect(read()).rejects.toMatchObject({ code: "unavailable" });
});

it("takes a call that its client leaves for cancelled", async () => {
  const leave = new AbortController();
  const come = once(server, "stream");
  const call = grpcClient(openshell.OpenShell, channel).getGatewayInfo({}, { signal: leave.signal });
  await come;
  leave.abort();
  await expect(call).rejects.toMatchObject({ code: "cancelled" });
});

it("does not ask without a call", async () => {
  const { call, stream, session } = await openCall();
  stream.respond({ ":status": 200, "content-type": "application/grpc", "grpc-status": "5" }, { endStream: true });
  await call;
  vi.advanceTimersByTime(600_000);
  await roundTrip(session);
  expect(pings).toBe(0);
});

/** A server of ours, and a connection to it. */
async function connected() {
  const served = createGrpcServer();
  const port = await new Promise<number>((resolve, reject) =>
    served.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    ),
  );
  const session = connect(`http://127.0.0.1:${port}`);
  const [settings] = await once(session, "remoteSettings");
  return { served, session, settings };
}

it("has the sender of bytes to a server a mebibyte ahead of its reader, and the limit of calls", async () => {
  const { served, session, settings } = await connected();
  await roundTrip(session);
  expect(settings).toMatchObject({ initialWindowSize: 1024 * 1024, maxConcurrentStreams: 1024 });
  expect(session.state.remoteWindowSize).toBe(4 * 1024 * 1024);
  session.destroy();
  served.forceShutdown();
});

it("has a server that is forced to end close its connections", async () => {
  const { served, session } = await connected();
  served.forceShutdown();
  await expect(once(session, "close")).rejects.toThrow("Session closed with error code 8");
});

it("has the sender of bytes to a client a mebibyte ahead of its reader", async () => {
  const { session } = await openCall();
  await roundTrip(session);
  expect(session.remoteSettings.initialWindowSize).toBe(1024 * 1024);
  expect(session.state.remoteWindowSize).toBe(1024 * 1024);
});

it("lets no small message wait for an earlier one to be acknowledged, at neither end", async () => {
  const prompt = new Set<number | undefined>();
  const setNoDelay = vi.spyOn(Socket.prototype, "setNoDelay").mockImplementation(function (this: Socket, on = true) {
    if (on) prompt.add(this.localPort);
    return this;
  });
  try {
    const { stream } = await openCall();
    const { localPort, remotePort } = stream.session?.socket ?? {};
    expect([...prompt]).toEqual(expect.arrayContaining([localPort, remotePort]));
  } finally {
    setNoDelay.mockRestore();
  }
});
