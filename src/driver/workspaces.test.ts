import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import type { KubernetesSettings } from "../config/index.ts";
import {
  type AgentSandbox,
  type KubeObject,
  type Live,
  type NetworkPolicy,
  namespaces,
  type Pod,
  type RoleBinding,
  roleBindings,
} from "../kube/index.ts";
import {
  clusterPermissions,
  labels,
  managedNamespaceName,
  sandboxNamespacePermissions,
  workspaceModePermissions,
  workspaceNamespacePermissions,
} from "../manifests/index.ts";
import { compute } from "../wire/index.ts";
import { FakeCluster, refusal } from "./_fake-cluster.ts";
import { testSandboxId, testSettings } from "./_testing.ts";
import { driverOn, ready, settled } from "./_testing-driver.ts";
import { NamespacesFromFile } from "./allowed-namespaces.ts";
import { requireBounds } from "./managed-bounds.ts";
import { renderSandbox } from "./render.ts";
import { namespaceOf } from "./workspaces.ts";

const sandboxIn = (workspace: string, id = testSandboxId) => ({ id, name: "blue", workspace, spec: { template: {} } });
const managed: Partial<KubernetesSettings> = {
  workspace_mode: "managed",
  service_account_name: "openshell-sandbox",
  managed_namespaces: { pod_security: "restricted", labels: { team: "research" }, annotations: { note: "kept" } },
};
const operator: Partial<KubernetesSettings> = {
  workspace_mode: "operator",
  service_account_name: "openshell-sandbox",
  operator_namespace_label: "example.com/workspace=true",
};

const namesOf = (cluster: FakeCluster, plural: string, namespace: string) =>
  cluster
    .all(plural)
    .filter(({ metadata }) => metadata.namespace === namespace)
    .map(({ metadata }) => metadata.name)
    .sort();

describe("a managed workspace", () => {
  test("gets a namespace with Pod Security labels, a binding, a ServiceAccount and both fences; then a pair comes up in it", async () => {
    const cluster = new FakeCluster();
    const { client, during, reasons } = await driverOn(cluster, managed);
    await during(client.ensureWorkspace({ workspace: "team-a" }));
    const name = "openshell-openshell-team-a";
    expect(cluster.all("namespaces")).toMatchObject([
      {
        metadata: {
          name,
          labels: {
            team: "research",
            [labels.managedBy]: "openshell",
            [labels.gatewayId]: "openshell",
            [labels.workspace]: "team-a",
            "pod-security.kubernetes.io/enforce": "restricted",
            "pod-security.kubernetes.io/warn": "restricted",
            "pod-security.kubernetes.io/audit": "restricted",
          },
          annotations: { note: "kept" },
        },
      },
    ]);
    expect(cluster.all<RoleBinding>("rolebindings")).toMatchObject([
      {
        metadata: { namespace: name },
        roleRef: { kind: "ClusterRole", name: "openshell-workspace-openshell" },
        subjects: [{ kind: "ServiceAccount", name: "openshell", namespace: "openshell" }],
      },
    ]);
    expect(namesOf(cluster, "serviceaccounts", name)).toEqual(["openshell-sandbox"]);
    expect(namesOf(cluster, "networkpolicies", name)).toEqual([
      "openshell-supervisor-openshell",
      "openshell-workload-openshell",
    ]);
    cluster.calls.length = 0;
    const { runtimeIdentity } = await during(client.createSandbox({ sandbox: sandboxIn("team-a") }));
    expect(await reasons()).toEqual(ready);
    expect(runtimeIdentity).toMatch(new RegExp(`^kubernetes://${name}/team-a--blue/`));
    expect(cluster.writes().length, "a namespace that is ready costs a create nothing").toBe(9);
    expect(cluster.all<Pod>("pods").map(({ metadata }) => metadata.namespace)).toEqual([name, name]);
    const supervisor = cluster.all<Pod>("pods").find(({ metadata }) => metadata.name.startsWith("os-supervisor"));
    const endpoint = supervisor?.spec?.containers[0]?.env?.find((one) => one.name === "OPENSHELL_BOUNDARY_ENDPOINT");
    expect(endpoint?.value).toContain(`.${name}.svc:`);
  });

  test("that nobody asked for is made with its first sandbox, and a second gateway process finds all of it", async () => {
    const cluster = new FakeCluster();
    const first = await driverOn(cluster, managed);
    await first.during(first.client.createSandbox({ sandbox: sandboxIn("default") }));
    await first.stop();
    cluster.calls.length = 0;
    const second = await driverOn(cluster, managed);
    expect(await second.reasons()).toEqual(ready);
    expect(cluster.writes()).toEqual([]);
    // Whether the former process had come to an end with it is not asked but done, once.
    await second.during(second.client.ensureWorkspace({ workspace: "default" }));
    const once = cluster.writes().length;
    await second.during(second.client.ensureWorkspace({ workspace: "default" }));
    expect(cluster.writes().length).toBe(once);
  });

  test("is refused while sandboxes are in it, and goes with everything in it otherwise", async () => {
    const cluster = new FakeCluster();
    const { client, during } = await driverOn(cluster, managed);
    await during(client.createSandbox({ sandbox: sandboxIn("team-a") }));
    await expect(during(client.deleteWorkspace({ workspace: "team-a" }))).rejects.toMatchObject({
      code: "failed-precondition",
    });
    await during(client.deleteSandbox({ sandboxId: testSandboxId }));
    await during(client.deleteWorkspace({ workspace: "team-a" }));
    for (const plural of ["namespaces", "rolebindings", "serviceaccounts"]) expect(cluster.all(plural)).toEqual([]);
    await during(client.deleteWorkspace({ workspace: "team-a" }));
    await during(client.ensureWorkspace({ workspace: "team-a" }));
    expect(cluster.all("namespaces").length).toBe(1);
  });

  test("whose namespace belongs to somebody else is refused, and theirs is never deleted", async () => {
    const cluster = new FakeCluster();
    const { client, during } = await driverOn(cluster, managed);
    const theirs = { metadata: { name: managedNamespaceName("openshell", "team-a"), labels: { owner: "x" } } };
    cluster.place("namespaces", theirs);
    await expect(during(client.ensureWorkspace({ workspace: "team-a" }))).rejects.toMatchObject({
      code: "already-exists",
      message: expect.stringContaining("belongs to somebody else"),
    });
    await during(client.deleteWorkspace({ workspace: "team-a" }));
    expect(cluster.all("namespaces")).toMatchObject([theirs]);
  });

  test("whose namespace somebody else deletes takes its sandboxes along, although the rights in it go first", async () => {
    const cluster = new FakeCluster();
    const { client, driver, during } = await driverOn(cluster, managed);
    await during(client.createSandbox({ sandbox: sandboxIn("team-a") }));
    const isKnown = () =>
      client.getSandbox({ sandboxId: testSandboxId }).then(
        () => true,
        () => false,
      );
    cluster.beforeWrite = ({ resource }) => {
      if (resource === "sandboxes" || resource === "pods") throw refusal(403, "Forbidden", "no binding any more");
    };
    await cluster.delete(namespaces, undefined, "openshell-openshell-team-a");
    await settled(cluster, async () => !(await isKnown()));
    await settled(cluster, () => driver.depth() === 0);
  });

  test("that a crash left half made is made whole", async () => {
    const cluster = new FakeCluster();
    const first = await driverOn(cluster, managed);
    cluster.beforeWrite = ({ resource }) => {
      if (resource === "serviceaccounts") throw refusal(500, "InternalError", "the gateway dies here");
    };
    await expect(first.during(first.client.ensureWorkspace({ workspace: "team-a" }))).rejects.toThrow();
    cluster.beforeWrite = () => undefined;
    await first.stop();
    const second = await driverOn(cluster, managed);
    await second.during(second.client.createSandbox({ sandbox: sandboxIn("team-a") }));
    expect(await second.reasons()).toEqual(ready);
    expect(cluster.all("serviceaccounts").length).toBe(1);
  });

  test("whose rights somebody takes away has them again after the first sandbox that is refused for want of them", async () => {
    const cluster = new FakeCluster();
    const { client, during, reasons } = await driverOn(cluster, managed);
    await during(client.ensureWorkspace({ workspace: "team-a" }));
    const [binding] = cluster.all<KubeObject>("rolebindings");
    const { namespace = "", name = "" } = binding?.metadata ?? {};
    await cluster.delete(roleBindings, namespace, name);
    cluster.beforeWrite = ({ verb, resource }) => {
      if (verb !== "create" || resource !== "sandboxes" || cluster.all("rolebindings").length > 0) return;
      throw refusal(403, "Forbidden", 'sandboxes is forbidden: User "gateway" cannot create resource "sandboxes"');
    };
    const create = () => during(client.createSandbox({ sandbox: sandboxIn("team-a") }));
    await expect(create()).rejects.toMatchObject({ details: { reason: "PermissionDenied" } });
    await settled(cluster, () => cluster.all("rolebindings").length === 1);
    await create();
    expect(await reasons()).toEqual(ready);
  });

  test("keeps apart what is in it: a foreign policy ends the sandboxes of its namespace and of no other", async () => {
    const cluster = new FakeCluster();
    const { client, during, reasons } = await driverOn(cluster, managed);
    const other = "11111111-1111-4111-8111-111111111111";
    await during(client.createSandbox({ sandbox: sandboxIn("team-a") }));
    await during(client.createSandbox({ sandbox: sandboxIn("team-b", other) }));
    cluster.place("networkpolicies", {
      metadata: { name: "open", namespace: "openshell-openshell-team-a" },
      spec: { podSelector: {}, policyTypes: ["Egress"], egress: [{}] },
    } as NetworkPolicy & KubeObject & { metadata: { name: string } });
    await settled(cluster, async () => (await reasons())?.includes("ForeignNetworkPolicy") === true);
    expect(await reasons(other)).toEqual(ready);
  });

  test("a sandbox of the time before is started again where it is", async () => {
    const cluster = new FakeCluster();
    const first = await driverOn(cluster, {});
    await first.during(first.client.createSandbox({ sandbox: sandboxIn("default") }));
    await first.stop();
    const { client, during, reasons } = await driverOn(cluster, managed);
    expect(await reasons()).toEqual(ready);
    await during(client.stopSandbox({ sandboxId: testSandboxId }));
    await during(client.startSandbox({ sandboxId: testSandboxId, generationId: "g2" }));
    expect(await reasons()).toEqual(ready);
    expect(cluster.all<AgentSandbox>("sandboxes").map(({ metadata }) => metadata.namespace)).toEqual(["sandboxes"]);
  });

  test("every call is one that the tables grant", async () => {
    const cluster = new FakeCluster();
    const { client, during } = await driverOn(cluster, managed);
    await during(client.createSandbox({ sandbox: sandboxIn("team-a") }));
    await during(client.deleteSandbox({ sandboxId: testSandboxId }));
    await during(client.deleteWorkspace({ workspace: "team-a" }));
    const granted = [
      ...sandboxNamespacePermissions,
      ...workspaceNamespacePermissions.managed,
      ...clusterPermissions,
      ...workspaceModePermissions.managed,
    ];
    for (const { verb, group, resource } of cluster.calls) {
      // What everybody may ask about themselves.
      if (resource.startsWith("selfsubject")) continue;
      const isGranted = granted.some(
        (each) => each.group === group && each.resources.includes(resource) && each.verbs.includes(verb),
      );
      expect(isGranted, `${verb} ${group}/${resource}`).toBe(true);
    }
  });
});

describe("an operator's workspace", () => {
  const namespace = (change: object = {}) => ({
    metadata: { name: "team-a", labels: { "example.com/workspace": "true" }, ...change },
  });
  const account = { metadata: { name: "openshell-sandbox", namespace: "team-a" } };

  test("that was made ready takes a pair, and nothing of it is made or deleted but what is a sandbox's", async () => {
    const cluster = new FakeCluster();
    cluster.place("namespaces", namespace());
    cluster.place("serviceaccounts", account);
    const { client, during, reasons } = await driverOn(cluster, operator);
    await during(client.createSandbox({ sandbox: sandboxIn("team-a") }));
    expect(await reasons()).toEqual(ready);
    expect(cluster.all<Pod>("pods").map(({ metadata }) => metadata.namespace)).toEqual(["team-a", "team-a"]);
    await during(client.deleteSandbox({ sandboxId: testSandboxId }));
    await during(client.deleteWorkspace({ workspace: "team-a" }));
    expect(cluster.all("namespaces").length).toBe(1);
    expect(cluster.all("rolebindings")).toEqual([]);
  });

  test("without the label is refused in words, and taken as soon as it has it", async () => {
    const cluster = new FakeCluster();
    cluster.place("serviceaccounts", account);
    cluster.place("namespaces", namespace({ labels: {} }));
    const { client, during, reasons } = await driverOn(cluster, operator);
    const refused = {
      code: "failed-precondition",
      message:
        'workspace "team-a" has no namespace: an operator has to label namespace "team-a" with example.com/workspace=true',
      details: { reason: "WorkspaceNotReady" },
    };
    await expect(during(client.ensureWorkspace({ workspace: "team-a" }))).rejects.toMatchObject(refused);
    await expect(during(client.createSandbox({ sandbox: sandboxIn("team-a") }))).rejects.toMatchObject(refused);
    await expect(client.validateSandboxCreate({ sandbox: sandboxIn("team-a") })).rejects.toMatchObject(refused);
    const [bare] = cluster.all("namespaces");
    cluster.forget("namespaces", bare as Live<KubeObject>);
    cluster.place("namespaces", namespace());
    await cluster.settle();
    await during(client.createSandbox({ sandbox: sandboxIn("team-a") }));
    expect(await reasons()).toEqual(ready);
  });

  test("that lacks its prerequisites is refused with each of them named, and keeps nobody else from working", async () => {
    const cluster = new FakeCluster();
    cluster.place("namespaces", namespace());
    cluster.place("namespaces", namespace({ name: "team-b" }));
    cluster.place("serviceaccounts", { metadata: { name: "openshell-sandbox", namespace: "team-b" } });
    cluster.isAllowed = ({ namespace: asked, verb, resource }) =>
      asked !== "team-a" || (resource === "pods" && verb === "list");
    const { client, during, reasons } = await driverOn(cluster, operator);
    await expect(during(client.ensureWorkspace({ workspace: "team-a" }))).rejects.toMatchObject({
      code: "failed-precondition",
      message: expect.stringMatching(
        /^namespace "team-a" is not ready for sandboxes; it lacks a RoleBinding of ClusterRole "openshell-workspace-openshell" to the gateway's ServiceAccount \(it may not list sandboxes\.agents\.x-k8s\.io, .+ and \d+ more\), and the ServiceAccount "openshell-sandbox" \(service_account_name\)$/,
      ),
    });
    expect(cluster.all("networkpolicies").filter(({ metadata }) => metadata.namespace === "team-a")).toEqual([]);
    await during(client.createSandbox({ sandbox: sandboxIn("team-b") }));
    expect(await reasons()).toEqual(ready);
  });

  test("is found again by the next process, with its sandboxes", async () => {
    const cluster = new FakeCluster();
    cluster.place("namespaces", namespace());
    cluster.place("serviceaccounts", account);
    const first = await driverOn(cluster, operator);
    await first.during(first.client.createSandbox({ sandbox: sandboxIn("team-a") }));
    await first.stop();
    const { reasons } = await driverOn(cluster, operator);
    expect(await reasons()).toEqual(ready);
  });
});

describe("a gateway in managed mode whose rights nothing bounds", () => {
  const me = { kind: "ServiceAccount", name: "openshell", namespace: "openshell" } as const;
  const bounded = (client: FakeCluster, change: object = {}) =>
    requireBounds(
      { client, settings: testSettings({ ...managed, ...change }), gatewayId: "openshell" },
      me,
      AbortSignal.timeout(5_000),
      0,
    );

  test("does not run, and says what the cluster would let it do", async () => {
    const cluster = new FakeCluster();
    cluster.isGuarded = false;
    await expect(bounded(cluster)).rejects.toMatchObject({
      code: "failed-precondition",
      message:
        'workspace_mode = "managed" needs the ValidatingAdmissionPolicy of the chart (rbac.create), which bounds the gateway to its own namespaces; without it the cluster accepts a namespace "not-openshell-openshell-x", a binding of its role in kube-system, a namespace of Pod Security level privileged',
    });
    expect(["namespaces", "rolebindings"].flatMap((kind) => cluster.all(kind))).toEqual([]);
  });

  test("does not run for want of one of them", async () => {
    const cluster = new FakeCluster();
    const create = cluster.create.bind(cluster);
    cluster.create = async (resource, namespace, body, options) => {
      const level = body.metadata?.labels?.["pod-security.kubernetes.io/enforce"];
      cluster.isGuarded = level !== "privileged";
      return await create(resource, namespace, body, options);
    };
    await expect(bounded(cluster)).rejects.toThrow(/accepts a namespace of Pod Security level privileged$/);
    await bounded(cluster, { managed_namespaces: { pod_security: "privileged", labels: {}, annotations: {} } }).then(
      () => expect.fail("the foreign namespace is accepted now, too"),
      (error: Error) => expect(error.message).toMatch(/accepts a namespace "not-openshell-openshell-x"$/),
    );
  });

  test("waits at its start for a policy that is not in force yet", async () => {
    const cluster = new FakeCluster();
    cluster.isGuarded = false;
    let isUp = false;
    const starting = driverOn(cluster, managed).then(() => {
      isUp = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(isUp).toBe(false);
    cluster.isGuarded = true;
    await starting;
  });
});

test.each(["managed", "operator"] as const)(
  "a gateway without the rights of mode %s says which are missing",
  async (mode) => {
    const cluster = new FakeCluster();
    cluster.isAllowed = ({ resource, verb }) => resource !== "namespaces" || verb === "get";
    await expect(driverOn(cluster, mode === "managed" ? managed : operator)).rejects.toMatchObject({
      code: "failed-precondition",
      message: expect.stringMatching(
        new RegExp(`^workspace_mode = "${mode}" needs rights .*: list namespaces, watch namespaces`),
      ),
    });
  },
);

describe("a list of namespaces in a file", () => {
  test("is what the file says now, also after it could not be read", async () => {
    const folder = await mkdtemp(join(tmpdir(), "openshell-namespaces-"));
    const stop = new AbortController();
    onTestFinished(async () => {
      stop.abort();
      await rm(folder, { recursive: true });
    });
    const path = join(folder, "namespaces.json");
    const added: string[] = [];
    const settings = testSettings({ workspace_mode: "operator", operator_namespace_file: path });
    const onAdded = (name: string) => void added.push(name);
    const allowed = new NamespacesFromFile({ settings, log: pino({ level: "silent" }), onAdded }, 5);
    await expect(allowed.start(stop.signal)).rejects.toMatchObject({
      code: "failed-precondition",
      message: expect.stringContaining(`${path} is no JSON array of names of namespaces`),
    });
    await writeFile(path, '["team-a"]');
    await allowed.start(stop.signal);
    expect([allowed.has("team-a"), allowed.has("team-b")]).toEqual([true, false]);
    expect(allowed.remedy("team-b")).toBe(`add "team-b" to ${path}`);
    await writeFile(path, '["team-b"');
    await writeFile(path, `["team-b", "${"w".repeat(20)}"]`);
    // What can be no workspace is left out.
    await expect.poll(() => allowed.list()).toEqual(["team-b"]);
    await writeFile(path, '["team-b"]');
    await expect.poll(() => allowed.list()).toEqual(["team-b"]);
    expect(added).toEqual(["team-b"]);
  });

  test("is taken in place of a label, and asks for no right to all namespaces", async () => {
    const folder = await mkdtemp(join(tmpdir(), "openshell-namespaces-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const path = join(folder, "namespaces.json");
    await writeFile(path, '["team-a"]');
    const cluster = new FakeCluster();
    const range = { "openshift.io/sa.scc.uid-range": "1000650000/10000" };
    cluster.place("namespaces", { metadata: { name: "team-a", annotations: range } });
    cluster.isAllowed = ({ namespace }) => namespace === "team-a";
    cluster.place("serviceaccounts", { metadata: { name: "openshell-sandbox", namespace: "team-a" } });
    const settings = { ...operator, operator_namespace_label: "", operator_namespace_file: path };
    const { client, during, reasons } = await driverOn(cluster, settings);
    await during(client.createSandbox({ sandbox: sandboxIn("team-a") }));
    expect(await reasons()).toEqual(ready);
    await expect(during(client.ensureWorkspace({ workspace: "team-b" }))).rejects.toMatchObject({
      message: `workspace "team-b" has no namespace: an operator has to add "team-b" to ${path}`,
    });
    const ofNamespaces = cluster.calls.filter(({ resource }) => resource === "namespaces");
    expect(new Set(ofNamespaces.map(({ verb }) => verb)), "its own, which its binding allows").toEqual(
      new Set(["get"]),
    );
    const agent = cluster.all<Pod>("pods").find(({ metadata }) => metadata.name === "team-a--blue");
    expect(agent?.spec?.containers[0]?.securityContext?.runAsUser).toBe(1_000_650_000);
  });

  test("whose namespace was deleted and made again is looked at again after a refusal there", async () => {
    const folder = await mkdtemp(join(tmpdir(), "openshell-namespaces-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const path = join(folder, "namespaces.json");
    await writeFile(path, '["team-a"]');
    const cluster = new FakeCluster();
    const place = (range: string) =>
      cluster.place("namespaces", {
        metadata: { name: "team-a", annotations: { "openshift.io/sa.scc.uid-range": range } },
      });
    const furnish = () =>
      cluster.place("serviceaccounts", { metadata: { name: "openshell-sandbox", namespace: "team-a" } });
    place("1000650000/10000");
    furnish();
    const settings = { ...operator, operator_namespace_label: "", operator_namespace_file: path };
    const { client, during, reasons } = await driverOn(cluster, settings);
    await during(client.createSandbox({ sandbox: sandboxIn("team-a") }));
    await cluster.delete(namespaces, undefined, "team-a");
    await settled(cluster, async () => (await client.listSandboxes({})).sandboxes.length === 0);

    place("1000990000/10000");
    cluster.isAllowed = ({ namespace }) => namespace !== "team-a";
    cluster.beforeWrite = ({ resource }) => {
      if (resource === "sandboxes")
        throw refusal(403, "Forbidden", 'sandboxes is forbidden: User "gateway" cannot create resource');
    };
    await expect(during(client.createSandbox({ sandbox: sandboxIn("team-a") }))).rejects.toMatchObject({
      details: { reason: "PermissionDenied" },
    });
    await expect(during(client.createSandbox({ sandbox: sandboxIn("team-a") }))).rejects.toMatchObject({
      message: expect.stringMatching(
        /^namespace "team-a" is not ready for sandboxes; it lacks a RoleBinding of .*ServiceAccount/,
      ),
    });

    cluster.isAllowed = () => true;
    cluster.beforeWrite = () => undefined;
    furnish();
    await during(client.createSandbox({ sandbox: sandboxIn("team-a") }));
    expect(await reasons()).toEqual(ready);
    const agent = cluster.all<Pod>("pods").find(({ metadata }) => metadata.name === "team-a--blue");
    expect(agent?.spec?.containers[0]?.securityContext?.runAsUser).toBe(1_000_990_000);
  });
});

describe("the namespace of a workspace", () => {
  test.each<[Partial<KubernetesSettings>, string]>([
    [{}, "sandboxes"],
    [managed, "openshell-openshell-team-a"],
    [operator, "team-a"],
  ])("is known without a cluster, as render prints it (%o)", (change, expected) => {
    const settings = testSettings(change);
    expect(namespaceOf(settings, "openshell", "team-a")).toBe(expected);
    const sandbox = compute.DriverSandboxSchema;
    const objects = renderSandbox(settings, { id: "openshell", endpoint: "https://g:1" }, {
      $typeName: sandbox.typeName,
      ...sandboxIn("team-a"),
    } as unknown as compute.DriverSandbox);
    expect([...new Set(objects.map(({ metadata }) => metadata.namespace))]).toEqual([expected]);
  });

  test("of the longest names fits", () => {
    expect(managedNamespaceName("g".repeat(33), "w".repeat(19)).length).toBe(63);
  });
});
