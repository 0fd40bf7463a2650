import { OpenShellError } from "../common/errors.ts";
import { pathOf } from "./_paths.ts";
import { type Call, parsed, Requests } from "./_requests.ts";
import { Transport } from "./_transport.ts";
import { type ClusterAccess, defaultAccess } from "./access.ts";
import { errorFromAnswer, isNotFound } from "./errors.ts";
import type {
  CallOptions,
  DeleteOptions,
  KubeClient,
  KubeObject,
  List,
  ListOptions,
  Live,
  Patch,
  PatchOptions,
  RequestRecord,
  Resource,
  WatchEvent,
  WatchOptions,
  WriteOptions,
} from "./types.ts";

export interface KubeClientOptions {
  /** Who asks, such as `openshell-driver`: User-Agent and default field manager. */
  readonly component: string;
  /** @default the Pod's own access, or the default kubeconfig outside a cluster */
  readonly access?: ClusterAccess;
  /** A kubeconfig file; only without `access`. */
  readonly kubeconfig?: string;
  /** Told of every answer, those that are repeated too. Must not throw. */
  readonly onRequest?: (record: RequestRecord) => void;
  /** Milliseconds for a call that names no other. @default 30000 */
  readonly deadlineMs?: number;
  /**
   * Milliseconds that a watch may take beyond the time after which the server should have ended it; then its connection
   * is dead without having said so, and is given up. @default 10000
   */
  readonly watchOverdueMs?: number;
}

const patchTypes = {
  merge: "application/merge-patch+json",
  json: "application/json-patch+json",
  apply: "application/apply-patch+yaml",
} as const;

/** Of a text that is asked for as it is, such as a Pod's log. */
const maxTextBytes = 16 * 1024 * 1024;

/** Opens access to a cluster. Nothing is sent yet. */
export async function createKubeClient(options: KubeClientOptions): Promise<KubeClient> {
  return new HttpKubeClient(options.access ?? (await defaultAccess(options.kubeconfig)), options);
}

class HttpKubeClient implements KubeClient {
  readonly namespace: string;
  readonly #transport: Transport;
  readonly #component: string;
  readonly #requests: Requests;

  constructor(access: ClusterAccess, options: KubeClientOptions) {
    this.namespace = access.namespace;
    this.#transport = new Transport(access, options.component);
    this.#component = options.component;
    this.#requests = new Requests({
      transport: this.#transport,
      onRequest: options.onRequest ?? (() => undefined),
      deadlineMs: options.deadlineMs ?? 30_000,
      overdueMs: options.watchOverdueMs ?? 10_000,
    });
  }

  async create<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    body: T,
    options: WriteOptions = {},
  ): Promise<Live<T>> {
    const name = body.metadata?.name ?? body.metadata?.generateName ?? "";
    const path = pathOf(resource, namespace, undefined, undefined, this.#writeQuery(options));
    return (await this.#requests.json({
      verb: "create",
      text: `create ${describe(resource, namespace, name)}`,
      resource: resource.plural,
      exchange: { method: "POST", path, body: jsonBody({ ...typeOf(resource), ...body }) },
      options,
    })) as Live<T>;
  }

  async review<T extends KubeObject>(resource: Resource<T>, body: T, options: CallOptions = {}): Promise<T> {
    return await this.create(resource, undefined, body, options);
  }

  async get<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    name: string,
    options: CallOptions = {},
  ): Promise<Live<T>> {
    return (await this.#requests.json({
      verb: "get",
      text: `get ${describe(resource, namespace, name)}`,
      resource: resource.plural,
      exchange: { method: "GET", path: pathOf(resource, namespace, name) },
      options,
    })) as Live<T>;
  }

  async find<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    name: string,
    options: CallOptions = {},
  ): Promise<Live<T> | undefined> {
    return await undefinedWhenNotFound(this.get(resource, namespace, name, options));
  }

  async list<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    options: ListOptions = {},
  ): Promise<List<T>> {
    const deadline = this.#requests.deadlineOf(options);
    const items: Live<T>[] = [];
    let next: string | undefined;
    for (;;) {
      const path = pathOf(resource, namespace, undefined, undefined, {
        limit: options.pageSize ?? 500,
        labelSelector: options.labelSelector,
        fieldSelector: options.fieldSelector,
        continue: next,
      });
      const page = (await this.#requests.json({
        verb: "list",
        text: `list ${describe(resource, namespace)}`,
        resource: resource.plural,
        exchange: { method: "GET", path },
        options,
        deadline,
      })) as { items?: Live<T>[]; metadata?: { resourceVersion?: string; continue?: string } };
      // The items of a list carry neither apiVersion nor kind; those that a watch sends do.
      for (const item of page.items ?? []) items.push({ ...typeOf(resource), ...item });
      next = page.metadata?.continue || undefined;
      if (next === undefined) return { items, resourceVersion: page.metadata?.resourceVersion ?? "" };
    }
  }

  async delete(
    resource: Resource,
    namespace: string | undefined,
    name: string,
    options: DeleteOptions = {},
  ): Promise<void> {
    const { preconditions, propagationPolicy, gracePeriodSeconds, dryRun } = options;
    const body = { kind: "DeleteOptions", apiVersion: "v1", preconditions, propagationPolicy, gracePeriodSeconds };
    await this.#requests.json({
      verb: "delete",
      text: `delete ${describe(resource, namespace, name)}`,
      resource: resource.plural,
      exchange: {
        method: "DELETE",
        path: pathOf(resource, namespace, name, undefined, { dryRun: dryRun ? "All" : undefined }),
        body: jsonBody(body),
      },
      options,
    });
  }

  async patch<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    name: string,
    patch: Patch,
    options: PatchOptions = {},
  ): Promise<Live<T>> {
    const query = { ...this.#writeQuery(options), force: patch.type === "apply" ? (patch.force ?? false) : undefined };
    const body = patch.type === "apply" ? { ...typeOf(resource), ...patch.body } : patch.body;
    return (await this.#requests.json({
      verb: "patch",
      text: `patch ${describe(resource, namespace, name, options.subresource)}`,
      resource: options.subresource === undefined ? resource.plural : `${resource.plural}/${options.subresource}`,
      exchange: {
        method: "PATCH",
        path: pathOf(resource, namespace, name, options.subresource, query),
        body: { contentType: patchTypes[patch.type], text: JSON.stringify(body) },
      },
      options,
    })) as Live<T>;
  }

  async *watch<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    options: WatchOptions,
  ): AsyncGenerator<WatchEvent<T>> {
    const { timeoutSeconds, resourceVersion, labelSelector, fieldSelector, signal } = options;
    const text = `watch ${describe(resource, namespace)}`;
    const path = pathOf(resource, namespace, undefined, undefined, {
      watch: 1,
      allowWatchBookmarks: true,
      resourceVersion,
      timeoutSeconds,
      labelSelector,
      fieldSelector,
    });
    const call: Call = {
      verb: "watch",
      text,
      resource: resource.plural,
      exchange: { method: "GET", path, longLived: true },
      options: signal ? { signal } : {},
    };
    for await (const line of this.#requests.lines(call, timeoutSeconds)) yield watchEvent<T>(text, line);
  }

  async apiVersionsOf(group: string, options: CallOptions = {}): Promise<string[]> {
    const found = (await undefinedWhenNotFound(this.raw(`/apis/${group}`, options))) as
      | { versions?: { version: string }[]; preferredVersion?: { version: string } }
      | undefined;
    const versions = found?.versions?.map((v) => v.version) ?? [];
    const preferred = found?.preferredVersion?.version;
    return preferred === undefined ? versions : [preferred, ...versions.filter((version) => version !== preferred)];
  }

  async resourcesOf(group: string, version: string, options: CallOptions = {}): Promise<string[]> {
    const path = group === "" ? `/api/${version}` : `/apis/${group}/${version}`;
    const found = (await undefinedWhenNotFound(this.raw(path, options))) as
      | { resources?: { name: string }[] }
      | undefined;
    return found?.resources?.map((resource) => resource.name).filter((name) => !name.includes("/")) ?? [];
  }

  async raw(path: string, options: CallOptions = {}): Promise<unknown> {
    return await this.#requests.json({
      verb: "get",
      text: `get ${path}`,
      resource: path,
      exchange: { method: "GET", path },
      options,
    });
  }

  async text(path: string, options: CallOptions = {}): Promise<string> {
    const exchange = { method: "GET", path } as const;
    return await this.#requests.text(
      { verb: "get", text: `get ${path}`, resource: path, exchange, options },
      maxTextBytes,
    );
  }

  close(): void {
    this.#transport.close();
  }

  #writeQuery(options: WriteOptions): { fieldManager: string; dryRun: string | undefined } {
    return { fieldManager: options.fieldManager ?? this.#component, dryRun: options.dryRun ? "All" : undefined };
  }
}

function watchEvent<T extends KubeObject>(text: string, line: string): WatchEvent<T> {
  const event = (parsed(line) ?? {}) as { type?: unknown; object?: { code?: unknown } };
  switch (event.type) {
    case "ADDED":
    case "MODIFIED":
    case "DELETED":
    case "BOOKMARK":
      return event as WatchEvent<T>;
    case "ERROR":
      throw errorFromAnswer(text, typeof event.object?.code === "number" ? event.object.code : 500, event.object);
    default:
      throw new OpenShellError("data-loss", `cannot ${text}: a line is no watch event: ${line.slice(0, 200)}`);
  }
}

async function undefinedWhenNotFound<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}

function describe(resource: Resource, namespace: string | undefined, name?: string, subresource?: string): string {
  const what = subresource === undefined ? resource.plural : `${resource.plural}/${subresource}`;
  const where = [namespace, name].filter((part) => part !== undefined && part !== "").join("/");
  return where === "" ? what : `${what} ${where}`;
}

function typeOf(resource: Resource): { apiVersion: string; kind: string } {
  const { group, version, kind } = resource;
  return { apiVersion: group === "" ? version : `${group}/${version}`, kind };
}

function jsonBody(value: unknown): { contentType: string; text: string } {
  return { contentType: "application/json", text: JSON.stringify(value) };
}
