import type { V1ObjectMeta } from "@kubernetes/client-node";

/**
 * What a client-node class looks like as JSON on the wire: its `Date`s are RFC 3339 strings, and the names it escapes
 * (`_from`) are the API's own again. This client never turns wire text into class instances.
 */
export type Wire<T> = T extends Date
  ? string
  : T extends readonly (infer E)[]
    ? Wire<E>[]
    : T extends object
      ? { [K in keyof T as K extends `_${infer N}` ? N : K]: Wire<T[K]> }
      : T;

export type ObjectMeta = Wire<V1ObjectMeta>;

/** Anything with the three fields that all API objects share. */
export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata?: ObjectMeta;
}

/** Metadata as the API server returns it: these fields are always there. */
export type LiveMeta = ObjectMeta & { name: string; uid: string; resourceVersion: string };

/** An object read from the API server, or from an informer's cache. Never change one: the cache hands out its own. */
export type Live<T extends KubeObject> = T & { metadata: LiveMeta };

/** One kind of object, as a value: where its requests go and which type its JSON has. */
export interface Resource<T extends KubeObject = KubeObject> {
  /** API group; `""` is the core group. */
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly plural: string;
  readonly namespaced: boolean;
  /** Never set. It ties the type of the JSON to the value. */
  readonly object?: T;
}

/** One call as it was answered; metrics and tests count these. */
export interface RequestRecord {
  readonly verb: "get" | "list" | "watch" | "create" | "patch" | "delete";
  /** `pods`, `sandboxes/status`; a path for calls that are not about a resource. */
  readonly resource: string;
  /** HTTP status; 0 when no answer came. */
  readonly code: number;
  readonly durationMs: number;
  /** The API server's time as it answered, in whole seconds; undefined when nothing came back. */
  readonly answeredAt?: Date;
}

export interface CallOptions {
  /** Ends the call with `cancelled`. */
  readonly signal?: AbortSignal;
  /** Milliseconds for the whole call, retries included. @default 30000 */
  readonly deadlineMs?: number;
  /** Waits for no connection that another call uses. For the few calls on which all others depend. @default false */
  readonly urgent?: boolean;
}

export interface WriteOptions extends CallOptions {
  /** Have the server check and default the object without keeping it. @default false */
  readonly dryRun?: boolean;
  /** Owner of the written fields. @default the client's component */
  readonly fieldManager?: string;
}

export interface ListOptions extends CallOptions {
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  /** Objects a page; all pages are fetched. @default 500 */
  readonly pageSize?: number;
}

export interface List<T extends KubeObject> {
  readonly items: Live<T>[];
  /** Where a watch continues. */
  readonly resourceVersion: string;
}

export interface DeleteOptions extends CallOptions {
  /** Refused with `aborted` (409) when the object is another one by now. */
  readonly preconditions?: { readonly uid?: string; readonly resourceVersion?: string };
  /** @default the resource's own, mostly "Background" */
  readonly propagationPolicy?: "Foreground" | "Background" | "Orphan";
  readonly gracePeriodSeconds?: number;
  readonly dryRun?: boolean;
}

export interface JsonPatchOperation {
  readonly op: "add" | "remove" | "replace" | "test" | "move" | "copy";
  readonly path: string;
  readonly from?: string;
  readonly value?: unknown;
}

/**
 * How an object is changed. `merge` is RFC 7386 (lists are replaced, null removes; put `metadata.resourceVersion` in it
 * for a 409 when it is stale), `json` is RFC 6902, `apply` is server-side apply. Strategic merge is left out: custom
 * resources refuse it.
 */
export type Patch =
  | { readonly type: "merge"; readonly body: object }
  | { readonly type: "json"; readonly body: readonly JsonPatchOperation[] }
  | { readonly type: "apply"; readonly body: KubeObject & object; readonly force?: boolean };

export interface PatchOptions extends WriteOptions {
  /** `status`, `scale`, ... */
  readonly subresource?: string;
}

export interface WatchOptions {
  readonly resourceVersion: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  /** After this time the server ends the stream. */
  readonly timeoutSeconds: number;
  readonly signal?: AbortSignal;
}

export type WatchEvent<T extends KubeObject> =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED"; readonly object: Live<T> }
  | { readonly type: "BOOKMARK"; readonly object: { readonly metadata: { readonly resourceVersion: string } } };

/**
 * Access to one cluster. Errors are `OpenShellError`s; `kubeStatusOf(error)` gives what the API server said.
 * A 429, and a 503 with a Retry-After, are repeated after that time (with jitter) until the deadline, and are the error
 * then; a read is also repeated when the connection breaks. No other call is repeated. What a 503 said of a write is not
 * sure: a create that is repeated after one may find its own object (`already-exists`).
 */
export interface KubeClient {
  /** The namespace of the kubeconfig's context or of the Pod this runs in. @default "default" */
  readonly namespace: string;
  /** @param namespace undefined for cluster-scoped resources */
  create<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    body: T,
    options?: WriteOptions,
  ): Promise<Live<T>>;
  /** Creates an object that is only a question (TokenReview, SubjectAccessReview) and returns it with its status. */
  review<T extends KubeObject>(resource: Resource<T>, body: T, options?: CallOptions): Promise<T>;
  get<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    name: string,
    options?: CallOptions,
  ): Promise<Live<T>>;
  /** Like `get`, with undefined for an object that is not there. */
  find<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    name: string,
    options?: CallOptions,
  ): Promise<Live<T> | undefined>;
  /** @param namespace undefined for all namespaces */
  list<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    options?: ListOptions,
  ): Promise<List<T>>;
  /** Answered when the deletion is accepted; the object may live on for its grace period. 404 is an error. */
  delete(resource: Resource, namespace: string | undefined, name: string, options?: DeleteOptions): Promise<void>;
  patch<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    name: string,
    patch: Patch,
    options?: PatchOptions,
  ): Promise<Live<T>>;
  /** One watch request. Use an `Informer`: this ends, and does not begin again. */
  watch<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    options: WatchOptions,
  ): AsyncIterable<WatchEvent<T>>;
  /** Versions of an API group that are served, the preferred one first; empty when the group is not there. */
  apiVersionsOf(group: string, options?: CallOptions): Promise<string[]>;
  /** Plural names served in a group's version; empty when it is not there. */
  resourcesOf(group: string, version: string, options?: CallOptions): Promise<string[]>;
  /** GET of any path, such as `/version`, as parsed JSON. */
  raw(path: string, options?: CallOptions): Promise<unknown>;
  /** GET of any path as text, such as a Pod's log (bounded to 16 MiB). */
  text(path: string, options?: CallOptions): Promise<string>;
  /** Closes all connections, those in use too: a write or a watch that still runs ends as `unavailable`. */
  close(): void;
}
