import { type ByteChannel, createChannel, services } from "../boundary/index.ts";
import { AsyncQueue } from "../common/async.ts";
import { decodeFrames, encodeFrame } from "../common/frames.ts";
import { boundary, type Client, type openshell } from "../wire/index.ts";

type OpenShell = Client<typeof openshell.OpenShell>;
type ToGateway = Parameters<OpenShell["connectSupervisor"]>[0] extends AsyncIterable<infer T> ? T : never;
type RelayFrame = Parameters<OpenShell["relayStream"]>[0] extends AsyncIterable<infer T> ? T : never;

export interface TestSupervisorOptions {
  readonly client: OpenShell;
  readonly sandboxId: string;
  /** @default "instance-1" */
  readonly instanceId?: string;
  /** What a relay other than launch does; @default exec that echoes its stdin */
  readonly serve?: (channel: ByteChannel, serviceId: string) => Promise<void>;
}

/** A supervisor as the contract has it, talking to a real gateway over a real socket, with the workload's side made up by the test. */
export class TestSupervisor implements AsyncDisposable {
  readonly launched = Promise.withResolvers<boundary.Launch>();
  /** How the ConnectSupervisor stream ended. */
  readonly ended = Promise.withResolvers<unknown>();
  readonly accepted = Promise.withResolvers<openshell.SessionAccepted>();
  token = "";
  /** Reasons of the RelayCloses that came. */
  readonly closes: string[] = [];
  readonly #options: TestSupervisorOptions;
  readonly #stop = new AbortController();
  readonly #outbox = new AsyncQueue<ToGateway>(100);
  #events: ByteChannel | undefined;
  #epoch = 0n;

  constructor(options: TestSupervisorOptions) {
    this.#options = options;
    this.accepted.promise.catch(() => {});
  }

  async authenticate(projected = `projected.${this.#options.sandboxId}`): Promise<void> {
    const { token } = await this.#options.client.issueSandboxToken({}, { headers: bearer(projected) });
    this.token = token;
  }

  get headers() {
    return bearer(this.token);
  }

  /** Connects and answers relays until the stream ends. */
  connect(epoch = this.#epoch + 1n): void {
    this.#epoch = epoch;
    const { client, sandboxId, instanceId = "instance-1" } = this.#options;
    this.#outbox.offer({ payload: { case: "hello", value: { sandboxId, instanceId, connectionEpoch: epoch } } });
    const messages = client.connectSupervisor(this.#outbox, { headers: this.headers, signal: this.#stop.signal });
    void this.#listen(messages);
  }

  /** The workload is up: boundary, fence and an idle main process. */
  async serveWorkload(): Promise<boundary.Launch> {
    const launch = await this.launched.promise;
    await this.tell({ case: "boundary", value: { connected: true } });
    await this.tell({ case: "fence", value: { state: boundary.FenceStatus_State.FENCED } });
    await this.tell({
      case: "mainProcess",
      value: { state: boundary.MainProcessStatus_State.IDLE, instanceId: "main-1" },
    });
    return launch;
  }

  async tell(payload: Parameters<typeof encodeFrame<typeof boundary.LaunchEventSchema>>[1]["payload"]): Promise<void> {
    if (payload === undefined) return;
    await this.#events?.write(encodeFrame(boundary.LaunchEventSchema, { payload }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    this.#outbox.end();
    await this.ended.promise;
  }

  async #listen(messages: AsyncIterable<openshell.GatewayMessage>): Promise<void> {
    try {
      for await (const { payload } of messages) {
        if (payload.case === "sessionAccepted") this.accepted.resolve(payload.value);
        if (payload.case === "sessionRejected") this.accepted.reject(new Error(payload.value.reason));
        if (payload.case === "relayClose") this.closes.push(payload.value.reason);
        if (payload.case === "relayOpen") void this.#relay(payload.value);
      }
      this.ended.resolve(undefined);
    } catch (error) {
      this.ended.resolve(error);
    }
  }

  async #relay({ channelId, serviceId }: openshell.RelayOpen): Promise<void> {
    const { client, serve = echo } = this.#options;
    const incoming = new AsyncQueue<Uint8Array>(4);
    const { channel, outgoing } = createChannel(incoming);
    async function* frames(): AsyncGenerator<RelayFrame> {
      yield { payload: { case: "init", value: { channelId } } };
      for await (const value of outgoing) yield { payload: { case: "data", value } };
    }
    const work = serviceId === services.launch ? this.#launch(channel) : serve(channel, serviceId);
    void work.catch((error: unknown) => channel.abort(error)).finally(() => channel.end());
    try {
      for await (const { payload } of client.relayStream(frames(), {
        headers: this.headers,
        signal: this.#stop.signal,
      })) {
        if (payload.case !== "data") continue;
        // On a raw connection an empty frame ends the gateway's direction.
        if (serviceId === services.tcp && payload.value.length === 0) incoming.end();
        else await incoming.push(payload.value);
      }
      incoming.end();
    } catch (error) {
      incoming.end(error);
      outgoing.end();
    }
  }

  async #launch(channel: ByteChannel): Promise<void> {
    this.#events = channel;
    for await (const { launch } of decodeFrames(boundary.LaunchRequestSchema, channel.readable)) {
      if (launch !== undefined) this.launched.resolve(launch);
    }
  }
}

/** An exec that writes its command to stderr and its stdin to stdout, and exits with 3 unless stdin is empty. */
export async function echo(channel: ByteChannel): Promise<void> {
  let bytes = 0;
  const say = (payload: Parameters<typeof encodeFrame<typeof boundary.ExecOutputSchema>>[1]["payload"]) =>
    channel.write(encodeFrame(boundary.ExecOutputSchema, payload === undefined ? {} : { payload }));
  for await (const { payload } of decodeFrames(boundary.ExecInputSchema, channel.readable)) {
    if (payload.case === "start") await say({ case: "stderr", value: Buffer.from(payload.value.command.join(" ")) });
    if (payload.case === "stdin") {
      bytes += payload.value.length;
      await say({ case: "stdout", value: payload.value });
    }
    if (payload.case === "stdinEnd") break;
  }
  await say({ case: "exit", value: { exitCode: bytes === 0 ? 0 : 3 } });
}

function bearer(token: string) {
  return { authorization: `Bearer ${token}` };
}
