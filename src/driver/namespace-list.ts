import { readFile } from "node:fs/promises";
import { z } from "zod";
import { OpenShellError } from "../common/errors.ts";
import type { Live, Namespace } from "../kube/index.ts";
import { labels, managedNamespaceName, publicNamePattern } from "../manifests/index.ts";

const listOfNames = z.array(z.string().regex(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/));

/** Namespaces that are workspaces in mode managed: what has the gateway's label under another name is none, nor what is being deleted. */
export function managedNamespaces(found: readonly Live<Namespace>[], gatewayId: string): Live<Namespace>[] {
  return found.filter(({ metadata: { name, labels: own, deletionTimestamp } }) => {
    const workspace = own?.[labels.workspace] ?? "";
    const isNamedSo = workspace !== "" && name === managedNamespaceName(gatewayId, workspace);
    return isNamedSo && own?.[labels.gatewayId] === gatewayId && deletionTimestamp === undefined;
  });
}

/** Of the names in a list those that can be a workspace's. */
export const possibleWorkspaces = (names: readonly string[]): string[] =>
  names.filter((name) => publicNamePattern.test(name));

/** What `operator_namespace_file` says. @throws failed-precondition when it is no JSON array of names */
export async function namespacesInFile(path: string): Promise<string[]> {
  try {
    return listOfNames.parse(JSON.parse(await readFile(path, "utf8")));
  } catch (error) {
    throw new OpenShellError(
      "failed-precondition",
      `operator_namespace_file ${path} is no JSON array of names of namespaces, such as ["team-a", "team-b"]`,
      { cause: error },
    );
  }
}
