import { type BackoffOptions, backoffMs, deadline, goodLifeMs, sleep } from "../common/async.ts";
import { hasCode, OpenShellError } from "../common/errors.ts";
import { type Change, type ChangeType, type IndexFunction, ObjectCache } from "./_cache.ts";
import { isForbidden, isGone } from "./errors.ts";
import type { KubeClient, KubeObject, Live, Resource } from "./types.ts";

export interface InformerOptions<T extends KubeObject> {
  readonly client: KubeClient;
  readonly resource: Resource<T>;
  /** @default all namespaces */
  readonly namespace?: string;
  /** @default everything */
  readonly labelSelector?: string;
  /** @default everything */
  readonly fieldSelector?: string;
  /** Stops the informer. */
  readonly signal?: AbortSignal;
  /** Told of every error of the stream and of every listener that threw. The informer goes on by itself. */
  readonly onError?: (error: unknown) => void;
  /** Told of every stream after the first. */
  readonly onRestart?: () => void;
  /** What the cache keeps of an object. @default everything but `metadata.managedFields` */
  readonly trim?: (object: Live<T>) => Live<T>;
  /** Wait before the next attempt after a failure. @default 100 ms doubling to 10 s, jittered */
  readonly backoff?: BackoffOptions;
  /** Seconds after which the server is asked to end a stream. @default 240 to 360, another for each stream */
  readonly timeoutSeconds?: () => number;
}

export type ChangeListener<T extends KubeObject> = (
  object: Live<T>,
  previous: Live<T> | undefined,
) => void | Promise<void>;

/** What an informer went through, for metrics and tests. */
export interface InformerStats {
  /** Streams after the first, whatever ended the one before. */
  readonly restarts: number;
  /** Lists after the first. */
  readonly relists: number;
  /** Streams, lists and listeners that failed. */
  readonly errors: number;
}

/**
 * A copy of the objects of one resource, kept up to date by one watch, and a source of changes. It lists once, watches
 * from there, continues where a stream ended, and lists again only when the server has forgotten that place (410), or when
 * what comes next there could not be read twice in a row; then objects that went away meanwhile are reported as deleted.
 * There is one loop, so that failures never start a second.
 */
export class Informer<T extends KubeObject> {
  /** Resolves after the first list; rejects when the informer is stopped before. */
  readonly synced: Promise<void>;
  readonly #options: InformerOptions<T>;
  readonly #cache = new ObjectCache<T>();
  readonly #listeners: Record<ChangeType, Set<ChangeListener<T>>> = {
    added: new Set(),
    modified: new Set(),
    deleted: new Set(),
  };
  readonly #stop = new AbortController();
  readonly #signal: AbortSignal;
  readonly #firstList = Promise.withResolvers<void>();
  readonly #done: Promise<void>;
  #hasSynced = false;
  #resourceVersion: string | undefined;
  #stats = { restarts: 0, relists: 0, errors: 0 };

  constructor(options: InformerOptions<T>) {
    this.#options = options;
    this.#signal = options.signal ? AbortSignal.any([options.signal, this.#stop.signal]) : this.#stop.signal;
    this.synced = this.#firstList.promise;
    this.synced.catch(() => undefined);
    this.#done = this.#run();
  }

  get resource(): Resource<T> {
    return this.#options.resource;
  }

  get hasSynced(): boolean {
    return this.#hasSynced;
  }

  /** Everything up to here is known: that of the last list, event or bookmark. Undefined before the first list. */
  get resourceVersion(): string | undefined {
    return this.#resourceVersion;
  }

  get stats(): InformerStats {
    return { ...this.#stats };
  }

  get size(): number {
    return this.#cache.size;
  }

  /** @param namespace undefined for cluster-scoped resources */
  get(namespace: string | undefined, name: string): Live<T> | undefined {
    return this.#cache.get(namespace, name);
  }

  list(): Live<T>[] {
    return this.#cache.list();
  }

  /** Objects for which the function of `addIndex` gave `value`. */
  by(index: string, value: string): Live<T>[] {
    return this.#cache.by(index, value);
  }

  /** What the function of `addIndex` gave for any object that is there, each once. */
  valuesOf(index: string): string[] {
    return this.#cache.valuesOf(index);
  }

  addIndex(name: string, valuesOf: IndexFunction<T>): this {
    this.#cache.addIndex(name, valuesOf);
    return this;
  }

  /**
   * Listens to one type of change, or to all. Listeners are called in the order of the changes, with the cache already
   * changed; a promise is not waited for. Objects that are there already are not reported: `list()` has them, and
   * nothing is missed between the two when no await stands between.
   *
   * @returns stops listening
   */
  on(type: ChangeType | "changed", listener: ChangeListener<T>): () => void {
    const types: ChangeType[] = type === "changed" ? ["added", "modified", "deleted"] : [type];
    for (const each of types) this.#listeners[each].add(listener);
    return () => {
      for (const each of types) this.#listeners[each].delete(listener);
    };
  }

  /**
   * Waits until `condition` gives something other than undefined or false, asking it now, after the first list and after
   * every change.
   *
   * @param what is waited for, as in "Pod default/web to be gone"; in the error
   * @throws `deadline-exceeded` after `deadlineMs` (default 30000), `cancelled` by `signal` or when the informer stops
   */
  async until<R>(
    what: string,
    condition: (informer: this) => R | undefined | false,
    options: { readonly deadlineMs?: number; readonly signal?: AbortSignal } = {},
  ): Promise<R> {
    const ms = Math.ceil(options.deadlineMs ?? 30_000);
    const { promise, resolve, reject } = Promise.withResolvers<R>();
    const end = deadline(ms, options.signal ? AbortSignal.any([options.signal, this.#signal]) : this.#signal);
    const check = (): void => {
      try {
        const result = this.#hasSynced ? condition(this) : undefined;
        if (result !== undefined && result !== false) resolve(result);
      } catch (error) {
        reject(error);
      }
    };
    const onEnd = (): void => {
      const isOver = !options.signal?.aborted && !this.#signal.aborted;
      reject(
        isOver
          ? new OpenShellError("deadline-exceeded", `waited ${ms} ms for ${what}`)
          : new OpenShellError("cancelled", `stopped waiting for ${what}`),
      );
    };
    const unsubscribe = this.on("changed", check);
    end.addEventListener("abort", onEnd);
    if (end.aborted) onEnd();
    check();
    this.synced.then(check, () => undefined);
    try {
      return await promise;
    } finally {
      unsubscribe();
      end.removeEventListener("abort", onEnd);
    }
  }

  /** Ends the watch. The cache stays as it is. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#done;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #run(): Promise<void> {
    let resourceVersion: string | undefined;
    /** Where the last stream failed because of what comes next there. */
    let stuckAt: string | undefined;
    let failures = 0;
    for (let streams = 0; !this.#signal.aborted; streams += 1) {
      const startedAt = performance.now();
      let failed = true;
      try {
        resourceVersion ??= await this.#list();
        if (streams > 0) {
          this.#stats.restarts += 1;
          this.#options.onRestart?.();
        }
        for await (const event of this.#watch(resourceVersion)) {
          const changes = event.type === "BOOKMARK" ? [] : this.#apply(event.type, event.object);
          // What could not be applied is read again.
          resourceVersion = event.object.metadata.resourceVersion;
          this.#resourceVersion = resourceVersion;
          this.#emit(changes);
        }
        failed = false;
      } catch (error) {
        if (this.#signal.aborted) break;
        const place = isOfPlace(error) ? resourceVersion : undefined;
        const isStuck = place !== undefined && place === stuckAt;
        stuckAt = isStuck ? undefined : place;
        if (isGone(error) || isStuck) resourceVersion = undefined;
        this.#report(error);
      }
      // The failure after a good stream begins with the shortest wait again.
      const wasGood = performance.now() - startedAt >= goodLifeMs;
      failures = wasGood ? 0 : failures + 1;
      if (failed || !wasGood) await this.#pause(failures);
    }
    this.#firstList.reject(new OpenShellError("cancelled", `informer of ${this.#options.resource.plural} was stopped`));
  }

  async #list(): Promise<string> {
    const { client, resource, namespace, labelSelector, fieldSelector } = this.#options;
    const list = await client.list(resource, namespace, {
      signal: this.#signal,
      ...(labelSelector !== undefined && { labelSelector }),
      ...(fieldSelector !== undefined && { fieldSelector }),
    });
    if (this.#hasSynced) this.#stats.relists += 1;
    const changes = this.#cache.replace(list.items.map((object) => this.#trim(object)));
    this.#resourceVersion = list.resourceVersion;
    this.#hasSynced = true;
    this.#emit(changes);
    this.#firstList.resolve();
    return list.resourceVersion;
  }

  #watch(resourceVersion: string) {
    const { client, resource, namespace, labelSelector, fieldSelector, timeoutSeconds } = this.#options;
    return client.watch(resource, namespace, {
      resourceVersion,
      timeoutSeconds: timeoutSeconds?.() ?? Math.round(240 + 120 * Math.random()),
      signal: this.#signal,
      ...(labelSelector !== undefined && { labelSelector }),
      ...(fieldSelector !== undefined && { fieldSelector }),
    });
  }

  #apply(type: "ADDED" | "MODIFIED" | "DELETED", read: Live<T>): Change<T>[] {
    const object = this.#trim(read);
    return type === "DELETED" ? this.#cache.remove(object) : this.#cache.put(object);
  }

  #trim(object: Live<T>): Live<T> {
    if (this.#options.trim) return this.#options.trim(object);
    const { managedFields: _, ...metadata } = object.metadata;
    return { ...object, metadata };
  }

  #emit(changes: readonly Change<T>[]): void {
    for (const { type, object, previous } of changes) {
      for (const listener of [...this.#listeners[type]]) {
        try {
          Promise.resolve(listener(object, previous)).catch((error: unknown) => this.#report(error));
        } catch (error) {
          this.#report(error);
        }
      }
    }
  }

  #report(error: unknown): void {
    this.#stats.errors += 1;
    this.#options.onError?.(error);
  }

  async #pause(failures: number): Promise<void> {
    try {
      await sleep(backoffMs(Math.max(0, failures - 1), { maxMs: 10_000, ...this.#options.backoff }), this.#signal);
    } catch {
      // Stopped; the loop's condition ends it.
    }
  }
}

/** No way to the server, or a server or a right that is away, says nothing of the place in its log; anything else may be met there again. */
function isOfPlace(error: unknown): boolean {
  return !hasCode(error, "unavailable", "deadline-exceeded") && !isForbidden(error);
}
