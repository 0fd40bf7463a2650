/** A byte channel to a service inside a sandbox, through the gateway's ForwardTcp. */
import { type ByteChannel, createChannel, type ServiceId } from "../boundary/index.ts";
import type { openshell } from "../wire/index.ts";
import type { GatewayClient } from "./connection.ts";

export interface RelayAddress {
  readonly workspace: string;
  readonly sandbox: string;
  readonly serviceId: ServiceId;
}

type Frame =
  | { case: "init"; value: { sandbox: string; workspace: string; serviceId: string } }
  | { case: "data"; value: Uint8Array };

/** Opens the channel; a refusal arrives as an error of its `readable`. */
export function openRelay(client: GatewayClient, address: RelayAddress, signal: AbortSignal): ByteChannel {
  const stop = new AbortController();
  const { channel, outgoing } = createChannel(incoming(), (error) => stop.abort(error));

  async function* requests(): AsyncGenerator<{ payload: Frame }> {
    const { sandbox, workspace, serviceId } = address;
    yield { payload: { case: "init", value: { sandbox, workspace, serviceId } } };
    for await (const chunk of outgoing) yield { payload: { case: "data", value: chunk } };
  }
  async function* incoming(): AsyncGenerator<Uint8Array, void, undefined> {
    const frames: AsyncIterable<openshell.TcpForwardFrame> = client.forwardTcp(requests(), {
      signal: AbortSignal.any([stop.signal, signal]),
    });
    try {
      for await (const { payload } of frames) if (payload.case === "data") yield payload.value;
    } finally {
      // The answer is over, so nothing that is still written can arrive.
      outgoing.end();
    }
  }
  return channel;
}
