/**
 * `OPENSHELL_WORKSPACE_MODE=managed|operator`: every suite works with sandboxes in a namespace of a workspace instead of the shared one.
 * The suites are the same; only where they look and how their gateway is set is another.
 */
import type { KubeObject } from "../../src/kube/index.ts";
import {
  managedNamespaceName,
  manifestOf,
  WorkspaceNamespace,
  WorkspaceRoleBinding,
  WorkspaceServiceAccount,
} from "../../src/manifests/index.ts";
import { kubectl } from "../cluster/clients.ts";
import type { Release } from "./release.ts";

export const operatorLabel = "conformance.openshell.test/workspace";

export interface WorkspacePlace {
  readonly workspace: string;
  readonly namespace: string;
  /** Below the driver's table. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** What has to be in the cluster before the gateway starts. */
  readonly objects: readonly (KubeObject & object)[];
}

/** A release with workspaces in namespaces has an id of its own: namespaces of managed mode are the cluster's. */
export const modesGatewayId = ({ name }: Release) => `modes-${name}`;

/** What an operator puts into a namespace of operator mode. */
function operatorPrerequisites(release: Release, gatewayId: string, namespace: string): (KubeObject & object)[] {
  const props = { gatewayId, workspace: namespace, namespace };
  const subject = { kind: "ServiceAccount", name: release.name, namespace: release.namespace } as const;
  const account = `${release.name}-sandbox`;
  return [
    manifestOf((scope) => new WorkspaceServiceAccount(scope, "account", { ...props, name: account })),
    manifestOf((scope) => new WorkspaceRoleBinding(scope, "binding", { ...props, subject })),
  ] as (KubeObject & object)[];
}

export function operatorNamespace(name: string): KubeObject & object {
  const podSecurity = { "pod-security.kubernetes.io/enforce": "restricted" };
  return {
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name, labels: { [operatorLabel]: "true", ...podSecurity } },
  };
}

/** The place of a release's sandboxes by the environment; undefined in shared mode. */
export function placeOf(release: Release, mode = process.env.OPENSHELL_WORKSPACE_MODE): WorkspacePlace | undefined {
  const gatewayId = modesGatewayId(release);
  switch (mode) {
    case undefined:
    case "":
    case "shared":
      return undefined;
    case "managed": {
      const workspace = "default";
      const labels = {};
      const settings = { pod_security: "restricted", labels, annotations: {} } as const;
      // Made with its first sandbox otherwise; some suites put a quota there before.
      const namespace = manifestOf(
        (scope) => new WorkspaceNamespace(scope, "namespace", { gatewayId, workspace, settings }),
      );
      return {
        workspace,
        namespace: managedNamespaceName(gatewayId, workspace),
        settings: { workspace_mode: "managed", gateway_id: gatewayId },
        objects: [namespace as KubeObject & object],
      };
    }
    case "operator": {
      const workspace = `${release.name}-ws`;
      return {
        workspace,
        namespace: workspace,
        settings: { workspace_mode: "operator", operator_namespace_label: operatorLabel, gateway_id: gatewayId },
        objects: [operatorNamespace(workspace), ...operatorPrerequisites(release, gatewayId, workspace)],
      };
    }
    default:
      throw new Error(`OPENSHELL_WORKSPACE_MODE is ${mode}; shared, managed or operator is known`);
  }
}

const listOf = (items: readonly object[]) => JSON.stringify({ apiVersion: "v1", kind: "List", items });

export async function applyPlace(kubeconfig: string, { objects }: Pick<WorkspacePlace, "objects">): Promise<void> {
  await kubectl(kubeconfig, ["apply", "-f", "-"], { input: listOf(objects) });
}
