import { backoffMs, sleep } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import {
  isAlreadyExists,
  isForbidden,
  type KubeObject,
  namespaces,
  type Resource,
  roleBindings,
} from "../kube/index.ts";
import {
  type ManifestObject,
  managedNamespaceName,
  manifestOf,
  type Subject,
  WorkspaceNamespace,
  WorkspaceRoleBinding,
} from "../manifests/index.ts";
import type { WorkspacesOptions } from "./workspaces.ts";

/** A policy that the chart has just made is in force some seconds later. */
const inForceWithinMs = 20_000;
const probe = "policy-probe";

/**
 * The rights of managed mode reach the whole cluster but for an admission policy, so that nothing is done without one: what it has to
 * refuse is tried, and nothing of it is kept (`dryRun`).
 *
 * @throws failed-precondition, which names what was accepted
 */
export async function requireBounds(
  options: Pick<WorkspacesOptions, "client" | "settings" | "gatewayId">,
  subject: Subject,
  signal: AbortSignal,
  withinMs = inForceWithinMs,
): Promise<void> {
  const end = performance.now() + withinMs;
  for (let attempt = 2; ; attempt += 1) {
    const accepted = await acceptedOf(options, subject, signal);
    if (accepted.length === 0) return;
    if (performance.now() >= end) {
      throw new OpenShellError(
        "failed-precondition",
        `workspace_mode = "managed" needs the ValidatingAdmissionPolicy of the chart (rbac.create), which bounds the gateway to its own namespaces; without it the cluster accepts ${accepted.join(", ")}`,
        { reason: "PermissionDenied" },
      );
    }
    await sleep(backoffMs(attempt, { maxMs: 2_000 }), signal);
  }
}

async function acceptedOf(
  { client, settings, gatewayId }: Pick<WorkspacesOptions, "client" | "settings" | "gatewayId">,
  subject: Subject,
  signal: AbortSignal,
): Promise<string[]> {
  const namespaceOf = (level: typeof settings.managed_namespaces.pod_security) =>
    manifestOf(
      (scope) =>
        new WorkspaceNamespace(scope, "namespace", {
          gatewayId,
          workspace: probe,
          settings: { ...settings.managed_namespaces, pod_security: level },
        }),
    );
  const { pod_security: level } = settings.managed_namespaces;
  const ours = namespaceOf(level);
  const name = `not-${managedNamespaceName(gatewayId, "")}x`;
  const binding = manifestOf(
    (scope) =>
      new WorkspaceRoleBinding(scope, "binding", { gatewayId, workspace: probe, namespace: "kube-system", subject }),
  );
  const probes: readonly (readonly [string, Resource, ManifestObject])[] = [
    [`a namespace "${name}"`, namespaces, { ...ours, metadata: { ...ours.metadata, name } }],
    ["a binding of its role in kube-system", roleBindings, binding],
    ...(level === "privileged"
      ? []
      : [["a namespace of Pod Security level privileged", namespaces, namespaceOf("privileged")] as const]),
  ];
  const accepted = await Promise.all(
    probes.map(async ([what, resource, manifest]) => {
      try {
        const { namespace } = manifest.metadata;
        await client.create(resource, namespace, manifest as KubeObject, { dryRun: true, signal });
        return what;
      } catch (error) {
        if (isForbidden(error)) return undefined;
        // Admission comes first.
        if (isAlreadyExists(error)) return what;
        throw error;
      }
    }),
  );
  return accepted.filter((what) => what !== undefined);
}
