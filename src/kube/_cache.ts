import type { KubeObject, Live } from "./types.ts";

export type ChangeType = "added" | "modified" | "deleted";

/** One difference between what the cache held and what it holds now. */
export interface Change<T extends KubeObject> {
  readonly type: ChangeType;
  /** The object as it is now; of a deleted one the last that was seen. */
  readonly object: Live<T>;
  /** The object before, when it was modified. */
  readonly previous?: Live<T>;
}

export type IndexFunction<T extends KubeObject> = (object: Live<T>) => readonly string[];

interface Index<T extends KubeObject> {
  readonly valuesOf: IndexFunction<T>;
  readonly keys: Map<string, Set<string>>;
}

/** Objects by namespace and name, with indexes. Every change goes in by `put`, `remove` or `replace` and comes out as data. */
export class ObjectCache<T extends KubeObject> {
  readonly #objects = new Map<string, Live<T>>();
  readonly #indexes = new Map<string, Index<T>>();

  get size(): number {
    return this.#objects.size;
  }

  get(namespace: string | undefined, name: string): Live<T> | undefined {
    return this.#objects.get(keyOf(namespace, name));
  }

  list(): Live<T>[] {
    return [...this.#objects.values()];
  }

  /** Objects for which the index function gave `value`. */
  by(index: string, value: string): Live<T>[] {
    const keys = this.#indexes.get(index)?.keys.get(value) ?? [];
    return [...keys].flatMap((key) => this.#objects.get(key) ?? []);
  }

  /** What the index function gave for any object that is there, each once. */
  valuesOf(index: string): string[] {
    return [...(this.#indexes.get(index)?.keys.keys() ?? [])];
  }

  /** A second index of the same name takes the place of the first. */
  addIndex(name: string, valuesOf: IndexFunction<T>): void {
    const index: Index<T> = { valuesOf, keys: new Map() };
    this.#indexes.set(name, index);
    for (const [key, object] of this.#objects) enter(index, key, object);
  }

  /** An object of the same name but another UID is another object: the old one is reported as deleted. */
  put(object: Live<T>): Change<T>[] {
    const key = keyOfObject(object);
    const previous = this.#objects.get(key);
    this.#set(key, object);
    if (previous === undefined) return [{ type: "added", object }];
    if (previous.metadata.uid !== object.metadata.uid) {
      return [
        { type: "deleted", object: previous },
        { type: "added", object },
      ];
    }
    if (previous.metadata.resourceVersion === object.metadata.resourceVersion) return [];
    return [{ type: "modified", object, previous }];
  }

  remove(object: Live<T>): Change<T>[] {
    const key = keyOfObject(object);
    if (!this.#objects.has(key)) return [];
    this.#unset(key);
    return [{ type: "deleted", object }];
  }

  /** Holds exactly `objects` afterwards; what is no longer there is reported as deleted, before anything is added. */
  replace(objects: readonly Live<T>[]): Change<T>[] {
    const present = new Set(objects.map(keyOfObject));
    const changes: Change<T>[] = [];
    for (const [key, object] of [...this.#objects]) {
      if (present.has(key)) continue;
      this.#unset(key);
      changes.push({ type: "deleted", object });
    }
    for (const object of objects) changes.push(...this.put(object));
    return changes;
  }

  #set(key: string, object: Live<T>): void {
    this.#unset(key);
    this.#objects.set(key, object);
    for (const index of this.#indexes.values()) enter(index, key, object);
  }

  #unset(key: string): void {
    const object = this.#objects.get(key);
    if (object === undefined) return;
    this.#objects.delete(key);
    for (const { valuesOf, keys } of this.#indexes.values()) {
      for (const value of valuesOf(object)) {
        const entries = keys.get(value);
        entries?.delete(key);
        if (entries?.size === 0) keys.delete(value);
      }
    }
  }
}

function enter<T extends KubeObject>(index: Index<T>, key: string, object: Live<T>): void {
  for (const value of index.valuesOf(object)) {
    const entries = index.keys.get(value) ?? new Set();
    index.keys.set(value, entries.add(key));
  }
}

function keyOfObject(object: Live<KubeObject>): string {
  return keyOf(object.metadata.namespace, object.metadata.name);
}

function keyOf(namespace: string | undefined, name: string): string {
  return `${namespace ?? ""}/${name}`;
}
