import type { Informer, KubeObject, Live } from "../../../src/kube/index.ts";

/** Milliseconds after which an informer that has not seen our own write never will. */
export const forgetAfterMs = 10_000;

/**
 * An informer's objects and, until it has seen them, the answers to our own writes. Without these a pass that closely
 * follows a write would make the Pod or write the status a second time.
 */
export class Known<T extends KubeObject> {
  readonly informer: Informer<T>;
  readonly #written = new Map<string, { object: Live<T>; at: number }>();
  /** When each object was seen to go, by its UID, for as long as an answer to a write of it may be on its way. */
  readonly #gone = new Map<string, number>();

  constructor(informer: Informer<T>) {
    this.informer = informer;
    informer.on("deleted", (object) => {
      this.#forget(object);
      const now = performance.now();
      for (const [uid, at] of this.#gone) if (now - at > forgetAfterMs) this.#gone.delete(uid);
      this.#gone.set(object.metadata.uid, now);
    });
    for (const type of ["added", "modified"] as const) {
      informer.on(type, (object) => {
        if (!isOlder(object, this.#written.get(keyOf(object))?.object)) this.#forget(object);
      });
    }
  }

  get(namespace: string, name: string): Live<T> | undefined {
    return this.#recent().get(`${namespace}/${name}`)?.object ?? this.informer.get(namespace, name);
  }

  /** Objects of a namespace that an index has under a value, and own writes for which `isMeant` is true. */
  by(index: string, value: string, isMeant: (object: Live<T>) => boolean): Live<T>[] {
    const found = new Map(this.informer.by(index, value).map((object) => [object.metadata.uid, object]));
    for (const { object } of this.#recent().values()) if (isMeant(object)) found.set(object.metadata.uid, object);
    return [...found.values()];
  }

  /** To be called with the answer to a creation or a patch. */
  wrote(object: Live<T>): void {
    // The watch may have been faster than the answer.
    const seen = this.informer.get(object.metadata.namespace, object.metadata.name);
    if (seen?.metadata.uid === object.metadata.uid && !isOlder(seen, object)) return;
    if (this.#gone.has(object.metadata.uid)) return;
    this.#written.set(keyOf(object), { object, at: performance.now() });
  }

  #forget(object: Live<T>): void {
    const key = keyOf(object);
    if (this.#written.get(key)?.object.metadata.uid === object.metadata.uid) this.#written.delete(key);
  }

  #recent(): ReadonlyMap<string, { readonly object: Live<T> }> {
    const now = performance.now();
    for (const [key, { at }] of this.#written) if (now - at > forgetAfterMs) this.#written.delete(key);
    return this.#written;
  }
}

/** Resource versions of one resource count up: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions */
function isOlder(object: Live<KubeObject>, than: Live<KubeObject> | undefined): boolean {
  if (than === undefined || object.metadata.uid !== than.metadata.uid) return false;
  return BigInt(object.metadata.resourceVersion) < BigInt(than.metadata.resourceVersion);
}

function keyOf({ metadata }: Live<KubeObject>): string {
  return `${metadata.namespace}/${metadata.name}`;
}
