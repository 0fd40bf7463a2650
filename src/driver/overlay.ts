import type { KubeObject, Live } from "../kube/index.ts";
import { labels } from "../manifests/index.ts";

interface Entry {
  readonly plural: string;
  readonly object: Live<KubeObject>;
  readonly at: number;
}

/** A watch that is later than this is taken at its word: what it does not show is not there. */
const trustMs = 10_000;

/**
 * Answers to our own writes, until a watch has shown them: so that the next step needs no read and is never made from a state before our
 * last write.
 */
export class WriteOverlay {
  readonly #now: () => number;
  readonly #entries = new Map<string, Map<string, Entry>>();
  readonly #deleted = new Map<string, number>();
  readonly #gone = new Map<string, number>();

  constructor(now: () => number) {
    this.#now = now;
  }

  /** An object as the API server answered. */
  put(sandboxId: string, plural: string, object: Live<KubeObject>): void {
    if (this.#gone.has(object.metadata.uid)) return;
    const entries = this.#entries.get(sandboxId) ?? new Map<string, Entry>();
    entries.set(object.metadata.uid, { plural, object, at: this.#now() });
    this.#entries.set(sandboxId, entries);
  }

  /** A DELETE of this object was accepted. */
  markDeleted(uid: string): void {
    this.#deleted.set(uid, this.#now());
    this.#prune();
  }

  isDeleted(uid: string): boolean {
    return this.#deleted.has(uid);
  }

  /** A watch showed this state. */
  seen(object: Live<KubeObject>): void {
    const id = object.metadata.labels?.[labels.sandboxId] ?? "";
    const entry = this.#entries.get(id)?.get(object.metadata.uid);
    if (entry !== undefined && !isNewer(entry.object, object)) this.#remove(id, object.metadata.uid);
  }

  /** A watch showed that it is gone. */
  gone(object: Live<KubeObject>): void {
    const { uid } = object.metadata;
    this.#gone.set(uid, this.#now());
    this.#deleted.delete(uid);
    for (const id of [...this.#entries.keys()]) this.#remove(id, uid);
    this.#prune();
  }

  sandboxIds(): string[] {
    return [...this.#entries]
      .filter(([, entries]) => [...entries.values()].some((entry) => this.#isFresh(entry)))
      .map(([id]) => id);
  }

  /** Watched objects with our newer states in their place. */
  merge<T extends KubeObject>(sandboxId: string, plural: string, watched: readonly Live<T>[]): Live<T>[] {
    const entries = this.#entries.get(sandboxId);
    if (entries === undefined) return [...watched];
    const merged = new Map(watched.map((object) => [object.metadata.uid, object]));
    for (const [uid, entry] of [...entries]) {
      const shown = merged.get(uid);
      const isLate = !this.#isFresh(entry) || (shown !== undefined && !isNewer(entry.object, shown));
      if (isLate) this.#remove(sandboxId, uid);
      else if (entry.plural === plural) merged.set(uid, entry.object as Live<T>);
    }
    return [...merged.values()];
  }

  #isFresh({ at }: Entry): boolean {
    return this.#now() - at < trustMs;
  }

  #remove(sandboxId: string, uid: string): void {
    const entries = this.#entries.get(sandboxId);
    entries?.delete(uid);
    if (entries?.size === 0) this.#entries.delete(sandboxId);
  }

  #prune(): void {
    for (const map of [this.#gone, this.#deleted]) {
      for (const [uid, at] of map) if (this.#now() - at > 10 * trustMs) map.delete(uid);
    }
  }
}

/** Resource versions of one object are numbers that grow (KEP-5504 makes this part of the API). */
function isNewer(left: Live<KubeObject>, right: Live<KubeObject>): boolean {
  const [a, b] = [left.metadata.resourceVersion, right.metadata.resourceVersion];
  return /^\d+$/.test(a) && /^\d+$/.test(b) ? BigInt(a) > BigInt(b) : a !== b;
}
