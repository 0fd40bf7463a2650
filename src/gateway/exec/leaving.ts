import type { ByteChannel } from "../../boundary/index.ts";
import { OpenShellError } from "../../common/errors.ts";

/** Drops the channel when the client leaves; to be disposed of when the channel has ended. */
export function abortOnLeave(channel: ByteChannel, signal: AbortSignal): Disposable {
  const leave = () => channel.abort(new OpenShellError("cancelled", "the client left"));
  if (signal.aborted) leave();
  signal.addEventListener("abort", leave, { once: true });
  return { [Symbol.dispose]: () => signal.removeEventListener("abort", leave) };
}
