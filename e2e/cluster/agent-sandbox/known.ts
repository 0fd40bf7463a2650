import type { Informer, KubeObject, Live } from "../../../src/kube/index.ts";

/** Milliseconds after which an informer that has not seen our own creation never will. */
export const forgetAfterMs = 10_000;

/**
 * An informer's objects and, until it has seen them, the answers to our own creations. Without these a pass that follows a
 * creation closely would take a Pod that was just made for one that does not exist.
 */
export class Known<T extends KubeObject> {
  readonly informer: Informer<T>;
  readonly #written = new Map<string, { object: Live<T>; at: number }>();

  constructor(informer: Informer<T>) {
    this.informer = informer;
    informer.on("changed", ({ metadata }) => {
      const key = `${metadata.namespace}/${metadata.name}`;
      if (this.#written.get(key)?.object.metadata.uid === metadata.uid) this.#written.delete(key);
    });
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

  /** To be called with the answer to a creation. */
  created(object: Live<T>): void {
    const { namespace, name, uid } = object.metadata;
    // The watch may have been faster than the answer.
    if (this.informer.get(namespace, name)?.metadata.uid === uid) return;
    this.#written.set(`${namespace}/${name}`, { object, at: performance.now() });
  }

  #recent(): ReadonlyMap<string, { readonly object: Live<T> }> {
    const now = performance.now();
    for (const [key, { at }] of this.#written) if (now - at > forgetAfterMs) this.#written.delete(key);
    return this.#written;
  }
}
