import { describe, expect, test } from "vitest";
import { Informers, type KubeObject, type Live, sandboxes } from "../kube/index.ts";
import { labels, managedNamespaceName } from "../manifests/index.ts";
import { FakeCluster, refusal } from "./_fake-cluster.ts";
import { testSandboxId } from "./_testing.ts";
import { driverOn, ready, settled, tokenNaming } from "./_testing-driver.ts";
import { NamespaceView } from "./namespace-view.ts";

/** One namespace that is not as it should be, and all others beside it. */

const otherId = "11111111-1111-4111-8111-111111111111";
const sandboxIn = (workspace: string, id = testSandboxId) => ({ id, name: "blue", workspace, spec: { template: {} } });
const account = { service_account_name: "openshell-sandbox" };
const operator = {
  ...account,
  workspace_mode: "operator",
  operator_namespace_label: "example.com/workspace=true",
} as const;
const managed = { ...account, workspace_mode: "managed" } as const;

function placeWorkspace(cluster: FakeCluster, name: string): void {
  cluster.place("namespaces", { metadata: { name, labels: { "example.com/workspace": "true" } } });
  cluster.place("serviceaccounts", { metadata: { name: "openshell-sandbox", namespace: name } });
}

describe("an operator's namespace that cannot be followed at a start", () => {
  test("has nothing of it taken for deleted, and is followed as soon as it can be", async () => {
    const cluster = new FakeCluster();
    placeWorkspace(cluster, "team-a");
    const first = await driverOn(cluster, operator);
    await first.during(first.client.createSandbox({ sandbox: sandboxIn("team-a") }));
    await first.stop();
    cluster.isAllowed = ({ namespace }) => namespace !== "team-a";
    const { client, reasons } = await driverOn(cluster, operator);
    const unseen = {
      code: "unavailable",
      message: `sandbox ${testSandboxId} is not seen, and the sandboxes of namespace "team-a" cannot be listed now`,
    };
    await expect(client.getSandbox({ sandboxId: testSandboxId })).rejects.toMatchObject(unseen);
    await expect(client.deleteSandbox({ sandboxId: testSandboxId })).rejects.toMatchObject(unseen);
    cluster.isAllowed = () => true;
    await settled(
      cluster,
      async () => (await reasons().catch(() => [])) !== undefined && (await reasons().catch(() => []))?.length === 3,
    );
    expect(await reasons()).toEqual(ready);
    await expect(client.getSandbox({ sandboxId: otherId })).rejects.toMatchObject({ code: "not-found" });
  });
});

test("an operator's namespace is asked for each right once at a start, and not once for each who wants to know", async () => {
  const cluster = new FakeCluster();
  placeWorkspace(cluster, "team-a");
  const asked: string[] = [];
  cluster.isAllowed = ({ namespace, verb, ...right }) => {
    if (namespace === "team-a") asked.push(`${verb} ${JSON.stringify(right)}`);
    return true;
  };
  await driverOn(cluster, operator);
  expect(asked.length).toBeGreaterThan(0);
  expect(asked.length).toBe(new Set(asked).size);
});

test("a namespace that comes to be followed while the Sandboxes of the others are listed is seen, too", async () => {
  const cluster = new FakeCluster();
  cluster.served.length = 0;
  const { client, during, reasons, driver } = await driverOn(cluster, managed);
  const listing = Promise.withResolvers<void>();
  const listed = Promise.withResolvers<void>();
  cluster.beforeList = (plural, namespace) => {
    if (plural !== "sandboxes" || namespace !== "sandboxes") return undefined;
    listing.resolve();
    return listed.promise;
  };
  cluster.served.push("v1beta1");
  await listing.promise;
  await during(client.ensureWorkspace({ workspace: "team-a" }));
  listed.resolve();
  await settled(cluster, () => driver.ready());
  await during(client.createSandbox({ sandbox: sandboxIn("team-a") }));
  expect(await reasons()).toEqual(ready);
  // What is only remembered of our own writes is forgotten once a watch shows it.
  await during(client.stopSandbox({ sandboxId: testSandboxId }));
  const [resource] = cluster.all("sandboxes");
  cluster.forget("sandboxes", resource as Live<KubeObject>);
  await settled(cluster, async () => (await reasons().catch(() => undefined)) === undefined);
});

test("a token is not refused before it is known whose there are", async () => {
  const cluster = new FakeCluster();
  cluster.served.length = 0;
  const { client } = await driverOn(cluster, account);
  const metadata = { name: "os-supervisor-x", namespace: "sandboxes", uid: "x", resourceVersion: "1" };
  const credential = tokenNaming({ metadata });
  await expect(client.authenticateSandbox({ credential })).rejects.toMatchObject({ code: "unavailable" });
});

describe("a managed namespace", () => {
  test("that cannot be listed keeps the driver from starting no more than its sandboxes from being known", async () => {
    const cluster = new FakeCluster();
    const first = await driverOn(cluster, managed);
    await first.during(first.client.createSandbox({ sandbox: sandboxIn("team-a") }));
    await first.during(first.client.createSandbox({ sandbox: sandboxIn("team-b", otherId) }));
    await first.stop();
    cluster.beforeList = (_plural, namespace) => {
      if (namespace?.endsWith("team-b")) throw refusal(403, "Forbidden", "no binding any more");
    };
    const { client, reasons } = await driverOn(cluster, managed);
    expect(await reasons()).toEqual(ready);
    await expect(client.getSandbox({ sandboxId: otherId })).rejects.toMatchObject({ code: "unavailable" });
    const namespace = managedNamespaceName("openshell", "team-b");
    const supervisor = cluster.all("pods").find(({ metadata }) => metadata.namespace === namespace) as Live<KubeObject>;
    const tokenOf = (metadata: object) => tokenNaming({ metadata: { ...supervisor.metadata, ...metadata } });
    const refusalOf = (metadata: object) =>
      client.authenticateSandbox({ credential: tokenOf(metadata) }).catch((e) => e);
    expect(await refusalOf({})).toMatchObject({
      code: "unavailable",
      message: `the Pods of namespace "${namespace}" cannot be listed now`,
    });
    for (const elsewhere of ["sandboxes", "nowhere"]) {
      expect(await refusalOf({ namespace: elsewhere })).toMatchObject({ code: "unauthenticated" });
    }
    cluster.beforeList = () => undefined;
    await settled(cluster, async () => (await reasons(otherId).catch(() => undefined)) !== undefined);
    expect(await reasons(otherId)).toEqual(ready);
  }, 40_000);

  test("of another name with our label is none", async () => {
    const cluster = new FakeCluster();
    const stray = { [labels.gatewayId]: "openshell", [labels.workspace]: "team-a" };
    cluster.place("namespaces", { metadata: { name: "stray", labels: stray } });
    await driverOn(cluster, managed);
    expect(cluster.writes()).toEqual([]);
    expect(cluster.all("rolebindings")).toEqual([]);
  });

  test("whose ServiceAccount somebody deleted gets it back with the first Pod that misses it", async () => {
    const cluster = new FakeCluster();
    const { client, during, reasons } = await driverOn(cluster, managed);
    await during(client.ensureWorkspace({ workspace: "team-a" }));
    const [made] = cluster.all<KubeObject>("serviceaccounts");
    cluster.forget("serviceaccounts", made as Live<KubeObject>);
    cluster.beforeWrite = ({ verb, resource }) => {
      if (verb !== "create" || resource !== "pods" || cluster.all("serviceaccounts").length > 0) return;
      const account = `${managedNamespaceName("openshell", "team-a")}/openshell-sandbox`;
      throw refusal(
        403,
        "Forbidden",
        `pods "x" is forbidden: error looking up service account ${account}: serviceaccount "openshell-sandbox" not found`,
      );
    };
    await expect(during(client.createSandbox({ sandbox: sandboxIn("team-a") }))).rejects.toMatchObject({
      details: { reason: "ServiceAccountNotFound" },
    });
    await settled(cluster, () => cluster.all("serviceaccounts").length === 1);
    await during(client.createSandbox({ sandbox: sandboxIn("team-a", otherId) }));
    expect(await reasons(otherId)).toEqual(ready);
  });

  test("gets a binding of its own when the gateway has another account than before", async () => {
    const cluster = new FakeCluster();
    const first = await driverOn(cluster, managed);
    await first.during(first.client.ensureWorkspace({ workspace: "team-a" }));
    await first.stop();
    const review = cluster.review.bind(cluster);
    cluster.review = async (resource, body) =>
      resource.plural === "selfsubjectreviews"
        ? ({ status: { userInfo: { username: "system:serviceaccount:openshell:renamed" } } } as unknown as typeof body)
        : await review(resource, body);
    const second = await driverOn(cluster, managed);
    await second.during(second.client.ensureWorkspace({ workspace: "team-a" }));
    expect(
      cluster.all("rolebindings").flatMap((binding) => (binding as { subjects?: { name: string }[] }).subjects),
    ).toEqual([expect.objectContaining({ name: "openshell" }), expect.objectContaining({ name: "renamed" })]);
  });
});

test("a fence that cannot be put up in one namespace holds up that of no other", async () => {
  const cluster = new FakeCluster();
  placeWorkspace(cluster, "team-b");
  cluster.beforeWrite = ({ resource }, body) => {
    if (resource === "networkpolicies" && body?.metadata?.namespace === "team-b")
      return new Promise<void>(() => undefined);
    return undefined;
  };
  const { client, during, reasons } = await driverOn(cluster, operator);
  placeWorkspace(cluster, "team-a");
  await cluster.settle();
  await during(client.createSandbox({ sandbox: sandboxIn("team-a") }));
  expect(await reasons()).toEqual(ready);
});

test("a view that ends before it took a watch of Sandboxes over leaves none behind", async () => {
  const cluster = new FakeCluster();
  await using informers = new Informers(cluster);
  const view = new NamespaceView(informers, "team-a", "openshell");
  const informer = view.sandboxesIn("v1beta1");
  await view.stop();
  const scope = { namespace: "team-a", labelSelector: `${labels.gatewayId}=openshell` };
  expect(informers.of(sandboxes("v1beta1"), scope)).not.toBe(informer);
});
