import { create, toBinary } from "@bufbuild/protobuf";
import { AsyncQueue } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { compute } from "../wire/index.ts";

type Event = compute.WatchSandboxesEvent;

/** Events a subscriber may be behind; one that is slower has to subscribe again and gets a new snapshot. */
const maxBehind = 1024;

/** What is known of each sandbox, and who wants to hear of changes. */
export class Hub {
  readonly #current = new Map<string, { readonly sandbox: compute.DriverSandbox; readonly bytes: Buffer }>();
  readonly #subscribers = new Set<Subscriber>();

  /** Told only when it differs from what was told last. */
  publish(sandbox: compute.DriverSandbox): void {
    const bytes = Buffer.from(toBinary(compute.DriverSandboxSchema, sandbox));
    if (this.#current.get(sandbox.id)?.bytes.equals(bytes)) return;
    this.#current.set(sandbox.id, { sandbox, bytes });
    this.#tell({ case: "sandbox", value: create(compute.WatchSandboxesSandboxEventSchema, { sandbox }) });
  }

  remove(sandboxId: string): void {
    if (this.#current.delete(sandboxId))
      this.#tell({ case: "deleted", value: create(compute.WatchSandboxesDeletedEventSchema, { sandboxId }) });
  }

  platformEvent(sandboxId: string, event: compute.DriverPlatformEvent): void {
    this.#tell({
      case: "platformEvent",
      value: create(compute.WatchSandboxesPlatformEventSchema, { sandboxId, event }),
    });
  }

  get(sandboxId: string): compute.DriverSandbox | undefined {
    return this.#current.get(sandboxId)?.sandbox;
  }

  list(): compute.DriverSandbox[] {
    return [...this.#current.values()].map(({ sandbox }) => sandbox);
  }

  /** All that is known, then every change, until the signal aborts. */
  async *watch(signal: AbortSignal): AsyncGenerator<Event, void, undefined> {
    const subscriber = new Subscriber();
    for (const sandbox of this.list())
      subscriber.queue.offer(
        eventOf({ case: "sandbox", value: create(compute.WatchSandboxesSandboxEventSchema, { sandbox }) }),
      );
    const end = () => subscriber.queue.end();
    signal.addEventListener("abort", end, { once: true });
    this.#subscribers.add(subscriber);
    try {
      if (signal.aborted) return;
      for await (const event of subscriber.queue) {
        subscriber.behind = Math.max(0, subscriber.behind - 1);
        yield event;
      }
    } finally {
      signal.removeEventListener("abort", end);
      this.#subscribers.delete(subscriber);
    }
  }

  /** Ends every watch, as when the driver stops. */
  close(): void {
    for (const { queue } of this.#subscribers) queue.end(new OpenShellError("unavailable", "the driver stops"));
  }

  #tell(payload: Event["payload"]): void {
    const event = eventOf(payload);
    for (const subscriber of this.#subscribers) {
      subscriber.behind += 1;
      if (subscriber.behind <= maxBehind) subscriber.queue.offer(event);
      else
        subscriber.queue.end(
          new OpenShellError("aborted", `the watcher is more than ${maxBehind} events behind; subscribe again`),
        );
    }
  }
}

class Subscriber {
  readonly queue = new AsyncQueue<Event>();
  behind = 0;
}

function eventOf(payload: Event["payload"]): Event {
  return create(compute.WatchSandboxesEventSchema, { payload });
}
