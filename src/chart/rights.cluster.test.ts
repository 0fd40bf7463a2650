/** What the gateway's ServiceAccount may do on a real cluster: what the driver needs, and nothing to anybody else. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { clusterPermissions, type Permission, sandboxNamespacePermissions } from "../manifests/permissions.ts";
import { apply, type Caller, callerWith, cleanUp, describeOnCluster, kubectl, list, tryKubectl } from "./_cluster.ts";
import { find, helmPrograms, type Rendered, render, repository, runProgram, testNames } from "./_helm.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const namespace = `openshell-rights-${process.pid}`;
const sandboxes = `${namespace}-sandboxes`;
const gatewayId = "blue";

interface Rule {
  readonly verbs: readonly string[];
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly resourceNames?: readonly string[];
}

/** One line for each thing that a rule lets its holder do. */
const rightsOf = (rules: readonly Rule[]) =>
  rules.flatMap(({ verbs, apiGroups, resources, resourceNames = [""] }) =>
    apiGroups.flatMap((group) =>
      resources.flatMap((resource) =>
        resourceNames.flatMap((name) => verbs.map((verb) => `${verb} ${group}/${resource} ${name}`.trim())),
      ),
    ),
  );

const rightsIn = (table: readonly Permission[]) =>
  rightsOf(
    table.map(({ group, resources, verbs, names }) => ({
      verbs,
      apiGroups: [group],
      resources,
      ...(names === undefined ? {} : { resourceNames: names(gatewayId) }),
    })),
  );

const core = (where: string) => `/api/v1/namespaces/${where}`;
const of = (group: string, where: string) => `/apis/${group}/namespaces/${where}`;
const rbac = "rbac.authorization.k8s.io/v1";
const named = (name: string) => ({ metadata: { name } });
const everything = [{ apiGroups: ["*"], resources: ["*"], verbs: ["*"] }];

describeOnCluster("the gateway's ServiceAccount", () => {
  let asGateway: Caller;
  let asNobody: Caller;
  let objects: Rendered[];

  beforeAll(() => {
    const values = { gatewayConfig: { "openshell.drivers.kubernetes": { gateway_id: gatewayId } } };
    const rights = /^(ServiceAccount|(Cluster)?Role(Binding)?)$/;
    objects = render(helmPrograms[0] ?? "", { presets: ["conformance", "argocd"], namespace, values }).filter(
      ({ kind }) => rights.test(kind),
    );
    for (const name of [namespace, sandboxes]) kubectl(["create", "namespace", name]);
    expect(apply(objects).stderr).toBe("");
    kubectl(["create", "serviceaccount", "nobody", "-n", namespace]);
    const caller = (account: string) => callerWith(kubectl(["create", "token", account, "-n", namespace]).trim());
    asGateway = caller("openshell");
    asNobody = caller("nobody");
  });

  afterAll(() =>
    cleanUp(
      () => tryKubectl(["delete", "--ignore-not-found", "--wait=false", "-f", "-"], list(objects)),
      () => tryKubectl(["delete", "namespace", "--ignore-not-found", "--wait=false", namespace, sandboxes]),
    ),
  );

  const review = async (as: Caller, where: string) => {
    const { status, body } = await as("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {
      spec: { namespace: where },
    });
    expect(status).toBe(201);
    return rightsOf(body.status.resourceRules);
  };
  /** What it may do there beyond what every ServiceAccount of the cluster may. */
  const ownRights = async (where: string) => {
    const common = new Set(await review(asNobody, where));
    return (await review(asGateway, where)).filter((right) => !common.has(right)).sort();
  };

  it("may do every verb of the table in the sandboxes' namespace, and no other", async () => {
    const wanted = [...rightsIn(sandboxNamespacePermissions), ...rightsIn(clusterPermissions)];
    expect(await ownRights(sandboxes)).toEqual([...new Set(wanted)].sort());
  });

  it.each(["kube-system", "default", namespace])("may do in %s what it may do in the whole cluster", async (where) => {
    expect(await ownRights(where)).toEqual(rightsIn(clusterPermissions).sort());
  });

  it("is allowed each verb that the driver uses, by the cluster's own answer", () => {
    const user = `system:serviceaccount:${namespace}:openshell`;
    const questions = [
      ...sandboxNamespacePermissions.map((row) => ({ row, where: sandboxes })),
      ...clusterPermissions.map((row) => ({ row, where: undefined })),
    ].flatMap(({ row: { group, resources, verbs, names }, where }) =>
      resources.flatMap((resource) =>
        verbs.flatMap((verb) =>
          (names?.(gatewayId) ?? [undefined]).map((name) => ({
            apiVersion: "authorization.k8s.io/v1",
            kind: "SubjectAccessReview",
            metadata: { name: "" },
            spec: { user, resourceAttributes: { group, resource, verb, namespace: where, name } },
          })),
        ),
      ),
    );
    const line = '{.status.allowed} {.spec.resourceAttributes.verb} {.spec.resourceAttributes.resource}{"\\n"}';
    const answers = kubectl(["create", "-f", "-", "-o", `jsonpath=${line}`], list(questions))
      .trim()
      .split("\n");
    expect(answers.filter((answer) => !answer.startsWith("true "))).toEqual([]);
    expect(answers).toHaveLength(questions.length);
  });

  it("writes and deletes a generation's Secret, and holds its Lease, with its own token", async () => {
    const secrets = `${core(sandboxes)}/secrets`;
    expect((await asGateway("POST", secrets, { ...named("os-workload-x"), stringData: { a: "b" } })).status).toBe(201);
    expect((await asGateway("GET", `${secrets}/os-workload-x`)).status, "never read").toBe(403);
    expect((await asGateway("DELETE", `${secrets}/os-workload-x`)).status).toBe(200);
    const leases = `${of("coordination.k8s.io/v1", sandboxes)}/leases`;
    const lease = `openshell-driver-${gatewayId}`;
    expect((await asGateway("POST", leases, named(lease))).status).toBe(201);
    expect((await asGateway("PATCH", `${leases}/${lease}`, { spec: { holderIdentity: "x" } })).status).toBe(200);
    expect((await asGateway("GET", `${leases}/${lease}`)).body.spec).toEqual({ holderIdentity: "x" });
    expect((await asGateway("GET", core(sandboxes))).body.metadata.name).toBe(sandboxes);
  });

  describe("attacks", () => {
    const pod = {
      ...named("attack"),
      spec: { containers: [{ name: "x", image: "x", securityContext: { privileged: true } }] },
    };
    const binding = {
      ...named("attack"),
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "cluster-admin" },
      subjects: [{ kind: "ServiceAccount", name: "openshell", namespace }],
    };
    const attacks = (where: string): [string, string, unknown?][] => [
      ["GET", `${core(where)}/secrets`],
      ["GET", `${core(where)}/secrets/openshell-keys`],
      ["POST", `${core(where)}/secrets`, named("attack")],
      ["DELETE", `${core(where)}/secrets/openshell-keys`],
      ["GET", `${core(where)}/pods`],
      ["POST", `${core(where)}/pods`, pod],
      ["PATCH", `${core(where)}/pods/attack`, { metadata: { labels: { a: "b" } } }],
      ["DELETE", `${core(where)}/pods/attack`],
      ["POST", `${core(where)}/pods/attack/exec?command=id&stdout=true`],
      ["GET", `${core(where)}/configmaps`],
      ["POST", `${core(where)}/serviceaccounts/default/token`, { spec: {} }],
      ["POST", `${of(rbac, where)}/roles`, { ...named("attack"), rules: everything }],
      ["POST", `${of(rbac, where)}/rolebindings`, binding],
      ["PATCH", `${of(rbac, where)}/roles/openshell-driver`, { rules: everything }],
      ["PATCH", `${of("networking.k8s.io/v1", where)}/networkpolicies/attack`, { spec: { podSelector: {} } }],
      ["DELETE", `${of("networking.k8s.io/v1", where)}/networkpolicies/attack`],
      ["PATCH", `${of("coordination.k8s.io/v1", where)}/leases/kube-scheduler`, { spec: { holderIdentity: "x" } }],
      ["DELETE", core(where)],
      ["PATCH", core(where), { metadata: { labels: { "pod-security.kubernetes.io/enforce": "privileged" } } }],
    ];
    const answers = async (of: readonly [string, string, unknown?][]) =>
      Promise.all(of.map(async ([method, path, body]) => `${(await asGateway(method, path, body)).status} ${path}`));
    const refused = (of: readonly [string, string, unknown?][]) => of.map(([, path]) => `403 ${path}`);

    it.each(["kube-system", namespace])("%s in vain", async (where) => {
      expect(await answers(attacks(where))).toEqual(refused(attacks(where)));
    });

    it("the cluster itself in vain", async () => {
      const clusterWide: [string, string, unknown?][] = [
        ["GET", "/api/v1/secrets"],
        ["GET", "/api/v1/pods"],
        ["GET", "/api/v1/namespaces"],
        ["POST", "/api/v1/namespaces", named(`${namespace}-attack`)],
        ["POST", `/apis/${rbac}/clusterroles`, { ...named(`${namespace}-attack`), rules: everything }],
        ["POST", `/apis/${rbac}/clusterrolebindings`, { ...binding, ...named(`${namespace}-attack`) }],
        ["PATCH", `/apis/${rbac}/clusterroles/openshell-driver-${namespace}`, { rules: everything }],
        ["PATCH", "/api/v1/nodes/none", { metadata: { labels: { a: "b" } } }],
        ["GET", "/api/v1/nodes/none/proxy/pods"],
      ];
      expect(await answers(clusterWide)).toEqual(refused(clusterWide));
    });

    it("the sandboxes' own namespace in vain, where it does not concern the driver", async () => {
      const inside: [string, string, unknown?][] = [
        ["GET", `${core(sandboxes)}/secrets`],
        ["POST", `${core(sandboxes)}/pods/attack/exec?command=id&stdout=true`],
        ["PATCH", `${core(sandboxes)}/pods/attack/ephemeralcontainers`, { spec: {} }],
        ["POST", `${core(sandboxes)}/serviceaccounts/default/token`, { spec: {} }],
        ["POST", `${of(rbac, sandboxes)}/rolebindings`, binding],
        ["PATCH", `${of(rbac, sandboxes)}/roles/openshell-driver`, { rules: everything }],
        ["PATCH", `${of("networking.k8s.io/v1", sandboxes)}/networkpolicies/default-deny`, { spec: {} }],
        ["GET", `${of("coordination.k8s.io/v1", sandboxes)}/leases/openshell-driver-green`],
        ["PATCH", core(sandboxes), { metadata: { labels: { "pod-security.kubernetes.io/enforce": "privileged" } } }],
      ];
      expect(await answers(inside)).toEqual(refused(inside));
    });
  });

  describe("in a mode with namespaces of workspaces", () => {
    const id = `rights-${process.pid}`;
    const operatorLabel = `rights.openshell.test/${process.pid}`;
    const made: Rendered[] = [];
    const workspaces: string[] = [];
    let folder: string;

    beforeAll(() => {
      folder = mkdtempSync(join(tmpdir(), "openshell-rights-"));
    });

    afterAll(() =>
      cleanUp(
        () => tryKubectl(["delete", "--ignore-not-found", "--wait=false", "-f", "-"], list(made)),
        () => tryKubectl(["delete", "namespace", "--ignore-not-found", "--wait=false", ...workspaces]),
        () => rmSync(folder, { recursive: true, force: true }),
      ),
    );

    /** The chart's rights in a mode, in force; what is returned runs the chart's own review with the gateway's token. */
    function inMode(mode: object): () => string[] {
      const values = { gatewayConfig: { "openshell.drivers.kubernetes": { gateway_id: id, ...mode } } };
      const all = render(helmPrograms[0] ?? "", { presets: ["conformance"], namespace, values });
      const [pod] = find(all, "Pod", testNames.rights).spec.containers;
      const ofMode = all.filter(
        ({ kind, metadata }) => metadata.annotations === undefined && /^(Cluster)?Role(Binding)?$/.test(kind),
      );
      made.push(...ofMode);
      expect(apply(ofMode).stderr).toBe("");
      // The gateway itself is not there.
      const args = [
        ...pod.args.filter((each: string) => !/^--(tls|ca=|endpoint=)/.test(each)),
        "--endpoint=127.0.0.1:1",
      ];
      const config = JSON.parse(kubectl(["config", "view", "--minify", "--flatten", "--raw", "-o", "json"]));
      const token = kubectl(["create", "token", "openshell", "-n", namespace]).trim();
      const file = join(folder, "kubeconfig");
      writeFileSync(file, JSON.stringify({ ...config, users: [{ name: config.users[0].name, user: { token } }] }));
      return () => {
        const main = join(repository, "src", "gateway", "main.ts");
        const env = {
          ...process.env,
          KUBECONFIG: file,
          NODE_COMPILE_CACHE: join(repository, "node_modules", ".cache", "node"),
        };
        const { stdout, stderr } = runProgram(process.execPath, [main, ...args], env);
        if (stdout === "") throw new Error(stderr);
        return stdout.split("\n").filter((line) => line !== "" && !line.includes("health of 127.0.0.1:1"));
      };
    }

    function makeNamespace(name: string, ...labels: readonly string[]): void {
      workspaces.push(name);
      kubectl(["create", "namespace", name]);
      kubectl(["label", "namespace", name, ...labels]);
    }

    /** charts/openshell-workspace, as an operator installs it. */
    function installWorkspace(where: string): void {
      const values = { gateway: { id, serviceAccount: { name: "openshell", namespace } } };
      const chart = join(repository, "charts", "openshell-workspace");
      expect(apply(render(helmPrograms[0] ?? "", { chart, namespace: where, values })).stderr).toBe("");
    }

    const failed = (lines: readonly string[]) => lines.filter((line) => !line.startsWith("ok "));

    it("operator is found by `helm test` to have what it needs, once charts/openshell-workspace is in each namespace", () => {
      const team = `${namespace}-team`;
      const review = inMode({ workspace_mode: "operator", operator_namespace_label: operatorLabel });
      makeNamespace(team, `${operatorLabel}=`);
      const before = review();
      expect(before).toContain("ok    may watch namespaces in the cluster");
      const [complaint, ...others] = failed(before);
      expect(others).toEqual([]);
      expect(complaint).toContain(`workspace namespace ${team} need (${operatorLabel}): not allowed: list sandboxes`);
      expect(complaint).toContain(`ClusterRole openshell-workspace-${id}`);
      installWorkspace(team);
      const lines = review();
      expect(failed(lines)).toEqual([]);
      expect(lines).toContain(`ok    may do what sandboxes of workspace namespace ${team} need (${operatorLabel})`);
    });

    it("managed is found by `helm test` to have its rights in the cluster and in the namespaces that it made", () => {
      const label = `openshell.ai/gateway-id=${id}`;
      const namespaceOfWorkspace = `openshell-${id}-a`;
      makeNamespace(namespaceOfWorkspace, label, "openshell.ai/workspace=a");
      installWorkspace(namespaceOfWorkspace);
      const lines = inMode({ workspace_mode: "managed" })();
      expect(failed(lines)).toEqual([]);
      expect(lines).toContain("ok    may create namespaces in the cluster");
      expect(lines).toContain(
        `ok    may bind clusterroles.rbac.authorization.k8s.io openshell-workspace-${id} in the cluster`,
      );
      expect(lines).toContain(
        `ok    may do what sandboxes of workspace namespace ${namespaceOfWorkspace} need (${label})`,
      );
    });
  });
});
