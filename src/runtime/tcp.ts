import { connect, isIP, type Socket } from "node:net";
import { type ByteChannel, readHeader } from "../boundary/index.ts";
import { OpenShellError } from "../common/errors.ts";
import { encodeFrame } from "../common/frames.ts";
import { boundary, statusNumber } from "../wire/index.ts";

const connectTimeoutMs = 10_000;

export interface TcpOptions {
  /** Called right before the connection is made; throws where none may be. */
  readonly permit: () => void;
  /** Aborted when the channel is lost. */
  readonly signal: AbortSignal;
}

/** Connects a channel to a port of this Pod's loopback interface. */
export async function serveTcp(channel: ByteChannel, { permit, signal }: TcpOptions): Promise<void> {
  let socket: Socket;
  let rest: AsyncIterable<Uint8Array>;
  try {
    const header = await readHeader(boundary.TcpOpenSchema, channel.readable);
    rest = header.rest;
    permit();
    socket = await open(header.message);
  } catch (error) {
    const { code, message } = OpenShellError.from(error);
    const failure = { code: statusNumber(code), message };
    await channel.write(encodeFrame(boundary.TcpOpenedSchema, { failure })).catch(() => {});
    channel.end();
    return;
  }
  const drop = () => socket.destroy();
  signal.addEventListener("abort", drop, { once: true });
  try {
    await channel.write(encodeFrame(boundary.TcpOpenedSchema, {}));
    await Promise.all([outbound(rest, socket), inbound(socket, channel)]);
  } catch (error) {
    channel.abort(error);
  } finally {
    signal.removeEventListener("abort", drop);
    socket.destroy();
  }
}

async function outbound(chunks: AsyncIterable<Uint8Array>, socket: Socket): Promise<void> {
  for await (const chunk of chunks) {
    if (socket.destroyed) return;
    if (!socket.write(chunk)) await drained(socket);
  }
  socket.end();
}

async function inbound(socket: Socket, channel: ByteChannel): Promise<void> {
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) await channel.write(chunk as Uint8Array);
  channel.end();
}

function drained(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      socket.off("drain", done);
      socket.off("close", done);
      resolve();
    };
    socket.once("drain", done);
    socket.once("close", done);
  });
}

function open({ host, port }: boundary.TcpOpen): Promise<Socket> {
  const address = host === "" || host === "localhost" ? "localhost" : host;
  if (address !== "localhost" && !isLoopback(address)) {
    throw new OpenShellError("permission-denied", `${host} is not a loopback address of the sandbox`);
  }
  if (port < 1 || port > 65_535) throw new OpenShellError("invalid-argument", `${port} is no TCP port`);
  // "localhost" is tried as both addresses without asking a resolver, which the sandbox may not have.
  return address === "localhost"
    ? attempt("127.0.0.1", port).catch(() => attempt("::1", port))
    : attempt(address, port);
}

function isLoopback(address: string): boolean {
  return address === "::1" || (isIP(address) === 4 && address.startsWith("127."));
}

function attempt(host: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, allowHalfOpen: true, noDelay: true, timeout: connectTimeoutMs });
    const failed = (cause?: Error) => {
      socket.destroy();
      reject(
        new OpenShellError("unavailable", `nothing accepts connections at port ${port} of the sandbox`, { cause }),
      );
    };
    socket.once("timeout", failed);
    socket.once("error", failed);
    socket.once("connect", () => {
      socket.setTimeout(0);
      socket.off("timeout", failed);
      socket.off("error", failed);
      // Errors after this are seen by the loops that read and write.
      socket.on("error", () => {});
      resolve(socket);
    });
  });
}
