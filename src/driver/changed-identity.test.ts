import { describe, expect, test } from "vitest";
import type { AgentSandbox, KubeObject, Pod } from "../kube/index.ts";
import { FakeCluster } from "./_fake-cluster.ts";
import { testSandboxId } from "./_testing.ts";
import { driverOn } from "./_testing-driver.ts";

const asked = { id: testSandboxId, name: "blue", workspace: "default", spec: { template: {} } };
const kinds = ["sandboxes", "pods", "services", "secrets"];

type Change = (pod: Pod) => void;
const variable = (name: string, value: string) => (pod: Pod) => {
  for (const one of pod.spec?.containers[0]?.env ?? []) if (one.name === name) Object.assign(one, { value });
};
const withoutVariables: Change = (pod) => Object.assign(pod.spec?.containers[0] ?? {}, { env: [] });
const renamed: Change = (pod) => Object.assign(pod.spec?.containers[0] ?? {}, { name: "proxy" });

/** As a webhook changes the Pods that we make. */
function changeInCreation(cluster: FakeCluster, change: Change): void {
  const create = cluster.create.bind(cluster);
  cluster.create = async (resource, namespace, body, options) => {
    const changed = structuredClone(body);
    if (resource.plural === "pods") change(changed as Pod);
    return await create(resource, namespace, changed, options);
  };
}

describe("admission that changes what a Pod is known by", () => {
  test.each<[string, Change, string]>([
    ["no owner", ({ metadata }) => Object.assign(metadata ?? {}, { ownerReferences: [] }), "metadata.ownerReferences"],
    ["another generation", variable("OPENSHELL_GENERATION_ID", "f".repeat(32)), "OPENSHELL_GENERATION_ID"],
    ["another sandbox", variable("OPENSHELL_SANDBOX_ID", "other"), "OPENSHELL_SANDBOX_ID"],
    ["no variables", withoutVariables, "OPENSHELL_GENERATION_ID"],
  ])("is named to who makes the sandbox, and leaves nothing: a supervisor with %s", async (_what, change, field) => {
    const cluster = new FakeCluster();
    const { client, during } = await driverOn(cluster, {});
    changeInCreation(cluster, change);
    await expect(during(client.createSandbox({ sandbox: asked }))).rejects.toMatchObject({
      details: { reason: "AdmissionViolation" },
      message: expect.stringContaining(field),
    });
    expect(kinds.flatMap((kind) => cluster.all(kind))).toEqual([]);
    expect(cluster.writes().filter((write) => write === "create pods").length).toBe(1);
  });

  test.each<[string, "supervisor" | "workload", Change, string]>([
    ["a supervisor with another container", "supervisor", renamed, "spec.containers[supervisor] is absent"],
    ["a workload with another container", "workload", renamed, "spec.containers[agent] is absent"],
    [
      "a workload of another generation",
      "workload",
      variable("OPENSHELL_GENERATION_ID", "x"),
      "OPENSHELL_GENERATION_ID",
    ],
    ["a workload without variables", "workload", withoutVariables, "spec.containers[agent].env"],
  ])("ends the generation with the field's name: %s", async (_what, role, change, field) => {
    const cluster = new FakeCluster();
    const { client, during, reasons } = await driverOn(cluster, {});
    if (role === "supervisor") changeInCreation(cluster, change);
    // What the controller makes the workload of, as a webhook makes it of the Pod.
    const stored = cluster.all.bind(cluster);
    cluster.all = <T extends KubeObject>(plural: string) => {
      const all = stored<T>(plural);
      if (role !== "workload" || plural !== "sandboxes") return all;
      return all.map((resource) => {
        const changed = structuredClone(resource) as unknown as AgentSandbox;
        change(changed.spec.podTemplate as unknown as Pod);
        return changed as unknown as (typeof all)[number];
      });
    };
    await during(client.createSandbox({ sandbox: asked }));
    expect(await reasons()).toEqual(["AdmissionViolation", "GenerationFailed", "GenerationFailed"]);
    const [admitted] = (await client.getSandbox({ sandboxId: testSandboxId })).sandbox?.status?.conditions ?? [];
    expect(admitted?.message).toContain(field);
    expect(cluster.all("pods")).toEqual([]);
  });
});
