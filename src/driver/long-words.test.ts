import { expect, test } from "vitest";
import type { AgentSandbox } from "../kube/index.ts";
import { FakeCluster, refusal } from "./_fake-cluster.ts";
import { testSandboxId } from "./_testing.ts";
import { driverOn, ready } from "./_testing-driver.ts";

const createWith = (template: object) => ({
  sandbox: { id: testSandboxId, name: "blue", workspace: "default", spec: { template } },
});
const modes = (cluster: FakeCluster) => cluster.all<AgentSandbox>("sandboxes").map(({ spec }) => spec.operatingMode);

test("a refusal of many words ends the generation, with the first of them", async () => {
  const cluster = new FakeCluster();
  const { client, during, reasons } = await driverOn(cluster, {});
  cluster.beforeWrite = ({ verb, resource }) => {
    const text = `admission webhook "x" denied the request: ${"z".repeat(40_000)}`;
    if (verb === "create" && resource === "secrets") throw refusal(403, "Forbidden", text);
  };
  await during(client.createSandbox(createWith({})));
  expect(await reasons()).toEqual(["AdmissionRefused", "GenerationFailed", "GenerationFailed"]);
  expect([modes(cluster), cluster.all("pods")]).toEqual([["Suspended"], []]);
  const [admitted] = (await client.getSandbox({ sandboxId: testSandboxId })).sandbox?.status?.conditions ?? [];
  expect(admitted?.message).toMatch(/^the cluster refused the workload Secret: admission webhook "x" denied.*zz…$/);
});

test("a sandbox that says as much as it may is ended by a breach as any other, and one that says more is not made", async () => {
  const cluster = new FakeCluster();
  const { client, during, quiet, reasons } = await driverOn(cluster, { allowed_pod_annotations: ["*"] });
  const noting = (bytes: number) => createWith({ platformConfig: { annotations: { note: "x".repeat(bytes) } } });
  await expect(client.createSandbox(noting(32 * 1024))).rejects.toMatchObject({
    code: "invalid-argument",
    message: expect.stringContaining("32768 is the limit"),
  });
  let fits = 32 * 1024;
  const made = async () => {
    for (; ; fits -= 64) {
      const answer = await client.createSandbox(noting(fits)).catch((error: unknown) => error);
      if (!(answer instanceof Error)) return;
      expect(cluster.all("sandboxes")).toEqual([]);
    }
  };
  await during(made());
  expect(await reasons()).toEqual(ready);
  cluster.place("networkpolicies", {
    metadata: { name: "allow-all", namespace: "sandboxes" },
    spec: { podSelector: {}, policyTypes: ["Egress"], egress: [{}] },
  } as Parameters<FakeCluster["place"]>[1]);
  await quiet();
  expect(await reasons()).toEqual(["ForeignNetworkPolicy", "GenerationFailed", "GenerationFailed"]);
  expect([modes(cluster), cluster.all("pods")]).toEqual([["Suspended"], []]);
});
