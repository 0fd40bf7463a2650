import * as grpc from "@grpc/grpc-js";
import { type Client, createChannel, grpcClient, openshell } from "../wire/index.ts";
import { channelOptions } from "./_channel-options.ts";
import type { SupervisorSettings } from "./settings.ts";

export type GatewayClient = Client<typeof openshell.OpenShell>;

/**
 * The connection to the gateway. After a failure it is made anew: a grpc-js channel that saw its only address refuse connections tries it
 * again only minutes later (measured: 100 s after the gateway was back), whatever its back-off options say.
 */
export class GatewayChannel {
  readonly #settings: SupervisorSettings["gateway"];
  readonly #credentials: grpc.ChannelCredentials;
  #current: { readonly channel: grpc.Client; readonly client: GatewayClient } | undefined;

  constructor(settings: SupervisorSettings["gateway"]) {
    this.#settings = settings;
    this.#credentials = settings.tls
      ? grpc.credentials.createSsl(settings.ca ?? null)
      : grpc.credentials.createInsecure();
  }

  get client(): GatewayClient {
    this.#current ??= this.#connect();
    return this.#current.client;
  }

  /** Drops the connection; the next use makes another, with the address resolved again. */
  close(): void {
    this.#current?.channel.close();
    this.#current = undefined;
  }

  #connect() {
    const channel = createChannel(this.#settings.target, this.#credentials, channelOptions);
    return { channel, client: grpcClient(openshell.OpenShell, channel) };
  }
}
