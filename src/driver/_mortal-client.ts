import type { KubeClient, Resource } from "../kube/index.ts";
import type { FakeCluster } from "./_fake-cluster.ts";

export interface Death {
  /** Of the writes to a sandbox's objects, from 1 on. */
  readonly at: number;
  readonly when: "before it is sent" | "before its answer is seen";
}

/** Every death of a process that makes so many writes. */
export function deathsWithin(writes: number): Death[] {
  return Array.from({ length: writes }, (_, index) => index + 1).flatMap((at) => [
    { at, when: "before it is sent" },
    { at, when: "before its answer is seen" },
  ]);
}

/**
 * The client of a process that dies at a write: neither that one nor a later one is answered, until the driver is stopped. Its lease is given
 * back then, so that the next one need not wait for its end.
 */
export function mortalClient(
  cluster: FakeCluster,
  { at, when }: Death,
): KubeClient & { readonly isDead: () => boolean } {
  let seen = 0;
  const isCounted = ({ plural }: Resource) => plural !== "leases" && plural !== "networkpolicies";
  const guarded = async <T>(
    resource: Resource,
    signal: AbortSignal | undefined,
    write: () => Promise<T>,
  ): Promise<T> => {
    if (!isCounted(resource)) return await write();
    seen += 1;
    const dies = seen >= at;
    const answer = seen < at || (seen === at && when === "before its answer is seen") ? await write() : undefined;
    if (!dies) return answer as T;
    return await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
  };
  const writes: Pick<KubeClient, "create" | "patch" | "delete"> = {
    create: (resource, namespace, body, options) =>
      guarded(resource, options?.signal, () => cluster.create(resource, namespace, body, options)),
    patch: (resource, namespace, name, patch, options) =>
      guarded(resource, options?.signal, () => cluster.patch(resource, namespace, name, patch)),
    delete: (resource, namespace, name, options) =>
      guarded(resource, options?.signal, () => cluster.delete(resource, namespace, name, options)),
  };
  const own = { ...writes, isDead: () => seen >= at };
  return new Proxy(cluster as unknown as KubeClient & typeof own, {
    get(_target, key) {
      if (Object.hasOwn(own, key)) return own[key as keyof typeof own];
      const value: unknown = Reflect.get(cluster, key);
      return typeof value === "function" ? value.bind(cluster) : value;
    },
  });
}
