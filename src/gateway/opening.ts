import { within } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";

/** How long a client has to say what a stream is for, in milliseconds. */
export const openingTimeoutMs = 10_000;

/**
 * The first message of a stream, which says what it is for, and the rest.
 * @throws invalid-argument when the stream ends before it, deadline-exceeded when it does not come
 */
export async function openingOf<T>(
  messages: AsyncIterable<T>,
  what: string,
): Promise<{ readonly first: T; readonly rest: AsyncIterator<T> }> {
  const rest = messages[Symbol.asyncIterator]();
  const late = () => new OpenShellError("deadline-exceeded", `${what}: the first message did not come`);
  const first = await within(rest.next(), openingTimeoutMs, late);
  if (first.done === true) throw new OpenShellError("invalid-argument", `${what}: the stream ended without a message`);
  return { first: first.value, rest };
}

/** An iterator in the shape a for-await loop takes. */
export function remaining<T>(rest: AsyncIterator<T>): AsyncIterable<T> {
  return { [Symbol.asyncIterator]: () => rest };
}
