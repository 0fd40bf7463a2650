import { generateKeyPairSync } from "node:crypto";
import * as grpc from "@grpc/grpc-js";
import { createLogger } from "../common/log.ts";
import { type CallOptions, type Client, createChannel, grpcClient, openshell } from "../wire/index.ts";
import { classifyForTests, MemoryDriver } from "./_testing-driver.ts";
import { type Gateway, type GatewayOptions, startGateway } from "./gateway.ts";

export type OpenShell = Client<typeof openshell.OpenShell>;

export const quiet = createLogger({ name: "test", level: (process.env.TEST_LOG as "debug" | undefined) ?? "error" });

export function tokenKeys() {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  return {
    signingPem: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    publicPem: publicKey.export({ type: "spki", format: "pem" }).toString(),
    kid: "test",
  };
}

/** A real gateway on a loopback port, with a driver in memory and a client. */
export class TestGateway implements AsyncDisposable {
  readonly gateway: Gateway;
  readonly driver: MemoryDriver;
  readonly client: OpenShell;
  readonly #channels: grpc.Client[] = [];

  private constructor(gateway: Gateway, driver: MemoryDriver) {
    this.gateway = gateway;
    this.driver = driver;
    this.client = this.connect(grpc.credentials.createInsecure());
  }

  static async start(options: Partial<GatewayOptions> & { readonly driver?: MemoryDriver } = {}): Promise<TestGateway> {
    const driver = options.driver ?? new MemoryDriver();
    const gateway = await startGateway({
      version: "1.2.3",
      gatewayId: "test",
      bind: { host: "127.0.0.1", port: 0 },
      mtlsUsers: false,
      allowUnauthenticatedUsers: true,
      tokenKeys: tokenKeys(),
      tokenTtlSeconds: 600,
      databasePath: ":memory:",
      driverName: "memory",
      allowDriverConfig: false,
      classify: classifyForTests,
      log: quiet,
      ...options,
      driver,
    });
    return new TestGateway(gateway, driver);
  }

  connect(credentials: grpc.ChannelCredentials, options: grpc.ChannelOptions = {}): OpenShell {
    const channel = createChannel(`127.0.0.1:${this.gateway.port}`, credentials, {
      "grpc.use_local_subchannel_pool": 1,
      ...options,
    });
    this.#channels.push(channel);
    return grpcClient(openshell.OpenShell, channel);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const channel of this.#channels) channel.close();
    await this.gateway.stop();
  }
}

export const inDefault = { selection: { case: "workspace", value: "default" } } as const;

/** Calls any RPC with an empty request; its answer's code, "ok" when it answered. */
export async function codeOf(client: OpenShell, name: string, headers: Record<string, string> = {}): Promise<string> {
  const method = openshell.OpenShell.methods.find((one) => one.name === name);
  const call = (client as unknown as Record<string, (request: unknown, options: object) => unknown>)[
    method?.localName ?? ""
  ];
  async function* nothing() {}
  const streams = method?.methodKind === "bidi_streaming" || method?.methodKind === "client_streaming";
  try {
    const answer = call?.(streams ? nothing() : {}, { headers, timeoutMs: 8_000 });
    if (method?.methodKind === "unary" || method?.methodKind === "client_streaming") await answer;
    else for await (const _ of answer as AsyncIterable<unknown>) break;
    return "ok";
  } catch (error) {
    return (error as { code: string }).code;
  }
}

/** Follows a sandbox until its phase is `phase`; the state that matched. */
export async function untilPhase(
  client: OpenShell,
  name: string,
  phase: keyof typeof openshell.SandboxPhase,
  options: CallOptions = {},
): Promise<openshell.Sandbox> {
  let last = "nothing";
  const request = { workspaceScope: inDefault, sandbox: name, followStatus: true };
  for await (const { payload } of client.watchSandbox(request, { timeoutMs: 10_000, ...options })) {
    if (payload.case !== "sandbox") continue;
    const status = payload.value.status;
    last = openshell.SandboxPhase[status?.phase ?? 0] ?? "?";
    if (last === phase) return payload.value;
  }
  throw new Error(`${name} ended in ${last}, not in ${phase}`);
}
