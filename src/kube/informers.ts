import { Informer, type InformerOptions } from "./informer.ts";
import type { KubeClient, KubeObject, Resource } from "./types.ts";

/** What one shared watch covers. */
export interface InformerScope {
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
}

export interface InformersOptions extends Pick<InformerOptions<KubeObject>, "signal" | "onError" | "backoff"> {
  /** Told of every watch that is opened again, with the plural of its resource. */
  readonly onRestart?: (resource: string) => void;
}

/** Seconds that a stream lives, at least and at most, before up to a half of it is added so that they do not all end at once. */
const streamSeconds = { shortest: 30, longest: 300 };

/**
 * A stream that fell silent without an end is noticed when it should have ended, so streams are short; one that is opened anew costs a
 * request, so that of many informers about two a second are, and of a few each once in 30 to 45 s.
 */
export function secondsOfStream(informers: number, random: () => number = Math.random): number {
  const { shortest, longest } = streamSeconds;
  return Math.round(Math.min(longest, Math.max(shortest, informers / 2)) * (1 + random() / 2));
}

/** Informers that are shared: one for each (resource, namespace, selectors), started by who asks first. */
export class Informers {
  readonly #client: KubeClient;
  readonly #options: InformersOptions;
  readonly #informers = new Map<string, Informer<KubeObject>>();

  /** @param options.signal stops all of them */
  constructor(client: KubeClient, options: InformersOptions = {}) {
    this.#client = client;
    this.#options = options;
  }

  of<T extends KubeObject>(resource: Resource<T>, scope: InformerScope = {}): Informer<T> {
    const { group, version, plural } = resource;
    const key = JSON.stringify([group, version, plural, scope.namespace, scope.labelSelector, scope.fieldSelector]);
    const shared = this.#informers.get(key);
    // The key names the resource, and a resource has one type of object.
    if (shared) return shared as unknown as Informer<T>;
    const onRestart = () => this.#options.onRestart?.(plural);
    const timeoutSeconds = () => secondsOfStream(this.#informers.size);
    const informer = new Informer<T>({
      client: this.#client,
      resource,
      ...scope,
      ...this.#options,
      onRestart,
      timeoutSeconds,
    });
    this.#informers.set(key, informer as unknown as Informer<KubeObject>);
    return informer;
  }

  /** Resolves when each has had its first list. */
  async synced(): Promise<void> {
    await Promise.all([...this.#informers.values()].map((informer) => informer.synced));
  }

  get hasSynced(): boolean {
    return [...this.#informers.values()].every((informer) => informer.hasSynced);
  }

  /** Stops the one of this scope, as when its namespace is gone. */
  async stop(resource: Resource, scope: InformerScope = {}): Promise<void> {
    const { group, version, plural } = resource;
    const key = JSON.stringify([group, version, plural, scope.namespace, scope.labelSelector, scope.fieldSelector]);
    const informer = this.#informers.get(key);
    this.#informers.delete(key);
    await informer?.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#informers.values()].map((informer) => informer.stop()));
    this.#informers.clear();
  }
}
