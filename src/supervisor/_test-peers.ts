/** The two ends a supervisor talks to, over real loopback gRPC: a gateway in plaintext and a runtime with mutual TLS. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { AsyncQueue } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { addService, boundary, type CallContext, createServer, type Implementation, openshell } from "../wire/index.ts";
import type { Pair } from "./_test-certificates.ts";

type GatewayMessage = MessageInitShape<typeof openshell.GatewayMessageSchema>;
type RuntimeFrame = MessageInitShape<typeof boundary.RuntimeFrameSchema>;
type ChannelFrame = MessageInitShape<typeof boundary.ChannelFrameSchema>;
type RelayFrame = MessageInitShape<typeof openshell.RelayFrameSchema>;

/** Values as they come, in order; `next` waits for one that fits and drops those before it. */
export class Log<T> {
  readonly seen: T[] = [];
  #waiting: (() => void)[] = [];
  #at = 0;

  add(value: T): void {
    this.seen.push(value);
    for (const wake of this.#waiting.splice(0)) wake();
  }

  async next(fits: (value: T) => boolean = () => true): Promise<T> {
    for (;;) {
      while (this.#at < this.seen.length) {
        const value = this.seen[this.#at] as T;
        this.#at += 1;
        if (fits(value)) return value;
      }
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }
}

/** One RelayStream as the gateway has it. */
export interface GatewayRelay {
  readonly channelId: string;
  readonly input: AsyncIterator<openshell.RelayFrame>;
  readonly output: AsyncQueue<RelayFrame>;
  readonly signal: AbortSignal;
}

export class TestGateway {
  readonly server = createServer();
  readonly tokens = new Log<string>();
  readonly hellos = new Log<openshell.SupervisorHello>();
  readonly messages = new Log<openshell.SupervisorMessage["payload"]>();
  readonly relays = new Log<GatewayRelay>();
  readonly exits = new Log<string>();
  /** Errors that the next exchanges answer. */
  readonly refuseExchange: OpenShellError[] = [];
  /** Errors that the next renewals answer. */
  readonly refuseRefresh: OpenShellError[] = [];
  /** Answers of the next ConnectSupervisor calls; none means accepted. */
  readonly refuseSession: string[] = [];
  readonly refuseReport: OpenShellError[] = [];
  tokenLifeMs = 3_600_000;
  /** How much this gateway's clock is ahead of the supervisor's. */
  clockAheadMs = 0;
  /** Also what is announced: a supervisor gives up after three, which a busy machine hardly comes to. */
  heartbeatMs = 1_000;
  #connection: AsyncQueue<GatewayMessage> | undefined;
  port = 0;

  readonly #implementation: Implementation<typeof openshell.OpenShell, undefined> = {
    issueSandboxToken: async (_request, context) => this.#issue("issued", context),
    refreshSandboxToken: async (_request, context) => this.#issue("refreshed", context),
    connectSupervisor: (messages, context) => this.#connect(messages, context),
    relayStream: (frames, context) => this.#relay(frames, context),
    reportMainProcessExit: async ({ instanceId, exitCode }) => {
      const refusal = this.refuseReport.shift();
      if (refusal !== undefined) throw refusal;
      this.exits.add(`report ${instanceId} ${exitCode}`);
      return {};
    },
    finalizeMainProcessExit: async ({ instanceId }) => {
      this.exits.add(`finalize ${instanceId}`);
      return {};
    },
  };

  constructor() {
    addService(this.server, openshell.OpenShell, this.#implementation, () => undefined);
  }

  /** In plaintext, or with a certificate. */
  async listen(port = 0, pair?: Pair): Promise<void> {
    const credentials =
      pair === undefined
        ? grpc.ServerCredentials.createInsecure()
        : grpc.ServerCredentials.createSsl(null, [{ cert_chain: pair.certificate, private_key: pair.key }]);
    this.port = await bind(this.server, `127.0.0.1:${port}`, credentials);
  }

  send(message: GatewayMessage): void {
    this.#connection?.offer(message);
  }

  open(channelId: string, serviceId: string): void {
    this.send({ payload: { case: "relayOpen", value: { channelId, serviceId } } });
  }

  /** Ends the current ConnectSupervisor stream. */
  drop(): void {
    this.#connection?.end();
  }

  #issue(how: string, context: CallContext<undefined>) {
    const refusal = (how === "issued" ? this.refuseExchange : this.refuseRefresh).shift();
    this.tokens.add(`${how} for ${context.header("authorization")}`);
    if (refusal !== undefined) throw refusal;
    const iat = Math.floor((Date.now() + this.clockAheadMs) / 1000);
    const claims = { iat, exp: iat + this.tokenLifeMs / 1000 };
    const token = `e30.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.${this.tokens.seen.length}`;
    return { token };
  }

  async *#connect(
    messages: AsyncIterable<openshell.SupervisorMessage>,
    context: CallContext<undefined>,
  ): AsyncGenerator<GatewayMessage> {
    if (!context.header("authorization")?.startsWith("Bearer e30.")) {
      throw new OpenShellError("unauthenticated", "no session token");
    }
    const connection = new AsyncQueue<GatewayMessage>();
    const reader = (async () => {
      for await (const { payload } of messages) {
        if (payload.case !== "hello") {
          this.messages.add(payload);
          continue;
        }
        const refusal = this.refuseSession.shift();
        if (refusal !== undefined) {
          connection.offer({ payload: { case: "sessionRejected", value: { reason: refusal } } });
          connection.end();
        } else {
          const heartbeatInterval = { seconds: 0n, nanos: this.heartbeatMs * 1_000_000 };
          connection.offer({ payload: { case: "sessionAccepted", value: { sessionId: "s1", heartbeatInterval } } });
        }
        this.hellos.add(payload.value);
      }
    })().catch(() => {});
    this.#connection = connection;
    const heartbeats = setInterval(
      () => connection.offer({ payload: { case: "heartbeat", value: {} } }),
      this.heartbeatMs,
    );
    try {
      yield* connection;
    } finally {
      clearInterval(heartbeats);
    }
    await Promise.race([reader, Promise.resolve()]);
  }

  async *#relay(
    frames: AsyncIterable<openshell.RelayFrame>,
    { signal }: CallContext<undefined>,
  ): AsyncGenerator<RelayFrame> {
    const input = frames[Symbol.asyncIterator]();
    const first = await input.next();
    if (first.done === true || first.value.payload.case !== "init") return;
    const output = new AsyncQueue<RelayFrame>();
    this.relays.add({ channelId: first.value.payload.value.channelId, input, output, signal });
    yield* output;
  }
}

/** One Channel as the runtime has it. */
export interface RuntimeChannel {
  readonly serviceId: string;
  readonly input: AsyncIterator<boundary.ChannelFrame>;
  readonly output: AsyncQueue<ChannelFrame>;
  readonly signal: AbortSignal;
}

export class TestRuntime {
  readonly server = createServer();
  readonly hellos = new Log<boundary.SupervisorHello>();
  readonly frames = new Log<boundary.SupervisorFrame["payload"]>();
  readonly channels = new Log<RuntimeChannel>();
  instanceId = "runtime-1";
  refuse: MessageInitShape<typeof boundary.SessionRefusedSchema> | undefined;
  /** False: the runtime falls silent after its hello. */
  heartbeats = true;
  port = 0;
  #session: AsyncQueue<RuntimeFrame> | undefined;

  constructor() {
    const implementation: Implementation<typeof boundary.Boundary, undefined> = {
      session: (frames) => this.#serve(frames),
      channel: (frames, context) => this.#channel(frames, context),
    };
    addService(this.server, boundary.Boundary, implementation, () => undefined);
  }

  async listen(ca: Buffer, pair: Pair, port = 0): Promise<void> {
    const credentials = grpc.ServerCredentials.createSsl(
      ca,
      [{ cert_chain: pair.certificate, private_key: pair.key }],
      true,
    );
    this.port = await bind(this.server, `127.0.0.1:${port}`, credentials);
  }

  send(frame: RuntimeFrame["payload"]): void {
    if (frame !== undefined) this.#session?.offer({ payload: frame });
  }

  drop(): void {
    this.#session?.end();
  }

  async *#serve(frames: AsyncIterable<boundary.SupervisorFrame>): AsyncGenerator<RuntimeFrame> {
    const out = new AsyncQueue<RuntimeFrame>();
    (async () => {
      for await (const { payload } of frames) {
        this.frames.add(payload);
        if (payload.case !== "hello") continue;
        if (this.refuse !== undefined) out.offer({ payload: { case: "refused", value: this.refuse } });
        else {
          const version = { major: 1, minor: 0, build: "test" };
          out.offer({ payload: { case: "hello", value: { version, instanceId: this.instanceId } } });
        }
        this.hellos.add(payload.value);
      }
      out.end();
    })().catch(() => out.end());
    this.#session = out;
    const beat = () => this.heartbeats && out.offer({ payload: { case: "heartbeat", value: { sequence: 1n } } });
    const heartbeats = setInterval(beat, 20);
    try {
      yield* out;
    } finally {
      clearInterval(heartbeats);
    }
  }

  async *#channel(
    frames: AsyncIterable<boundary.ChannelFrame>,
    context: CallContext<undefined>,
  ): AsyncGenerator<ChannelFrame> {
    const input = frames[Symbol.asyncIterator]();
    const first = await input.next();
    if (first.done === true || first.value.payload.case !== "open") return;
    const output = new AsyncQueue<ChannelFrame>(2);
    const { serviceId } = first.value.payload.value;
    this.channels.add({ serviceId, input, output, signal: context.signal });
    yield* output;
  }
}

function bind(server: grpc.Server, address: string, credentials: grpc.ServerCredentials): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(address, credentials, (error, port) => (error ? reject(error) : resolve(port)));
  });
}
