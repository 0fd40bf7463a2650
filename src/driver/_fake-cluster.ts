import { setImmediate as tick } from "node:timers/promises";
import { OpenShellError } from "../common/errors.ts";
import type {
  AgentSandbox,
  DeleteOptions,
  JsonPatchOperation,
  KubeClient,
  KubeObject,
  List,
  ListOptions,
  Live,
  Patch,
  Pod,
  Resource,
  TokenReview,
  WatchEvent,
  WatchOptions,
  WriteOptions,
} from "../kube/index.ts";
import { annotations } from "../manifests/index.ts";
import { suspendedAt } from "./_testing.ts";

type Verb = "list" | "watch" | "get" | "create" | "patch" | "delete";
export interface AskedRight {
  readonly verb: string;
  readonly resource: string;
  readonly namespace?: string;
}

export interface RecordedCall {
  readonly verb: Verb;
  readonly group: string;
  readonly resource: string;
}

/**
 * A few kinds of objects in memory behind the client's interface, with just enough of a controller, a scheduler and a kubelet to let a pair
 * come up. It is for the order and the number of our writes, and for what a crash between two of them leaves; it is NO evidence of how a
 * cluster behaves. That is what e2e/ is for.
 */
export class FakeCluster implements KubeClient {
  readonly namespace = "sandboxes";
  readonly calls: RecordedCall[] = [];
  readonly served: string[] = ["v1beta1"];
  /** Throws to refuse a write, or returns a promise that never settles to let the gateway die at it. */
  beforeWrite: (call: RecordedCall, body: KubeObject | undefined) => void | Promise<void> = () => undefined;
  /** Throws to refuse a list, or returns a promise that lets it wait. */
  beforeList: (plural: string, namespace: string | undefined) => void | Promise<void> = () => undefined;
  afterWrite: (call: RecordedCall) => void | Promise<void> = () => undefined;
  /** What admission makes of a Pod, whoever asks for it. */
  admitPod: <T extends KubeObject>(pod: T) => T = (pod) => pod;
  /** Whether there is a node for a released Pod. */
  fits: (pod: Live<Pod>) => boolean = () => true;
  tokenReview: TokenReview["status"];
  /** What a SelfSubjectAccessReview is told. */
  isAllowed: (right: AskedRight) => boolean = () => true;
  /** The policy that bounds managed mode is in force: it refuses all that is tried only, as the driver does at its start. */
  isGuarded = true;
  readonly #objects = new Map<string, Live<KubeObject>>();
  readonly #watchers = new Set<{
    readonly plural: string;
    readonly selects: (object: KubeObject) => boolean;
    readonly push: (event: WatchEvent<KubeObject>) => void;
  }>();
  #version = 1;
  #uid = 0;

  /** Writes by "verb resource", without the lease, the two policies, and what is only a question. */
  writes(): string[] {
    return this.calls
      .filter(({ verb }) => verb === "create" || verb === "patch" || verb === "delete")
      .filter(
        ({ resource }) => resource !== "leases" && resource !== "networkpolicies" && !resource.endsWith("reviews"),
      )
      .map(({ verb, resource }) => `${verb} ${resource}`);
  }

  all<T extends KubeObject>(plural: string): Live<T>[] {
    return [...this.#objects].filter(([key]) => key.startsWith(`${plural}/`)).map(([, object]) => object as Live<T>);
  }

  async create<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    body: T,
    options: WriteOptions = {},
  ): Promise<Live<T>> {
    if (options.dryRun) {
      if (this.isGuarded) throw refusal(403, "Forbidden", "an admission policy denied the request");
      return body as Live<T>;
    }
    return (await this.#write("create", resource, body, () => {
      const key = keyOf(resource.plural, namespace, body.metadata?.name ?? "");
      if (this.#objects.has(key))
        throw refusal(409, "AlreadyExists", `${resource.plural} "${body.metadata?.name}" already exists`);
      const admitted = resource.plural === "pods" ? this.admitPod(structuredClone(body)) : structuredClone(body);
      return this.#put(resource.plural, {
        ...admitted,
        metadata: {
          ...admitted.metadata,
          name: body.metadata?.name ?? "",
          ...(namespace === undefined ? {} : { namespace }),
          uid: `uid-${++this.#uid}`,
          generation: 1,
          resourceVersion: "0",
          creationTimestamp: new Date().toISOString(),
        },
      });
    })) as Live<T>;
  }

  async review<T extends KubeObject>(resource: Resource<T>, body: T): Promise<T> {
    this.#record("create", resource);
    switch (resource.plural) {
      case "selfsubjectreviews":
        return { status: { userInfo: { username: "system:serviceaccount:openshell:openshell" } } } as unknown as T;
      case "selfsubjectaccessreviews": {
        const { resourceAttributes } = (body as unknown as { spec: { resourceAttributes: AskedRight } }).spec;
        return { ...body, status: { allowed: this.isAllowed(resourceAttributes) } } as T;
      }
      default:
        return { ...body, status: this.tokenReview } as T;
    }
  }

  /** An object of somebody else, which needs no call of ours. */
  place(plural: string, object: KubeObject & { readonly metadata: { readonly name: string } }): Live<KubeObject> {
    const metadata = { ...object.metadata, uid: `uid-${++this.#uid}`, resourceVersion: "0" };
    return this.#put(plural, { ...object, metadata });
  }

  async get<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    name: string,
  ): Promise<Live<T>> {
    this.#record("get", resource);
    return this.#require(resource, namespace, name) as Live<T>;
  }

  async find<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    name: string,
  ): Promise<Live<T> | undefined> {
    this.#record("get", resource);
    return structuredClone(this.#objects.get(keyOf(resource.plural, namespace, name))) as Live<T> | undefined;
  }

  async list<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    options: ListOptions = {},
  ): Promise<List<T>> {
    this.#record("list", resource);
    await this.beforeList(resource.plural, namespace);
    const items = this.all<T>(resource.plural).filter(selection(namespace, options));
    return { items: structuredClone(items), resourceVersion: String(this.#version) };
  }

  async delete(
    resource: Resource,
    namespace: string | undefined,
    name: string,
    options: DeleteOptions = {},
  ): Promise<void> {
    await this.#write("delete", resource, undefined, () => {
      const object = this.#require(resource, namespace, name);
      const uid = options.preconditions?.uid;
      if (uid !== undefined && uid !== object.metadata.uid) throw refusal(409, "Conflict", "Precondition failed: UID");
      if (resource.plural === "namespaces") {
        this.#end(object);
        return object;
      }
      this.#remove(resource.plural, object);
      return object;
    });
  }

  async patch<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    name: string,
    patch: Patch,
  ): Promise<Live<T>> {
    return (await this.#write("patch", resource, undefined, () => {
      const object = this.#require(resource, namespace, name);
      const patched =
        patch.type === "json" ? jsonPatched(object, patch.body) : mergePatched(object, patch.body as KubeObject);
      const { resourceVersion: asked, uid } = patched.metadata as { resourceVersion?: string; uid?: string };
      if (uid !== object.metadata.uid)
        throw refusal(422, "Invalid", "metadata.uid: field is immutable", "metadata.uid");
      if (asked !== object.metadata.resourceVersion) throw refusal(409, "Conflict", "the object has been modified");
      return this.#put(resource.plural, patched as unknown as Live<KubeObject>);
    })) as Live<T>;
  }

  async *watch<T extends KubeObject>(
    resource: Resource<T>,
    namespace: string | undefined,
    options: Pick<WatchOptions, "signal" | "labelSelector">,
  ): AsyncGenerator<WatchEvent<T>> {
    this.#record("watch", resource);
    const pending: WatchEvent<KubeObject>[] = [];
    let wake = () => {};
    const watcher = {
      plural: resource.plural,
      selects: selection(namespace, options),
      push: (event: WatchEvent<KubeObject>) => {
        pending.push(event);
        wake();
      },
    };
    this.#watchers.add(watcher);
    options.signal?.addEventListener("abort", () => wake(), { once: true });
    try {
      while (!options.signal?.aborted) {
        const event = pending.shift();
        if (event !== undefined) yield structuredClone(event) as WatchEvent<T>;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      this.#watchers.delete(watcher);
    }
  }

  async apiVersionsOf(): Promise<string[]> {
    return this.served;
  }

  async resourcesOf(): Promise<string[]> {
    return [];
  }

  async raw(): Promise<unknown> {
    return {};
  }

  async text(): Promise<string> {
    return "";
  }

  close(): void {}

  /** Lets controller, scheduler and kubelet do what there is to do, until nothing changes any more. */
  async settle(): Promise<void> {
    for (let quiet = 0; quiet < 12; quiet += 1) {
      await tick();
      if (this.#controller() || this.#node()) quiet = 0;
    }
  }

  #controller(): boolean {
    for (const resource of this.all<AgentSandbox>("sandboxes")) {
      const { namespace = "" } = resource.metadata;
      const found = this.#objects.get(keyOf("pods", namespace, resource.metadata.name)) as Live<Pod> | undefined;
      const runs = resource.spec.operatingMode === "Running" || resource.spec.replicas === 1;
      if (runs && found === undefined) {
        const template = structuredClone(resource.spec.podTemplate);
        const claim = {
          name: "workspace",
          persistentVolumeClaim: { claimName: `workspace-${resource.metadata.name}` },
        };
        const pod = {
          metadata: {
            ...template.metadata,
            name: resource.metadata.name,
            namespace,
            uid: `uid-${++this.#uid}`,
            resourceVersion: "0",
            ownerReferences: [
              {
                apiVersion: "",
                kind: "Sandbox",
                name: resource.metadata.name,
                uid: resource.metadata.uid,
                controller: true,
              },
            ],
          },
          spec: { ...template.spec, volumes: [...(template.spec.volumes ?? []), claim] },
          status: { phase: "Pending" },
        } as Live<Pod>;
        this.#put("pods", this.admitPod(pod));
        return true;
      }
      if (!runs && found !== undefined) {
        this.#remove("pods", found);
        return true;
      }
      const isSaid = resource.status?.conditions?.[0]?.observedGeneration === resource.metadata.generation;
      if (!runs && !isSaid) {
        const status = suspendedAt(resource.metadata.generation ?? 0);
        this.#put("sandboxes", { ...resource, status } as Live<AgentSandbox>);
        return true;
      }
    }
    return false;
  }

  #node(): boolean {
    for (const pod of this.all<Pod>("pods")) {
      const isReleased =
        (pod.spec?.schedulingGates?.length ?? 0) === 0 && pod.metadata.annotations?.[annotations.peerUid];
      if (!isReleased || pod.status?.phase === "Running" || !this.fits(pod)) continue;
      const node = pod.metadata.name.startsWith("os-supervisor") ? "node-2" : "node-1";
      const [container] = pod.spec?.containers ?? [];
      this.#put("pods", {
        ...pod,
        spec: { ...pod.spec, nodeName: node },
        status: {
          phase: "Running",
          containerStatuses: [
            {
              name: container?.name ?? "",
              image: "",
              imageID: "",
              ready: true,
              started: true,
              restartCount: 0,
              state: { running: {} },
            },
          ],
        },
      } as Live<Pod>);
      return true;
    }
    return false;
  }

  async #write(
    verb: Verb,
    resource: Resource,
    body: KubeObject | undefined,
    apply: () => Live<KubeObject>,
  ): Promise<Live<KubeObject>> {
    const call = this.#record(verb, resource);
    await this.beforeWrite(call, body);
    const object = structuredClone(apply());
    await this.afterWrite(call);
    return object;
  }

  #record(verb: Verb, { group, plural }: Resource): RecordedCall {
    const call = { verb, group, resource: plural };
    this.calls.push(call);
    return call;
  }

  #put(plural: string, object: Live<KubeObject>): Live<KubeObject> {
    const key = keyOf(plural, object.metadata.namespace, object.metadata.name);
    const before = this.#objects.get(key) as (Live<KubeObject> & { spec?: unknown }) | undefined;
    const spec = (object as { spec?: unknown }).spec;
    const isNewSpec = before !== undefined && JSON.stringify(before.spec) !== JSON.stringify(spec);
    const generation = (object.metadata.generation ?? 1) + (isNewSpec ? 1 : 0);
    const stored = {
      ...object,
      metadata: { ...object.metadata, generation, resourceVersion: String(++this.#version) },
    };
    this.#objects.set(key, stored);
    this.#tell(plural, before, stored);
    return stored;
  }

  /** A namespace says that it ends, then what is in it goes, then it goes. */
  #end(namespace: Live<KubeObject>): void {
    const metadata = { ...namespace.metadata, deletionTimestamp: "2026-12-01T12:00:00Z" };
    const ending = this.#put("namespaces", { ...namespace, metadata });
    for (const [key, object] of [...this.#objects]) {
      if (object.metadata.namespace === namespace.metadata.name) this.#remove(key.split("/")[0] ?? "", object);
    }
    this.#remove("namespaces", ending);
  }

  /** It goes at once, as by somebody else's `kubectl delete --force`. */
  forget(plural: string, object: Live<KubeObject>): void {
    this.#remove(plural, object, true);
  }

  /** With what it owns, as the garbage collector would. */
  #remove(plural: string, object: Live<KubeObject>, atOnce = false): void {
    this.#objects.delete(keyOf(plural, object.metadata.namespace, object.metadata.name));
    const resourceVersion = String(++this.#version);
    // What has a node is ended by its kubelet, and says so before it goes; all else goes at once.
    const isEnded = !atOnce && (object as Live<Pod>).spec?.nodeName !== undefined;
    const metadata = {
      ...object.metadata,
      resourceVersion,
      ...(isEnded && { deletionTimestamp: "2026-12-01T12:00:00Z" }),
    };
    this.#tell(plural, { ...object, metadata }, undefined);
    for (const [key, other] of [...this.#objects]) {
      const isOwned = other.metadata.ownerReferences?.some(({ uid }) => uid === object.metadata.uid);
      if (isOwned) this.#remove(key.split("/")[0] ?? "", other);
    }
  }

  /** What leaves a watch's selection is told as deleted, as it was before, under the version of the change (measured). */
  #tell(plural: string, before: Live<KubeObject> | undefined, after: Live<KubeObject> | undefined): void {
    for (const { plural: watched, selects, push } of this.#watchers) {
      if (watched !== plural) continue;
      const was = before !== undefined && selects(before) ? before : undefined;
      const is = after !== undefined && selects(after) ? after : undefined;
      if (is !== undefined) push({ type: was === undefined ? "ADDED" : "MODIFIED", object: is });
      else if (was !== undefined) {
        const { resourceVersion } = (after ?? was).metadata;
        push({ type: "DELETED", object: { ...was, metadata: { ...was.metadata, resourceVersion } } });
      }
    }
  }

  #require(resource: Resource, namespace: string | undefined, name: string): Live<KubeObject> {
    const object = this.#objects.get(keyOf(resource.plural, namespace, name));
    if (object === undefined) throw refusal(404, "NotFound", `${resource.plural} "${name}" not found`);
    return object;
  }
}

/** An error as src/kube makes it of an API server's answer. */
export function refusal(httpCode: number, reason: string, message: string, field?: string): OpenShellError {
  const causes = field === undefined ? [] : [{ field }];
  return new OpenShellError("aborted", message, { cause: { kind: "KubeStatus", httpCode, reason, message, causes } });
}

function keyOf(plural: string, namespace: string | undefined, name: string): string {
  return `${plural}/${namespace ?? ""}/${name}`;
}

/** `key=value,key` over labels, and `metadata.name=value` over fields. */
function selection(namespace: string | undefined, { labelSelector, fieldSelector }: ListOptions) {
  const labels = labelSelector?.split(",").map((term) => term.split("=")) ?? [];
  const name = fieldSelector?.replace("metadata.name=", "");
  return ({ metadata }: KubeObject): boolean =>
    (namespace === undefined || metadata?.namespace === namespace) &&
    (name === undefined || metadata?.name === name) &&
    labels.every(([key = "", value]) => {
      const found = metadata?.labels?.[key];
      return value === undefined ? found !== undefined : found === value;
    });
}

function mergePatched(target: unknown, patch: unknown): Record<string, unknown> {
  const merged: Record<string, unknown> = { ...(target as Record<string, unknown>) };
  for (const [key, value] of Object.entries(patch as Record<string, unknown>)) {
    if (value === null) delete merged[key];
    else if (typeof value === "object" && !Array.isArray(value)) merged[key] = mergePatched(merged[key] ?? {}, value);
    else merged[key] = value;
  }
  return merged;
}

function jsonPatched(target: object, operations: readonly JsonPatchOperation[]): Record<string, unknown> {
  const patched = structuredClone(target) as Record<string, unknown>;
  for (const { path, value } of operations) {
    const parts = path
      .slice(1)
      .split("/")
      .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
    const last = parts.pop() ?? "";
    const parent = parts.reduce((at, part) => at[part] as Record<string, unknown>, patched);
    parent[last] = value;
  }
  return patched;
}
