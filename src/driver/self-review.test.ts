import { describe, expect, it } from "vitest";
import type { KubeClient, KubeObject, Resource } from "../kube/index.ts";
import { clusterPermissions, sandboxNamespacePermissions } from "../manifests/permissions.ts";
import { reviewCluster } from "./self-review.ts";

interface Attributes {
  readonly namespace?: string;
  readonly group: string;
  readonly resource: string;
  readonly verb: string;
  readonly name?: string;
}

interface Question {
  readonly spec: { readonly resourceAttributes: Attributes };
}

function cluster(options: { served: string[]; denies: (question: Question) => boolean }) {
  const asked: Question[] = [];
  const client: Pick<KubeClient, "apiVersionsOf" | "review"> = {
    apiVersionsOf: async () => options.served,
    review: async <T extends KubeObject>(_: Resource<T>, body: T) => {
      const question = body as unknown as Question;
      asked.push(question);
      return { ...body, status: { allowed: !options.denies(question) } } as T;
    },
  };
  return { asked, client };
}

describe("the review of the cluster", () => {
  it("asks for every verb of the permission table", async () => {
    const { asked, client } = cluster({ served: ["v1alpha1"], denies: () => false });
    const findings = await reviewCluster({ namespace: "agents", gatewayId: "blue", client });
    const wanted = [...sandboxNamespacePermissions, ...clusterPermissions].flatMap(({ resources, verbs, names }) =>
      resources.flatMap(() => verbs.flatMap((verb) => names?.("blue").map((name) => `${verb} ${name}`) ?? [verb])),
    );
    expect(asked).toHaveLength(wanted.length);
    expect(findings.filter(({ problem }) => problem !== undefined)).toEqual([]);
    expect(findings[0]).toEqual({ what: "agents.x-k8s.io/v1alpha1 is served" });
    expect(asked.map(({ spec }) => spec.resourceAttributes)).toContainEqual({
      namespace: "agents",
      group: "",
      resource: "secrets",
      verb: "create",
    });
    expect(asked.map(({ spec }) => spec.resourceAttributes)).toContainEqual({
      namespace: "agents",
      group: "coordination.k8s.io",
      resource: "leases",
      verb: "patch",
      name: "openshell-driver-blue",
    });
    expect(asked.map(({ spec }) => spec.resourceAttributes)).toContainEqual({
      group: "authentication.k8s.io",
      resource: "tokenreviews",
      verb: "create",
    });
  });

  it("says which right is missing, and what for", async () => {
    const { client } = cluster({
      served: ["v1beta1"],
      denies: ({ spec }) => spec.resourceAttributes.resource === "pods" && spec.resourceAttributes.verb === "patch",
    });
    const findings = await reviewCluster({ namespace: "agents", gatewayId: "blue", client });
    expect(findings.filter(({ problem }) => problem !== undefined)).toEqual([
      {
        what: "may patch pods in agents",
        problem:
          "not allowed, but supervisor Pods are made and deleted; both Pods are read back, and their gate is removed by patch; apply the chart's Role and ClusterRole (rbac.create)",
      },
    ]);
  });

  it("says that Agent Sandbox is missing", async () => {
    const { client } = cluster({ served: ["v9"], denies: () => false });
    const [first] = await reviewCluster({ namespace: "agents", gatewayId: "blue", client });
    expect(first?.problem).toBe("the cluster serves none of v1beta1, v1alpha1; install Agent Sandbox");
  });
});
