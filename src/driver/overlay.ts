import type { KubeObject, Live } from "../kube/index.ts";
import { sandboxIdOf } from "./observed.ts";

interface Entry {
  readonly plural: string;
  readonly object: Live<KubeObject>;
  readonly at: number;
}

/** What a watch does not show so long after we wrote it, although it has come past our write, is not there. */
const trustMs = 10_000;

/** The resource version up to which the watch of an object's kind and namespace has come; undefined where nobody watches. */
export type WatchProgress = (plural: string, namespace: string | undefined) => string | undefined;

/**
 * Answers to our own writes, until a watch has shown them: so that the next step needs no read and is never made from a state before our
 * last write.
 */
export class WriteOverlay {
  readonly #now: () => number;
  readonly #progress: WatchProgress;
  readonly #onForgotten: (uid: string) => void;
  readonly #entries = new Map<string, Map<string, Entry>>();
  readonly #deleted = new Map<string, number>();
  readonly #gone = new Map<string, number>();
  readonly #departed = new Map<
    string,
    { readonly sandboxId: string; readonly plural: string; readonly object: Live<KubeObject> }
  >();

  /** @param onForgotten an object exists no more, or is to be known no more */
  constructor(
    now: () => number,
    progress: WatchProgress = () => undefined,
    onForgotten: (uid: string) => void = () => undefined,
  ) {
    this.#now = now;
    this.#progress = progress;
    this.#onForgotten = onForgotten;
  }

  /** An object as the API server answered. */
  put(sandboxId: string, plural: string, object: Live<KubeObject>): void {
    if (this.#gone.has(object.metadata.uid)) return;
    this.#departed.delete(object.metadata.uid);
    const entries = this.#entries.get(sandboxId) ?? new Map<string, Entry>();
    entries.set(object.metadata.uid, { plural, object, at: this.#now() });
    this.#entries.set(sandboxId, entries);
  }

  /** A DELETE of this object is on its way, or was accepted. */
  markDeleted(uid: string): void {
    if (!this.#gone.has(uid)) this.#deleted.set(uid, this.#now());
    this.#prune();
  }

  /** The DELETE failed. */
  unmarkDeleted(uid: string): void {
    this.#deleted.delete(uid);
  }

  isDeleted(uid: string): boolean {
    return this.#deleted.has(uid);
  }

  /** A watch showed this state. */
  seen(object: Live<KubeObject>): void {
    this.#departed.delete(object.metadata.uid);
    const id = sandboxIdOf(object) ?? "";
    const entry = this.#entries.get(id)?.get(object.metadata.uid);
    if (entry !== undefined && !isNewer(entry.object, object)) this.#remove(id, object.metadata.uid);
  }

  /** A watch shows it no more, and nobody was seen deleting it: it may live on with other labels. */
  depart(sandboxId: string, plural: string, object: Live<KubeObject>): void {
    this.#remove(sandboxId, object.metadata.uid);
    this.#departed.set(object.metadata.uid, { sandboxId, plural, object });
  }

  /** The API server knows no object of its name. One that a watch still shows goes from that in a moment. */
  notFound(uid: string): void {
    if (this.#departed.has(uid)) this.gone(uid);
  }

  /** Those of a sandbox, as they were last seen. */
  departed<T extends KubeObject>(sandboxId: string, plural: string): Live<T>[] {
    return [...this.#departed.values()]
      .filter((each) => each.sandboxId === sandboxId && each.plural === plural)
      .map(({ object }) => object as Live<T>);
  }

  /** A namespace is gone, or not ours any more. @returns the sandboxes of which something was known in it */
  forgetNamespace(namespace: string): string[] {
    const isThere = ({ object }: { readonly object: Live<KubeObject> }) => object.metadata.namespace === namespace;
    const ids = new Set<string>();
    // Of a sandbox elsewhere only what has its id here is forgotten.
    for (const [id, entries] of [...this.#entries]) {
      for (const [uid] of [...entries].filter(([, entry]) => isThere(entry))) {
        this.#remove(id, uid);
        ids.add(id);
      }
    }
    for (const [uid, { sandboxId }] of [...this.#departed].filter(([, each]) => isThere(each))) {
      this.#departed.delete(uid);
      this.#onForgotten(uid);
      ids.add(sandboxId);
    }
    return [...ids];
  }

  /** Nothing is left of it. */
  forgetSandbox(sandboxId: string): void {
    const written = [...(this.#entries.get(sandboxId)?.keys() ?? [])];
    const departed = [...this.#departed].filter(([, each]) => each.sandboxId === sandboxId).map(([uid]) => uid);
    this.#entries.delete(sandboxId);
    for (const uid of departed) this.#departed.delete(uid);
    for (const uid of [...written, ...departed]) this.#onForgotten(uid);
  }

  isGone(uid: string): boolean {
    return this.#gone.has(uid);
  }

  /** It exists no more. */
  gone(uid: string): void {
    this.#departed.delete(uid);
    this.#gone.set(uid, this.#now());
    this.#deleted.delete(uid);
    this.#onForgotten(uid);
    for (const id of [...this.#entries.keys()]) this.#remove(id, uid);
    this.#prune();
  }

  sandboxIds(): string[] {
    const written = [...this.#entries]
      .filter(([, entries]) => [...entries.values()].some((entry) => this.#isFresh(entry)))
      .map(([id]) => id);
    return [...written, ...[...this.#departed.values()].map(({ sandboxId }) => sandboxId)];
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

  #isFresh({ plural, object: { metadata }, at }: Entry): boolean {
    if (this.#now() - at < trustMs) return true;
    // One that fell silent says nothing about what was made since.
    const reached = this.#progress(plural, metadata.namespace);
    return reached !== undefined && isBefore(reached, metadata.resourceVersion);
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

/** Resource versions of one resource are numbers that grow (KEP-5504 makes this part of the API). */
export function isNewer(left: Live<KubeObject>, right: Live<KubeObject>): boolean {
  const [a, b] = [left.metadata.resourceVersion, right.metadata.resourceVersion];
  return areNumbers(a, b) ? BigInt(a) > BigInt(b) : a !== b;
}

function isBefore(a: string, b: string): boolean {
  return areNumbers(a, b) && BigInt(a) < BigInt(b);
}

function areNumbers(...versions: readonly string[]): boolean {
  return versions.every((version) => /^\d+$/.test(version));
}
