import { describe, expect, test } from "vitest";
import type { KubeObject, Live, Pod } from "../kube/index.ts";
import { FakeCluster } from "./_fake-cluster.ts";
import { testSandboxId } from "./_testing.ts";
import { driverOn, ready, settled } from "./_testing-driver.ts";

const asked = { id: testSandboxId, name: "blue", workspace: "default", spec: { template: {} } };
const byId = { sandboxId: testSandboxId };

/** A sandbox that runs, and copies of both its Pods under names of somebody else's. */
async function beside(ownerReferences: (pod: Live<Pod>) => object) {
  const cluster = new FakeCluster();
  const driver = await driverOn(cluster, {});
  const stop = new AbortController();
  const warnings: string[] = [];
  const watching = (async () => {
    for await (const { payload } of driver.client.watchSandboxes({}, { signal: stop.signal })) {
      const event = payload.case === "platformEvent" ? payload.value.event : undefined;
      if (event !== undefined) warnings.push(`${event.type} ${event.reason} ${event.message}`);
    }
  })();
  await driver.during(driver.client.createSandbox({ sandbox: asked }));
  const copies = cluster.all<Pod>("pods").map((pod, index) => {
    const { uid: _, ownerReferences: __, ...metadata } = structuredClone(pod.metadata);
    const copy = { ...structuredClone(pod), metadata: { ...metadata, name: `copy-${index}`, ...ownerReferences(pod) } };
    return cluster.place("pods", copy as KubeObject & { metadata: { name: string } });
  });
  await driver.quiet();
  const end = async () => {
    stop.abort();
    await watching;
  };
  const isThere = (copy: Live<KubeObject>) =>
    cluster.all("pods").some(({ metadata }) => metadata.uid === copy.metadata.uid);
  return { ...driver, cluster, copies, warnings, end, isThere };
}

describe("Pods of somebody else's with the labels and containers of a sandbox's own", () => {
  test.each<[string, (pod: Live<Pod>) => object]>([
    ["and no owner", () => ({})],
    ["and the owner", ({ metadata }) => ({ ownerReferences: metadata.ownerReferences })],
  ])("%s keep it from nothing, are named once, and are not deleted by us", async (_what, ownerReferences) => {
    const { client, during, reasons, cluster, copies, warnings, end, isThere } = await beside(ownerReferences);
    expect(await reasons()).toEqual(ready);
    await during(client.stopSandbox(byId));
    expect(await reasons()).toEqual(["Stopped", "Stopped", "Stopped"]);
    await during(client.startSandbox({ ...byId, generationId: "g2" }));
    expect(await reasons()).toEqual(ready);
    expect(copies.map(isThere)).toEqual([true, true]);
    await during(client.deleteSandbox(byId));
    await settled(cluster, async () => (await client.listSandboxes({})).sandboxes.length === 0);
    await end();
    expect(warnings.sort()).toEqual(
      copies.map(({ metadata }) => expect.stringMatching(`^Warning ForeignPod Pod ${metadata.name} has the labels`)),
    );
  });

  test("one that has the workload's very name is named as what is waited for", async () => {
    const { client, during, cluster, end } = await beside(() => ({}));
    await during(client.stopSandbox(byId));
    const [like] = cluster.all<Pod>("pods").filter(({ spec }) => spec?.containers?.[0]?.name === "agent");
    if (like === undefined) return expect.fail("no copy of the workload");
    // The controller of the in-memory cluster would end it by its name; this one is never told of it.
    const finalized = { ...like.metadata, name: "default--blue", deletionTimestamp: "2026-12-01T12:00:00Z" };
    cluster.place("pods", { ...structuredClone(like), metadata: finalized });
    await expect
      .poll(async () => (await client.getSandbox(byId)).sandbox?.status?.conditions[0]?.message)
      .toContain("Pod default--blue has the name of the workload and does not belong to this Sandbox");
    await end();
  });
});
