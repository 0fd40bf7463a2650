import { describe, expect, test } from "vitest";
import type { AgentSandbox, Pod, Resource } from "../kube/index.ts";
import { annotations } from "../manifests/index.ts";
import { FakeCluster, refusal } from "./_fake-cluster.ts";
import { testSandboxId } from "./_testing.ts";
import { driverOn, ready } from "./_testing-driver.ts";

const asked = { id: testSandboxId, name: "blue", workspace: "default", spec: { template: {} } };
const byId = { sandboxId: testSandboxId };
const sandboxes: Resource<AgentSandbox> = {
  group: "agents.x-k8s.io",
  version: "v1beta1",
  kind: "Sandbox",
  plural: "sandboxes",
  namespaced: true,
};

/** A sandbox that runs, and what may be done to its record. */
async function sandbox() {
  const cluster = new FakeCluster();
  const driver = await driverOn(cluster, {});
  const { client, during, quiet, reasons } = driver;
  await during(client.createSandbox({ sandbox: asked }));
  expect(await reasons()).toEqual(ready);
  const recordOf = () => cluster.all<AgentSandbox>("sandboxes")[0]?.metadata.annotations?.[annotations.generation];
  const rewrite = async (text: string | null) => {
    const body = { metadata: { annotations: { [annotations.generation]: text } } };
    await cluster.patch(sandboxes, "sandboxes", "default--blue", { type: "merge", body });
    await quiet();
  };
  const messages = async () =>
    (await client.getSandbox(byId)).sandbox?.status?.conditions.map(({ message }) => message) ?? [];
  return { ...driver, cluster, recordOf, rewrite, messages };
}

describe("a generation record that somebody damages while the sandbox runs", () => {
  test.each<[string, (text: string) => string | null]>([
    ["taken away", () => null],
    ["edited", (text) => text.replace('"intent":"running"', '"intent":"stopped"')],
    ["replaced", () => "{}x"],
  ])(
    "%s, ends its Pods; stop says that it is stopped and why it cannot start, and delete deletes it",
    async (_how, change) => {
      const { client, during, reasons, messages, cluster, recordOf, rewrite } = await sandbox();
      await rewrite(change(recordOf() ?? ""));
      const left = recordOf();
      expect(cluster.all<Pod>("pods")).toEqual([]);
      expect(cluster.all<AgentSandbox>("sandboxes")[0]?.spec.operatingMode).toBe("Suspended");
      await during(client.stopSandbox(byId));
      expect(await reasons()).toEqual(["Stopped", "Stopped", "Stopped"]);
      expect((await messages())[0]).toMatch(
        /^stopped; annotation openshell.ai\/generation .*delete it and create it anew$/,
      );
      await expect(client.startSandbox({ ...byId, generationId: "g2" })).rejects.toMatchObject({
        code: "failed-precondition",
        message: expect.stringMatching(/^annotation openshell.ai\/generation .*delete it and create it anew$/),
        details: { reason: "RecordUnreadable" },
      });
      expect(recordOf()).toBe(left);
      await during(client.deleteSandbox(byId));
      await expect(client.getSandbox(byId)).rejects.toMatchObject({ code: "not-found" });
    },
  );

  test("before its Pods are released, ends them and says that they are gone", async () => {
    const cluster = new FakeCluster();
    const { client, during, quiet, reasons } = await driverOn(cluster, {});
    cluster.beforeWrite = ({ resource }) => {
      if (resource === "secrets") throw refusal(500, "InternalError", "etcd is away");
    };
    await during(client.createSandbox({ sandbox: asked }));
    expect(cluster.all<Pod>("pods").length).toBe(2);
    const body = { metadata: { annotations: { [annotations.generation]: null } } };
    await cluster.patch(sandboxes, "sandboxes", "default--blue", { type: "merge", body });
    await quiet();
    expect(cluster.all<Pod>("pods")).toEqual([]);
    expect(await reasons()).toEqual(["Stopped", "Stopped", "Stopped"]);
  });

  test("while no gateway ran, leaves the Pods alone and says so, until it is stopped", async () => {
    const { stop, cluster, recordOf, rewrite } = await sandbox();
    await stop();
    await rewrite((recordOf() ?? "").replace('"version":1', '"version":2'));
    const { client, during, quiet, reasons } = await driverOn(cluster, {});
    await quiet();
    expect(cluster.all<Pod>("pods").length).toBe(2);
    expect(await reasons()).toEqual(["RecordUnreadable", "GenerationFailed", "GenerationFailed"]);
    for (const { message } of (await client.getSandbox(byId)).sandbox?.status?.conditions ?? []) {
      expect(message).toContain("its Pods run on and nothing watches over them");
    }
    await during(client.stopSandbox(byId));
    expect(cluster.all<Pod>("pods")).toEqual([]);
    expect(await reasons()).toEqual(["Stopped", "Stopped", "Stopped"]);
  });
});
