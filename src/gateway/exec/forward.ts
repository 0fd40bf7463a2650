import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ByteChannel } from "../../boundary/index.ts";
import { OpenShellError } from "../../common/errors.ts";
import type { openshell } from "../../wire/index.ts";
import { abortOnLeave } from "./leaving.ts";

type Frame = MessageInitShape<typeof openshell.TcpForwardFrameSchema>;

/**
 * Carries bytes between a client's ForwardTcp stream and a channel, without looking at them. The client's end of stream is the channel's
 * half-close; the call ends when the channel has no more to say.
 */
export async function* forward(
  channel: ByteChannel,
  frames: AsyncIterable<openshell.TcpForwardFrame>,
  signal: AbortSignal,
): AsyncGenerator<Frame, void, undefined> {
  using _leaving = abortOnLeave(channel, signal);
  const carry = async () => {
    try {
      for await (const { payload } of frames) {
        if (payload.case === "init") throw new OpenShellError("invalid-argument", "init is only the first frame");
        if (payload.case === "data") await channel.write(payload.value);
      }
      channel.end();
    } catch (error) {
      channel.abort(error);
    }
  };
  void carry();
  try {
    for await (const value of channel.readable) yield { payload: { case: "data", value } };
  } finally {
    channel.end();
  }
}
