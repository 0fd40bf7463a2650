import { OpenShellError } from "../common/errors.ts";
import type { Resource } from "./types.ts";

export type Query = Readonly<Record<string, string | number | boolean | undefined>>;

/** Path of a collection, or of one object or subresource in it. */
export function pathOf(
  resource: Resource,
  namespace: string | undefined,
  name?: string,
  subresource?: string,
  query: Query = {},
): string {
  if (name === "") throw new OpenShellError("invalid-argument", `a ${resource.kind} needs a name, got ""`);
  if (!resource.namespaced && namespace !== undefined) {
    throw new OpenShellError("invalid-argument", `${resource.plural} have no namespace, got "${namespace}"`);
  }
  if (resource.namespaced && name !== undefined && !namespace) {
    throw new OpenShellError("invalid-argument", `${resource.plural} "${name}" needs a namespace`);
  }
  const root = resource.group === "" ? ["api", resource.version] : ["apis", resource.group, resource.version];
  const parts = [...root, ...(namespace ? ["namespaces", namespace] : []), resource.plural];
  if (name !== undefined) parts.push(name);
  if (subresource !== undefined) parts.push(subresource);
  return `/${parts.map(encodeURIComponent).join("/")}${queryText(query)}`;
}

function queryText(query: Query): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) parameters.set(name, String(value));
  return parameters.size === 0 ? "" : `?${parameters}`;
}
