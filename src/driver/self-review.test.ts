import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { KubeClient, KubeObject, ListOptions, Resource } from "../kube/index.ts";
import {
  clusterPermissions,
  type Permission,
  sandboxNamespacePermissions,
  workspaceModePermissions,
  workspaceNamespacePermissions,
} from "../manifests/permissions.ts";
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

interface ClusterOptions {
  readonly served: string[];
  readonly denies: (question: Question) => boolean;
  /** Namespaces by their selector; one whose name has "gone" in it is being deleted. */
  readonly namespaces?: Readonly<
    Record<string, readonly (string | { readonly name: string; readonly labels: object })[]>
  >;
}

function cluster(options: ClusterOptions) {
  const asked: Question[] = [];
  const client: Pick<KubeClient, "apiVersionsOf" | "review" | "list"> = {
    apiVersionsOf: async () => options.served,
    list: async <T extends KubeObject>(_: Resource<T>, _namespace: string | undefined, call?: ListOptions) => ({
      items: (options.namespaces?.[call?.labelSelector ?? ""] ?? [])
        .map((each) => (typeof each === "string" ? { name: each } : each))
        .map((metadata) => ({
          metadata: {
            ...metadata,
            ...(metadata.name.includes("gone") ? { deletionTimestamp: "2026-01-01T00:00:00Z" } : {}),
          },
        })) as never[],
      resourceVersion: "1",
    }),
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

  /** Each question as one line, those about the sandboxes' own namespace left out. */
  const lines = (asked: readonly Question[]) =>
    asked
      .map(({ spec: { resourceAttributes: of } }) => of)
      .filter(({ namespace }) => namespace !== "agents")
      .map(
        ({ namespace = "*", verb, group, resource, name = "" }) => `${namespace} ${verb} ${group}/${resource} ${name}`,
      );
  const wanted = (table: readonly Permission[], namespace: string) =>
    table.flatMap(({ group, resources, verbs, names }) =>
      resources.flatMap((resource) =>
        verbs.flatMap((verb) =>
          (names?.("blue") ?? [""]).map((name) => `${namespace} ${verb} ${group}/${resource} ${name}`),
        ),
      ),
    );
  const blue = { namespace: "agents", gatewayId: "blue" } as const;

  it("asks in mode managed for the rights over the cluster's namespaces, and in each that the gateway made for what is bound there", async () => {
    const of = (name: string, workspace?: string) => ({
      name,
      labels: {
        "openshell.ai/gateway-id": "blue",
        ...(workspace === undefined ? {} : { "openshell.ai/workspace": workspace }),
      },
    });
    const ours = ["a", "b", "gone"].map((workspace) => of(`openshell-blue-${workspace}`, workspace));
    // The driver takes neither for a workspace's.
    const others = [of("openshell-blue-c"), of("elsewhere", "d")];
    const namespaces = { "openshell.ai/gateway-id=blue": [...ours, ...others] };
    const { asked, client } = cluster({ served: ["v1beta1"], denies: () => false, namespaces });
    const findings = await reviewCluster({ ...blue, workspaceMode: "managed", client });
    expect(lines(asked).sort()).toEqual(
      [
        ...wanted([...clusterPermissions, ...workspaceModePermissions.managed], "*"),
        ...["openshell-blue-a", "openshell-blue-b"].flatMap((name) =>
          wanted(workspaceNamespacePermissions.managed, name),
        ),
      ].sort(),
    );
    expect(findings.map(({ what }) => what)).toEqual(
      expect.arrayContaining([
        "may create namespaces in the cluster",
        "may bind clusterroles.rbac.authorization.k8s.io openshell-workspace-blue in the cluster",
        "may do what sandboxes of workspace namespace openshell-blue-b need (openshell.ai/gateway-id=blue)",
      ]),
    );
    expect(findings.filter(({ problem }) => problem !== undefined)).toEqual([]);
  });

  it("asks in mode operator in each namespace that has the label, and says what is missing where, and what to do", async () => {
    const { asked, client } = cluster({
      served: ["v1beta1"],
      denies: ({ spec: { resourceAttributes: of } }) =>
        of.namespace === "team-b" && (of.resource === "secrets" || of.verb === "patch"),
      namespaces: { "team=agents": ["team-a", "team-b"] },
    });
    const operator = { ...blue, workspaceMode: "operator", operatorNamespaceLabel: "team=agents", client } as const;
    const findings = await reviewCluster(operator);
    // It makes no ServiceAccount in a namespace of somebody else's.
    expect(lines(asked).filter((line) => line.includes("serviceaccounts"))).toEqual([
      "team-a get /serviceaccounts ",
      "team-b get /serviceaccounts ",
    ]);
    expect(findings.filter(({ problem }) => problem !== undefined)).toEqual([
      {
        what: "may do what sandboxes of workspace namespace team-b need (team=agents)",
        problem:
          "not allowed: patch sandboxes.agents.x-k8s.io, patch pods, create secrets, delete secrets, patch services, patch networkpolicies.networking.k8s.io openshell-workload-blue, patch networkpolicies.networking.k8s.io openshell-supervisor-blue; it takes a RoleBinding of ClusterRole openshell-workspace-blue to the gateway's ServiceAccount: install charts/openshell-workspace there",
      },
    ]);
  });

  it("asks in mode operator in each namespace of the file, and says when there is none", async () => {
    const folder = mkdtempSync(join(tmpdir(), "openshell-review-"));
    try {
      const file = join(folder, "namespaces.json");
      writeFileSync(file, `["team-c", "team--d", "${"w".repeat(20)}"]`);
      const { asked, client } = cluster({ served: ["v1beta1"], denies: () => false });
      const operator = { ...blue, workspaceMode: "operator", operatorNamespaceFile: file, client } as const;
      await reviewCluster(operator);
      // The driver leaves out what can be no workspace's name.
      const inNamespaces = lines(asked).map((line) => line.split(" ")[0]);
      expect([...new Set(inNamespaces)].sort()).toEqual(["*", "team-c"]);
      expect(lines(asked).filter((line) => /^\* \w+ \/namespaces /.test(line))).toEqual([]);
      writeFileSync(file, "[]");
      expect((await reviewCluster(operator)).at(-1)).toEqual({ what: `no namespace is a workspace yet (${file})` });
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
