import { z } from "zod";
import { labels } from "../../src/manifests/names.ts";
import type { SeenRequest } from "./api-proxy.ts";

const objectSchema = z.object({
  kind: z.string(),
  metadata: z.object({ name: z.string(), labels: z.record(z.string(), z.string()).default({}) }),
});

/** Knows for which sandbox a write to the API server is, having seen all writes since the sandbox was made. */
export class SandboxWrites {
  /** Resource names of sandboxes, by the name of what is a sandbox's. */
  readonly #ofObject = new Map<string, string>();
  /** The same by sandbox id. */
  readonly #ofId = new Map<string, string>();

  /** @returns the name of the Sandbox resource; undefined for reads, and for writes that are no sandbox's */
  sandboxOf({ method, path, body }: SeenRequest): string | undefined {
    if (method === "GET") return undefined;
    if (method !== "POST") return this.#ofObject.get(path.slice(path.lastIndexOf("/") + 1));
    const object = objectSchema.safeParse(jsonOf(body)).data;
    const id = object?.metadata.labels[labels.sandboxId];
    if (object === undefined || id === undefined) return undefined;
    const { name } = object.metadata;
    if (object.kind === "Sandbox") this.#ofId.set(id, name);
    const sandbox = this.#ofId.get(id);
    if (sandbox !== undefined) this.#ofObject.set(name, sandbox);
    return sandbox;
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
