import { randomBytes } from "node:crypto";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { referenceOf } from "../../images/references.ts";
import { namespaces, networkPolicies, pods } from "../../src/kube/index.ts";
import { labels, managedNamespaceName, workspaceRoleName } from "../../src/manifests/index.ts";
import { clients, kubectl } from "../cluster/clients.ts";
import { run } from "../cluster/exec.ts";
import { Conformance, randomName, tables } from "../support/conformance.ts";
import { workerRelease } from "../support/release.ts";
import { TestSandbox } from "../support/test-sandbox.ts";
import { modesGatewayId, operatorLabel, operatorNamespace } from "../support/workspace-mode.ts";

const release = workerRelease();
/** Namespaces of managed mode are the cluster's, so that no other gateway may have this id. */
const gatewayId = modesGatewayId(release);
const gatewayAccount = `system:serviceaccount:${release.namespace}:${release.name}`;
/** A namespace that is nobody's. */
const bystander = `bystander-${release.name}`;
const sandboxAccount = `${release.name}-sandbox`;

const settings = (mode: object) => ({
  [tables.driver]: { gateway_id: gatewayId, ...mode },
  [tables.runtime]: { pod_anti_affinity: "required" },
});
const newName = () => `w-${randomBytes(5).toString("hex")}`;

let suite: Conformance;

async function pairIn(workspace: string): Promise<TestSandbox> {
  const spec = { template: { image: referenceOf("busybox") } };
  return TestSandbox.create(() => suite.gateway.client, randomName(), spec, workspace);
}

/** The two Pods of a workspace's only sandbox. */
async function podsIn(namespace: string) {
  const { items } = await suite.kube.list(pods, namespace, { labelSelector: `${labels.gatewayId}=${gatewayId}` });
  return items;
}

async function expectPairApart(namespace: string, sandbox: TestSandbox): Promise<void> {
  await sandbox.ready();
  expect(await sandbox.exec(["cat", "/sandbox/seed.txt"])).toMatchObject({ exitCode: 0 });
  const both = await podsIn(namespace);
  expect(both.map(({ metadata }) => metadata.labels?.[labels.boundaryRole]).sort()).toEqual(["supervisor", "workload"]);
  expect(new Set(both.map(({ spec }) => spec?.nodeName)).size, "required placement: two nodes").toBe(2);
}

describe("workspace_mode managed", () => {
  beforeAll(async () => {
    suite = await Conformance.open(settings({ workspace_mode: "managed" }));
    const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: bystander } };
    await suite.kubectl(["apply", "-f", "-"], { input: JSON.stringify(namespace) });
  });

  afterAll(async () => {
    await suite?.[Symbol.asyncDispose]();
    const where = inject("kubeconfig");
    await kubectl(where, ["delete", "namespace", "-l", `${labels.gatewayId}=${gatewayId}`, "--timeout=120s"]);
    await kubectl(where, ["delete", "namespace", bystander, "--ignore-not-found", "--timeout=120s"]);
  });

  it("makes a namespace with its workspace, runs a pair in it on two nodes, and deletes it with the workspace", async () => {
    const workspace = newName();
    const name = managedNamespaceName(gatewayId, workspace);
    await suite.gateway.client.createWorkspace({ name: workspace }, { timeoutMs: 30_000 });
    const namespace = await suite.kube.get(namespaces, undefined, name);
    expect(namespace.metadata.labels).toMatchObject({
      [labels.gatewayId]: gatewayId,
      [labels.workspace]: workspace,
      "pod-security.kubernetes.io/enforce": "restricted",
    });
    const policies = await suite.kube.list(networkPolicies, name);
    expect(policies.items.map(({ metadata }) => metadata.name).sort()).toEqual([
      `openshell-supervisor-${gatewayId}`,
      `openshell-workload-${gatewayId}`,
    ]);
    const sandbox = await pairIn(workspace);
    await expectPairApart(name, sandbox);
    expect(await podsIn(release.sandboxNamespace)).toEqual([]);

    await sandbox.stop();
    await sandbox.start();
    await expectPairApart(name, sandbox);

    await expect(
      suite.gateway.client.deleteWorkspace({ name: workspace }, { timeoutMs: 60_000 }),
    ).rejects.toMatchObject({
      code: "failed-precondition",
    });
    await sandbox[Symbol.asyncDispose]();
    await suite.gateway.client.deleteWorkspace({ name: workspace }, { timeoutMs: 60_000 });
    const left = () => suite.kube.find(namespaces, undefined, name);
    await expect.poll(left, { timeout: 60_000, interval: 250 }).toBeUndefined();
    await expect
      .poll(() => suite.gateway.client.getWorkspace({ name: workspace }).catch(({ code }) => code), { timeout: 30_000 })
      .toBe("not-found");
  });

  it("makes the namespace of workspace default with the first sandbox in it, and finds it again after a restart", async () => {
    await using sandbox = await pairIn("default");
    const name = managedNamespaceName(gatewayId, "default");
    await expectPairApart(name, sandbox);
    const before = (await podsIn(name)).map(({ metadata }) => metadata.uid).sort();
    await suite.kubectl(["delete", "pod", "-n", release.namespace, `${release.name}-0`]);
    await suite.gateway.reconnect();
    await sandbox.ready();
    expect((await podsIn(name)).map(({ metadata }) => metadata.uid).sort()).toEqual(before);
  });

  const inKubeSystem = (object: object) => ({ metadata: { name: "attack", namespace: "kube-system" }, ...object });
  const rbac = "rbac.authorization.k8s.io";
  const bindingOf = (role: string, user = gatewayAccount) => ({
    apiVersion: `${rbac}/v1`,
    kind: "RoleBinding",
    roleRef: { apiGroup: rbac, kind: "ClusterRole", name: role },
    subjects: [{ kind: "User", name: user, apiGroup: rbac }],
  });
  const namespaceWith = (level: object) => ({
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name: managedNamespaceName(gatewayId, "attack"), labels: { [labels.gatewayId]: gatewayId, ...level } },
  });
  const enforce = "pod-security.kubernetes.io/enforce";
  it.each<[string, object, RegExp]>([
    [
      "its own role in kube-system",
      inKubeSystem(bindingOf(workspaceRoleName(gatewayId))),
      /binds only the ClusterRole/,
    ],
    ["cluster-admin", inKubeSystem(bindingOf("cluster-admin")), /forbidden/],
    [
      "a namespace of another name",
      { apiVersion: "v1", kind: "Namespace", metadata: { name: "attack" } },
      /makes and deletes only/,
    ],
    [
      "a namespace without its label",
      { apiVersion: "v1", kind: "Namespace", metadata: { name: managedNamespaceName(gatewayId, "attack") } },
      /makes and deletes only/,
    ],
    ["a namespace of its own without Pod Security", namespaceWith({}), /Pod Security level restricted/],
    [
      "a namespace of its own in which a Pod may be root on its node",
      namespaceWith({ [enforce]: "privileged" }),
      /Pod Security level restricted/,
    ],
    [
      "a namespace of its own with the level of an old version",
      namespaceWith({ [enforce]: "restricted", [`${enforce}-version`]: "v1.0" }),
      /Pod Security level restricted/,
    ],
    [
      "its role somebody else's, in its own namespace",
      {
        metadata: { name: "attack", namespace: managedNamespaceName(gatewayId, "default") },
        ...bindingOf(workspaceRoleName(gatewayId), "mallory"),
      },
      /gives rights to nobody but itself/,
    ],
    [
      "a Pod in kube-system",
      inKubeSystem({ apiVersion: "v1", kind: "Pod", spec: { containers: [{ name: "a", image: "a" }] } }),
      /forbidden/,
    ],
  ])("gives the gateway no way to make %s", async (_what, object, refusal) => {
    const args = ["create", "-f", "-", "--dry-run=server", "--as", gatewayAccount];
    const { code, stderr } = await suite.kubectlAttempt(args, { input: JSON.stringify(object) });
    expect(code).not.toBe(0);
    expect(stderr).toMatch(refusal);
  });

  it.each([
    [["delete", "namespace", bystander], /makes and deletes only/],
    [["delete", "namespace", release.sandboxNamespace], /makes and deletes only/],
    [["delete", "namespace", release.namespace], /makes and deletes only/],
    [["get", "secrets", "-n", managedNamespaceName(gatewayId, "default")], /forbidden/],
    [["get", "pods", "-n", "kube-system"], /forbidden/],
  ])("gives the gateway no way to %s", async (args, refusal) => {
    const dry = args[0] === "delete" ? ["--dry-run=server"] : [];
    const { code, stderr } = await suite.kubectlAttempt([...args, ...dry, "--as", gatewayAccount]);
    expect(code).not.toBe(0);
    expect(stderr).toMatch(refusal);
  });
});

describe("workspace_mode operator", () => {
  const workspace = newName();

  beforeAll(async () => {
    const label = `${operatorLabel}=true`;
    suite = await Conformance.open(settings({ workspace_mode: "operator", operator_namespace_label: label }));
  });

  afterAll(async () => {
    await suite?.[Symbol.asyncDispose]();
    const where = inject("kubeconfig");
    await kubectl(where, ["delete", "namespace", "-l", operatorLabel, "--timeout=120s"]);
  });

  const create = (name: string) => suite.gateway.client.createWorkspace({ name }, { timeoutMs: 30_000 });

  it("refuses a workspace that no operator has labelled a namespace for", async () => {
    const name = newName();
    await expect(create(name)).rejects.toMatchObject({
      code: "failed-precondition",
      message: expect.stringContaining(`an operator has to label namespace "${name}" with ${operatorLabel}=true`),
    });
  });

  /** As docs/workspace-modes.md has an operator do it. */
  async function installWorkspaceChart(namespace: string): Promise<void> {
    const values = {
      "gateway.id": gatewayId,
      "gateway.serviceAccount.name": release.name,
      "gateway.serviceAccount.namespace": release.namespace,
      "serviceAccount.name": sandboxAccount,
      "resourceQuota.enabled": true,
      "resourceQuota.maxRunningSandboxes": 1,
    };
    const chart = fileURLToPath(new URL("../../charts/openshell-workspace", import.meta.url));
    const sets = Object.entries(values).flatMap(([key, value]) => ["--set", `${key}=${value}`]);
    const where = ["--kubeconfig", inject("kubeconfig"), "--namespace", namespace];
    await run(clients.helm4, ["install", "openshell-workspace", chart, ...where, ...sets], { timeoutMs: 60_000 });
  }

  it("refuses a namespace that lacks its prerequisites and names them, and takes it once charts/openshell-workspace is in it", async () => {
    await suite.kubectl(["apply", "-f", "-"], { input: JSON.stringify(operatorNamespace(workspace)) });
    const refused = async () => {
      const error = await create(workspace).catch((thrown: Error) => thrown);
      return String(error instanceof Error ? error.message : "no refusal");
    };
    await expect.poll(refused, { timeout: 15_000 }).toMatch(/is not ready for sandboxes/);
    const message = await refused();
    expect(message).toContain(`ClusterRole "${workspaceRoleName(gatewayId)}"`);
    expect(message).toContain(`the ServiceAccount "${sandboxAccount}"`);

    await installWorkspaceChart(workspace);
    await create(workspace);
    await using sandbox = await pairIn(workspace);
    await expectPairApart(workspace, sandbox);
    const counted = ["get", "resourcequota", "-n", workspace, "-o", "jsonpath={.items[*].status.used.pods}"];
    await expect.poll(() => suite.kubectl(counted), { timeout: 15_000 }).toBe("2");
  });

  it("deletes nothing of the namespace with its workspace", async () => {
    await suite.gateway.client.deleteWorkspace({ name: workspace }, { timeoutMs: 60_000 });
    const { status } = await suite.kube.get(namespaces, undefined, workspace);
    expect(status?.phase).toBe("Active");
    expect(
      (await suite.kubectl(["get", "rolebinding,serviceaccount", "-n", workspace, "-o", "name"])).split("\n"),
    ).toEqual(expect.arrayContaining([`serviceaccount/${sandboxAccount}`]));
  });
});
