import { OpenShellError } from "../common/errors.ts";
import type { CallOptions, KubeClient } from "../kube/index.ts";

/** What writes the objects of sandboxes, with the one read that a write may need. */
export type LeadingClient = Pick<KubeClient, "create" | "list" | "patch" | "delete">;

/**
 * Ends every call with the lease that is held when it is made: one that waits to be sent, or for its answer, would be written over what the
 * next holder has written meanwhile.
 */
export function whileLeading(client: LeadingClient, lost: () => AbortSignal): LeadingClient {
  const leading = async <T>(call: (options: CallOptions) => Promise<T>): Promise<T> => {
    const signal = lost();
    try {
      signal.throwIfAborted();
      return await call({ signal });
    } catch (error) {
      throw signal.aborted ? leadsNoMore(error) : error;
    }
  };
  return {
    create: (resource, namespace, body, options) =>
      leading((end) => client.create(resource, namespace, body, { ...options, ...end })),
    list: (resource, namespace, options) => leading((end) => client.list(resource, namespace, { ...options, ...end })),
    patch: (resource, namespace, name, patch, options) =>
      leading((end) => client.patch(resource, namespace, name, patch, { ...options, ...end })),
    delete: (resource, namespace, name, options) =>
      leading((end) => client.delete(resource, namespace, name, { ...options, ...end })),
  };
}

/** The answer to whoever waits for what only a writer can do. */
export function leadsNoMore(cause?: unknown): OpenShellError {
  return new OpenShellError("unavailable", "this driver does not lead any more; try again", {
    retryAfterMs: 2_000,
    cause,
  });
}
