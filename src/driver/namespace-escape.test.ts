import { describe, expect, test } from "vitest";
import type { AgentSandbox, KubeObject, Live, Pod } from "../kube/index.ts";
import { annotations, labels, tokenAudience } from "../manifests/index.ts";
import { FakeCluster } from "./_fake-cluster.ts";
import { testRecord, testSandboxId } from "./_testing.ts";
import { driverOn, ready, tokenNaming } from "./_testing-driver.ts";
import { type GenerationRecord, writeRecord } from "./record.ts";

/** What somebody can do to the sandboxes of one namespace who may write Sandboxes and Pods in another that the driver follows. */

const otherId = "11111111-1111-4111-8111-111111111111";

/** A victim's pair in `team-a`, and an attacker with a namespace of their own, `team-b`. */
async function victim() {
  const cluster = new FakeCluster();
  // The attacker's is listed first, so that whoever takes the first takes theirs.
  for (const name of ["team-b", "team-a"]) {
    cluster.place("namespaces", { metadata: { name, labels: { "example.com/workspace": "true" } } });
    cluster.place("serviceaccounts", { metadata: { name: "openshell-sandbox", namespace: name } });
  }
  const driver = await driverOn(cluster, {
    workspace_mode: "operator",
    service_account_name: "openshell-sandbox",
    operator_namespace_label: "example.com/workspace=true",
  });
  const { client, during, quiet, reasons: reasonsOf } = driver;
  const statusOf = async (sandboxId: string) => (await client.getSandbox({ sandboxId })).sandbox;
  await during(
    client.createSandbox({ sandbox: { id: testSandboxId, name: "blue", workspace: "team-a", spec: { template: {} } } }),
  );
  expect(await reasonsOf(testSandboxId)).toEqual(ready);
  const [resource] = cluster.all<AgentSandbox>("sandboxes");
  if (resource === undefined) return expect.fail("no Sandbox");
  const record = JSON.parse(resource.metadata.annotations?.[annotations.generation] ?? "") as GenerationRecord;
  const podsOf = (namespace: string) =>
    cluster.all<Pod>("pods").filter(({ metadata }) => metadata.namespace === namespace);
  const supervisor = podsOf("team-a").find(({ metadata }) => metadata.name.startsWith("os-supervisor"));
  if (supervisor === undefined) return expect.fail("no supervisor");
  cluster.calls.length = 0;

  /** A Sandbox of the attacker's in `team-b`. */
  const place = (sandboxId: string, text: string, name = "team-b--evil") =>
    cluster.place("sandboxes", {
      ...structuredClone(resource),
      metadata: {
        name,
        namespace: "team-b",
        labels: { ...resource.metadata.labels, [labels.sandboxId]: sandboxId, [labels.workspace]: "team-b" },
        annotations: { [annotations.generation]: text },
      },
    } as unknown as KubeObject & { metadata: { name: string } }) as Live<AgentSandbox>;
  /** A Pod of the attacker's in `team-b`, like a Pod of the victim's in every field but where it is. */
  const placePod = (like: Live<Pod>) =>
    cluster.place("pods", {
      ...structuredClone(like),
      metadata: { ...structuredClone(like.metadata), namespace: "team-b" },
    });
  const tokenOf = (pod: Live<KubeObject>) => {
    cluster.tokenReview = {
      authenticated: true,
      audiences: [tokenAudience("openshell")],
      user: {
        username: `system:serviceaccount:${pod.metadata.namespace}:openshell-sandbox`,
        extra: {
          "authentication.kubernetes.io/pod-name": [pod.metadata.name],
          "authentication.kubernetes.io/pod-uid": [pod.metadata.uid],
        },
      },
    };
    return { credential: tokenNaming(pod) };
  };
  const own: GenerationRecord = {
    ...record,
    sandbox: { ...record.sandbox, id: otherId, name: "evil", workspace: "team-b" },
    settings: { ...record.settings, namespace: "team-b" },
    generation: { ...testRecord().generation },
  };
  return {
    cluster,
    client,
    quiet,
    during,
    reasonsOf,
    statusOf,
    place,
    placePod,
    tokenOf,
    podsOf,
    record,
    own,
    supervisor,
  };
}

describe("somebody who writes Sandboxes in their own namespace", () => {
  test("makes the driver write nothing in the namespace of another team", async () => {
    const { cluster, place, own, quiet, reasonsOf } = await victim();
    place(otherId, writeRecord({ ...own, settings: { ...own.settings, namespace: "team-a" } }));
    await quiet();
    expect(cluster.writes()).toEqual([]);
    expect(await reasonsOf(otherId)).toContain("RecordUnreadable");
    expect(await reasonsOf(testSandboxId)).toEqual(ready);
  });

  test("gets no keys of another sandbox's generation", async () => {
    const { cluster, place, own, record, quiet } = await victim();
    place(otherId, writeRecord({ ...own, generation: record.generation }));
    await quiet();
    expect(cluster.writes()).toEqual([]);
  });

  test("gets nothing for a record that the driver wrote for another Sandbox, seal and all", async () => {
    const { cluster, place, quiet, statusOf, reasonsOf, record } = await victim();
    place(testSandboxId, JSON.stringify(record), "team-a--blue");
    await quiet();
    expect(cluster.writes()).toEqual([]);
    expect(await reasonsOf(testSandboxId)).toEqual(ready);
    expect((await statusOf(testSandboxId))?.namespace).toBe("team-a");
  });

  test("gets no session of another sandbox by naming their own Pod its supervisor", async () => {
    const { client, cluster, place, placePod, tokenOf, quiet, record, supervisor, reasonsOf } = await victim();
    const pod = placePod(supervisor);
    place(testSandboxId, writeRecord({ ...record, supervisorUid: pod.metadata.uid }));
    await quiet();
    await expect(client.authenticateSandbox(tokenOf(pod))).rejects.toMatchObject({ code: "unauthenticated" });
    expect(await client.authenticateSandbox(tokenOf(supervisor))).toMatchObject({ sandboxId: testSandboxId });
    expect(cluster.writes()).toEqual([]);
    expect(await reasonsOf(testSandboxId)).toEqual(ready);
  });

  test("joins no sandbox of another namespace with Pods that look like its own", async () => {
    const { cluster, client, during, placePod, quiet, podsOf, reasonsOf, statusOf } = await victim();
    for (const pod of podsOf("team-a")) placePod(pod);
    await quiet();
    expect(cluster.writes()).toEqual([]);
    expect(await reasonsOf(testSandboxId)).toEqual(ready);
    const [workload] = podsOf("team-a").filter(({ metadata }) => metadata.name === "team-a--blue");
    expect((await statusOf(testSandboxId))?.status?.instanceId).toBe(workload?.metadata.uid);
    await during(client.stopSandbox({ sandboxId: testSandboxId }));
    expect(await reasonsOf(testSandboxId), "a stranger's Pods keep it from nothing").toEqual([
      "Stopped",
      "Stopped",
      "Stopped",
    ]);
    expect(podsOf("team-b").length, "which are not ours to end").toBe(2);
  });
});
