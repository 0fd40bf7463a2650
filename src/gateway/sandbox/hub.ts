import type { openshell } from "../../wire/index.ts";

/** Something that happened to a sandbox, in the order it happened. */
export type Occurrence =
  | { readonly kind: "changed"; readonly sandbox: openshell.Sandbox }
  | { readonly kind: "event"; readonly event: openshell.PlatformEvent; readonly sequence: number }
  | { readonly kind: "gone" }
  /** Nothing for a while: by whoever watches, to itself. */
  | { readonly kind: "quiet" };

/** Events kept of a sandbox for a watcher that comes later. */
export const keptEvents = 50;
/** What a watcher may lag behind before it misses events. */
const lag = 64;

interface KeptEvent {
  readonly event: openshell.PlatformEvent;
  readonly sequence: number;
}

/** Tells watchers what happens to sandboxes, and keeps the latest platform events of each. */
export class SandboxHub {
  /** New with every process, so that a cursor of an earlier one is known as such. */
  readonly bootId: string = crypto.randomUUID();
  readonly #watchers = new Map<string, Set<Watcher>>();
  /** Of each sandbox, oldest first, by what happened. */
  readonly #events = new Map<string, Map<string, KeptEvent>>();
  #sequence = 0;

  publish(id: string, sandbox: openshell.Sandbox): void {
    for (const watcher of this.#watchers.get(id) ?? []) watcher.tell({ kind: "changed", sandbox });
  }

  /** What happened again, and tells of it with a higher count, takes the place of what is kept of it. */
  event(id: string, event: openshell.PlatformEvent): void {
    this.#sequence += 1;
    const entry = { event, sequence: this.#sequence };
    const kept = this.#events.get(id) ?? new Map<string, KeptEvent>();
    this.#events.set(id, kept);
    const happening = happeningOf(event);
    // It goes to the end.
    kept.delete(happening);
    kept.set(happening, entry);
    const [oldest] = kept.keys();
    if (kept.size > keptEvents && oldest !== undefined) kept.delete(oldest);
    for (const watcher of this.#watchers.get(id) ?? []) watcher.tell({ kind: "event", ...entry });
  }

  gone(id: string): void {
    this.#events.delete(id);
    for (const watcher of this.#watchers.get(id) ?? []) watcher.tell({ kind: "gone" });
  }

  /** The latest `count` platform events, oldest first. */
  recentEvents(id: string, count: number) {
    return [...(this.#events.get(id)?.values() ?? [])].slice(-count);
  }

  /** What happens from this call on, until the signal aborts, the sandbox is gone or the hub closes. To be iterated, or it stays subscribed. */
  watch(id: string, signal: AbortSignal): Watcher {
    const set = this.#watchers.get(id) ?? new Set();
    const leave = () => {
      watcher.stop();
      signal.removeEventListener("abort", leave);
      set.delete(watcher);
      if (set.size === 0) this.#watchers.delete(id);
    };
    const watcher = new Watcher(leave);
    this.#watchers.set(id, set.add(watcher));
    signal.addEventListener("abort", leave, { once: true });
    if (signal.aborted) leave();
    return watcher;
  }

  /** Ends every watch, for shutdown. */
  close(): void {
    for (const set of [...this.#watchers.values()]) for (const watcher of [...set]) watcher.stop();
  }
}

/** What happened to what: what Kubernetes counts as one Event, however often. */
function happeningOf({ source, type, reason, message, metadata }: openshell.PlatformEvent): string {
  return JSON.stringify([source, type, reason, message, metadata.kind, metadata.name]);
}

/** One watcher's backlog. A slow reader misses intermediate snapshots and the oldest events, never the latest state or the end. */
export class Watcher implements AsyncIterable<Occurrence> {
  #backlog: Occurrence[] = [];
  #stopped = false;
  #wake: () => void = () => {};
  readonly #leave: () => void;

  constructor(leave: () => void) {
    this.#leave = leave;
  }

  tell(occurrence: Occurrence): void {
    if (occurrence.kind === "changed") this.#backlog = this.#backlog.filter((one) => one.kind !== "changed");
    const oldest = this.#backlog.findIndex((one) => one.kind === "event");
    if (this.#backlog.length >= lag && oldest >= 0) this.#backlog.splice(oldest, 1);
    this.#backlog.push(occurrence);
    this.#wake();
  }

  stop(): void {
    this.#stopped = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Occurrence, void, undefined> {
    try {
      for (;;) {
        const next = this.#backlog.shift();
        if (next !== undefined) {
          yield next;
          if (next.kind === "gone") return;
        } else if (this.#stopped) {
          return;
        } else {
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
        }
      }
    } finally {
      this.#leave();
    }
  }
}
