/** Asks the cluster what it gives the driver: the half of `openshell-gateway selftest` that needs Kubernetes. */
import type { KubernetesSettings } from "../config/index.ts";
import {
  agentSandboxGroup,
  agentSandboxVersions,
  createKubeClient,
  isForbidden,
  type KubeClient,
  type KubeObject,
  namespaces,
  type Resource,
} from "../kube/index.ts";
import { labels, workspaceRoleName } from "../manifests/index.ts";
import {
  clusterPermissions,
  type Permission,
  sandboxNamespacePermissions,
  workspaceModePermissions,
  workspaceNamespacePermissions,
} from "../manifests/permissions.ts";
import { managedNamespaces, namespacesInFile, possibleWorkspaces } from "./namespace-list.ts";

/** One thing that was looked at. */
export interface Finding {
  readonly what: string;
  /** What is wrong and what to do about it. @default nothing is wrong */
  readonly problem?: string;
}

export interface SelfReviewOptions {
  /** Namespace of the sandboxes. */
  readonly namespace: string;
  /** Names of some objects contain it. */
  readonly gatewayId: string;
  /** @default shared: no other namespace is looked at */
  readonly workspaceMode?: KubernetesSettings["workspace_mode"];
  /** The setting of that name: which namespaces are workspaces in operator mode. */
  readonly operatorNamespaceLabel?: string;
  /** The setting of that name, in place of the label. */
  readonly operatorNamespaceFile?: string;
  /** A kubeconfig file. @default the Pod's own access */
  readonly kubeconfig?: string;
  /** @default one that is made for the review */
  readonly client?: ReviewClient;
  readonly signal?: AbortSignal;
}

type ReviewClient = Pick<KubeClient, "apiVersionsOf" | "review" | "list">;

interface AccessReview extends KubeObject {
  readonly spec: {
    readonly resourceAttributes: {
      readonly namespace?: string;
      readonly group: string;
      readonly resource: string;
      readonly verb: string;
      readonly name?: string;
    };
  };
  readonly status?: { readonly allowed: boolean; readonly reason?: string };
}

/** Needs no right: everyone may ask what they themselves may do. */
const selfReviews: Resource<AccessReview> = {
  group: "authorization.k8s.io",
  version: "v1",
  kind: "SelfSubjectAccessReview",
  plural: "selfsubjectaccessreviews",
  namespaced: false,
};

/**
 * Every verb of the permission tables that the workspace mode needs, in each namespace where it needs it, and the Agent Sandbox API, as the
 * cluster answers for the identity that asks.
 * @throws unavailable when the API server does not answer
 */
export async function reviewCluster(options: SelfReviewOptions): Promise<Finding[]> {
  if (options.client !== undefined) return review(options.client, options);
  const client = await createKubeClient({
    component: "openshell-selftest",
    ...(options.kubeconfig === undefined ? {} : { kubeconfig: options.kubeconfig }),
  });
  try {
    return await review(client, options);
  } finally {
    client.close();
  }
}

async function review(client: ReviewClient, options: SelfReviewOptions): Promise<Finding[]> {
  const { gatewayId, workspaceMode = "shared", operatorNamespaceFile = "" } = options;
  const isFileRead = workspaceMode === "operator" && operatorNamespaceFile !== "";
  const call = options.signal === undefined ? {} : { signal: options.signal };
  const served = await client.apiVersionsOf(agentSandboxGroup, call);
  const version = agentSandboxVersions.find((one) => served.includes(one));
  const findings: Finding[] = [
    version === undefined
      ? {
          what: `${agentSandboxGroup} is served`,
          problem: `the cluster serves none of ${agentSandboxVersions.join(", ")}; install Agent Sandbox`,
        }
      : { what: `${agentSandboxGroup}/${version} is served` },
  ];
  const rights = [
    ...rightsIn(sandboxNamespacePermissions, gatewayId, options.namespace),
    ...rightsIn(clusterPermissions, gatewayId),
    ...rightsIn(isFileRead ? [] : workspaceModePermissions[workspaceMode], gatewayId),
  ];
  return findings.concat(
    await Promise.all(
      rights.map(async (right): Promise<Finding> => {
        const { namespace } = right.attributes;
        const what = `may ${wordsOf(right)} ${namespace === undefined ? "in the cluster" : `in ${namespace}`}`;
        if (await isAllowed(client, right, call)) return { what };
        return { what, problem: `not allowed, but ${right.why}; apply the chart's Role and ClusterRole (rbac.create)` };
      }),
    ),
    workspaceMode === "shared" ? [] : await reviewWorkspaces(client, workspaceMode, options, call),
  );
}

/** One line for each namespace of a workspace: there may be many, and each gives the same. */
async function reviewWorkspaces(
  client: ReviewClient,
  mode: "managed" | "operator",
  options: SelfReviewOptions,
  call: Call,
): Promise<Finding[]> {
  const { gatewayId } = options;
  const table = workspaceNamespacePermissions[mode];
  const { names, from } = await workspaceNamespaces(client, mode, options, call);
  if (names.length === 0) return [{ what: `no namespace is a workspace yet (${from})` }];
  const findings: Finding[] = [];
  for (const name of names) {
    const what = `may do what sandboxes of workspace namespace ${name} need (${from})`;
    const denied = await deniedRights(client, table, gatewayId, name, call.signal);
    const remedy =
      mode === "managed"
        ? "the gateway binds it when it makes the namespace; somebody took the binding away"
        : "install charts/openshell-workspace there";
    findings.push(
      denied.length === 0
        ? { what }
        : {
            what,
            problem: `not allowed: ${denied.join(", ")}; it takes a RoleBinding of ClusterRole ${workspaceRoleName(gatewayId)} to the gateway's ServiceAccount: ${remedy}`,
          },
    );
  }
  return findings;
}

/** The namespaces that are workspaces now, as the driver takes them, and how they are told. */
async function workspaceNamespaces(
  client: ReviewClient,
  mode: "managed" | "operator",
  { gatewayId, operatorNamespaceLabel = "", operatorNamespaceFile = "" }: SelfReviewOptions,
  call: Call,
): Promise<{ readonly names: readonly string[]; readonly from: string }> {
  if (mode === "operator" && operatorNamespaceFile !== "")
    return { names: possibleWorkspaces(await namespacesInFile(operatorNamespaceFile)), from: operatorNamespaceFile };
  const labelSelector = mode === "managed" ? `${labels.gatewayId}=${gatewayId}` : operatorNamespaceLabel;
  try {
    const { items } = await client.list(namespaces, undefined, { ...call, labelSelector });
    // One that is being deleted loses its rights before it is gone.
    const living =
      mode === "managed"
        ? managedNamespaces(items, gatewayId)
        : items.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
    return { names: living.map(({ metadata }) => metadata.name), from: labelSelector };
  } catch (error) {
    // That it may not list namespaces has a finding of its own.
    if (isForbidden(error)) return { names: [], from: labelSelector };
    throw error;
  }
}

/** Rights of a table that the one who asks does not have in a namespace, or in the cluster, in words. */
export async function deniedRights(
  client: Pick<KubeClient, "review">,
  table: readonly Permission[],
  gatewayId: string,
  namespace: string | undefined,
  signal?: AbortSignal,
): Promise<string[]> {
  const call = signal === undefined ? {} : { signal };
  const asked = rightsIn(table, gatewayId, namespace).map(async (right) =>
    (await isAllowed(client, right, call)) ? [] : [wordsOf(right)],
  );
  return (await Promise.all(asked)).flat();
}

interface Call {
  readonly signal?: AbortSignal;
}

async function isAllowed(client: Pick<KubeClient, "review">, { attributes }: Right, call: Call) {
  const { status } = await client.review(selfReviews, { spec: { resourceAttributes: attributes } }, call);
  return status?.allowed === true;
}

function wordsOf({ attributes: { verb, resource, group, name } }: Right): string {
  return `${verb} ${resource}${group === "" ? "" : `.${group}`}${name === undefined ? "" : ` ${name}`}`;
}

interface Right {
  readonly attributes: AccessReview["spec"]["resourceAttributes"];
  readonly why: string;
}

function rightsIn(table: readonly Permission[], gatewayId: string, namespace?: string): Right[] {
  const within = namespace === undefined ? {} : { namespace };
  return table.flatMap(({ group, resources, verbs, names, why }) =>
    resources.flatMap((resource) =>
      verbs.flatMap((verb) =>
        (names?.(gatewayId) ?? [undefined]).map((name) => ({
          attributes: { ...within, group, resource, verb, ...(name === undefined ? {} : { name }) },
          why,
        })),
      ),
    ),
  );
}
