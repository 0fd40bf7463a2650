import { abortable } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import type { KubernetesSettings } from "../config/index.ts";
import type { Informers, KubeClient, Live, Namespace } from "../kube/index.ts";
import { managedNamespaceName, workspaceModePermissions } from "../manifests/index.ts";
import type { ClusterView } from "./cluster-view.ts";
import type { Reason } from "./reasons.ts";
import type { NamespaceFacts } from "./request.ts";
import { deniedRights } from "./self-review.ts";

/** Where the sandboxes of a workspace live, and who makes that place: one for each `workspace_mode`. */
export interface Workspaces {
  /** Resolves when the sandboxes of every workspace that is there are known. */
  start(signal: AbortSignal): Promise<void>;
  /** @throws failed-precondition when there can be no such workspace, as far as it can be told without a question to the cluster */
  check(workspace: string): void;
  /** Makes a workspace's namespace ready, or finds it ready, and returns its name. Safe to repeat. */
  ensure(workspace: string): Promise<string>;
  /** Resolves when nothing of the workspace is left. @throws unavailable while it is still going: ask again */
  remove(workspace: string, signal?: AbortSignal): Promise<void>;
  factsOf(workspace: string): NamespaceFacts;
  /** Namespaces whose sandboxes are not known although they should be: what is not seen may be in one of them. */
  unseen(): string[];
  /** The cluster refused an object of a sandbox there. */
  refused(namespace: string, reason: Reason): void;
}

export interface WorkspacesOptions {
  readonly client: KubeClient;
  readonly informers: Informers;
  readonly view: ClusterView;
  readonly settings: KubernetesSettings;
  readonly gatewayId: string;
  readonly log: Logger;
}

/** The namespace of a workspace, by the setting alone. */
export function namespaceOf(settings: KubernetesSettings, gatewayId: string, workspace: string): string {
  switch (settings.workspace_mode) {
    case "shared":
      return settings.namespace;
    case "managed":
      return managedNamespaceName(gatewayId, workspace);
    case "operator":
      return workspace;
  }
}

/** OpenShift gives each namespace a range of user ids. */
export function factsOfNamespace(namespace: Live<Namespace> | undefined): NamespaceFacts {
  const range = namespace?.metadata.annotations?.["openshift.io/sa.scc.uid-range"];
  const first = range === undefined ? undefined : Number(range.split(/[/-]/)[0]);
  return first !== undefined && Number.isInteger(first) && first > 0 ? { firstUid: first } : {};
}

/**
 * Without these a mode could only wait for ever.
 * @throws failed-precondition, which names each right that is missing
 */
export async function requireRights(
  { client, settings, gatewayId }: Pick<WorkspacesOptions, "client" | "settings" | "gatewayId">,
  signal: AbortSignal,
): Promise<void> {
  const mode = settings.workspace_mode;
  const denied = await deniedRights(client, workspaceModePermissions[mode], gatewayId, undefined, signal);
  if (denied.length === 0) return;
  throw new OpenShellError(
    "failed-precondition",
    `workspace_mode = "${mode}" needs rights in the whole cluster that this gateway does not have: ${denied.join(", ")}; bind them to its ServiceAccount, or set workspace_mode = "shared"`,
    { reason: "PermissionDenied" },
  );
}

/** Begins to follow a namespace. @throws unavailable when it cannot be listed before the signal aborts */
export async function listed(view: Pick<ClusterView, "follow">, name: string, signal: AbortSignal): Promise<void> {
  try {
    await abortable(view.follow(name), signal);
  } catch (error) {
    if (!signal.aborted) throw error;
    throw new OpenShellError("unavailable", `the driver could not list namespace "${name}" in time`, {
      retryAfterMs: 2_000,
      cause: signal.reason,
    });
  }
}
