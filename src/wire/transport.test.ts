import { createServer, type Http2Server, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import * as grpc from "@grpc/grpc-js";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { createChannel, grpcClient, openshell } from "./index.ts";

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
function roundTrip(session: ServerHttp2Session): Promise<void> {
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

it("does not ask without a call", async () => {
  const { call, stream, session } = await openCall();
  stream.respond({ ":status": 200, "content-type": "application/grpc", "grpc-status": "5" }, { endStream: true });
  await call;
  vi.advanceTimersByTime(600_000);
  await roundTrip(session);
  expect(pings).toBe(0);
});
