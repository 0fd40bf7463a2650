/** Asks the cluster what it gives the driver: the half of `openshell-gateway selftest` that needs Kubernetes. */
import {
  agentSandboxGroup,
  agentSandboxVersions,
  createKubeClient,
  type KubeClient,
  type KubeObject,
  type Resource,
} from "../kube/index.ts";
import { clusterPermissions, type Permission, sandboxNamespacePermissions } from "../manifests/permissions.ts";

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
  /** A kubeconfig file. @default the Pod's own access */
  readonly kubeconfig?: string;
  /** @default one that is made for the review */
  readonly client?: Pick<KubeClient, "apiVersionsOf" | "review">;
  readonly signal?: AbortSignal;
}

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
 * Every verb of the permission table, and the Agent Sandbox API, as the cluster answers for the identity that asks.
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

async function review(client: Pick<KubeClient, "apiVersionsOf" | "review">, options: SelfReviewOptions) {
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
    ...rightsIn(sandboxNamespacePermissions, options.gatewayId, options.namespace),
    ...rightsIn(clusterPermissions, options.gatewayId),
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
  );
}

/** Rights of a table that the one who asks does not have in a namespace, or in the cluster, in words. */
export async function deniedRights(
  client: Pick<KubeClient, "review">,
  table: readonly Permission[],
  gatewayId: string,
  namespace: string | undefined,
  signal: AbortSignal,
): Promise<string[]> {
  const asked = rightsIn(table, gatewayId, namespace).map(async (right) =>
    (await isAllowed(client, right, { signal })) ? [] : [wordsOf(right)],
  );
  return (await Promise.all(asked)).flat();
}

async function isAllowed(client: Pick<KubeClient, "review">, { attributes }: Right, call: { signal?: AbortSignal }) {
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
