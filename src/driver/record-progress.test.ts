import { describe, expect, onTestFinished, test, vi } from "vitest";
import { type AgentSandbox, type Live, namespaces, sandboxes } from "../kube/index.ts";
import { annotations } from "../manifests/index.ts";
import { FakeCluster, refusal } from "./_fake-cluster.ts";
import { testRecord, testResource, testSandboxId } from "./_testing.ts";
import { driverOn, ready, settled } from "./_testing-driver.ts";
import type { GenerationRecord } from "./record.ts";
import { RecordProgress } from "./record-progress.ts";

const asked = { id: testSandboxId, name: "blue", workspace: "default", spec: { template: {} } };
const byId = { sandboxId: testSandboxId };

describe("the records of one Sandbox", () => {
  const judged = (...states: readonly [session: number, intent: GenerationRecord["intent"], version?: number][]) => {
    const progress = new RecordProgress();
    return states.map(([session, intent, version = 1], index) => {
      const record = testRecord({ intent, generation: { ...testRecord().generation, session } });
      const resource = testResource(record, true);
      const metadata = { ...resource.metadata, resourceVersion: String(version * 100 + index) };
      return progress.judge({ ...resource, metadata }, { ok: true, record }).ok;
    });
  };

  test("go on from session to session, and end each once", () => {
    expect(judged([1, "running"], [2, "running"], [2, "failed"], [2, "stopped"], [3, "running"])).not.toContain(false);
  });

  test("do not go back, unless the whole Sandbox is shown as it was", () => {
    expect(judged([2, "running"], [1, "running"], [2, "running"])).toEqual([true, false, true]);
    expect(judged([2, "stopped"], [2, "running"])).toEqual([true, false]);
    expect(judged([2, "running", 9], [1, "running", 3])).toEqual([true, true]);
  });
});

describe("an old record that somebody puts back", () => {
  /** A sandbox that ran once, with the CR as it was at each write of ours. */
  async function stopped() {
    const cluster = new FakeCluster();
    const states: Live<AgentSandbox>[] = [];
    cluster.afterWrite = ({ resource }) => {
      if (resource === "sandboxes") states.push(...structuredClone(cluster.all<AgentSandbox>("sandboxes")));
    };
    const driver = await driverOn(cluster, {});
    await driver.during(driver.client.createSandbox({ sandbox: asked }));
    await driver.during(driver.client.stopSandbox(byId));
    expect(states.map(({ spec }) => spec.operatingMode)).toEqual(["Suspended", "Running", "Running", "Suspended"]);
    const putBack = async ({ metadata, spec }: Live<AgentSandbox>) => {
      const text = metadata.annotations?.[annotations.generation] ?? "";
      const body = { metadata: { annotations: { [annotations.generation]: text } }, spec } as AgentSandbox;
      await cluster.patch(sandboxes("v1beta1"), "sandboxes", "default--blue", { type: "merge", body });
    };
    return { cluster, driver, states, putBack };
  }

  test.each([0, 1, 2])("is none, and nothing runs by it: that of write %i", async (which) => {
    const { cluster, driver, states, putBack } = await stopped();
    await putBack(states[which] as Live<AgentSandbox>);
    await driver.quiet();
    expect((await driver.reasons())?.[0]).toMatch(/^(Stopped|RecordUnreadable)$/);
    expect(["pods", "secrets"].flatMap((kind) => cluster.all(kind))).toEqual([]);
  });

  test("is none on a Sandbox that is made anew by hand", async () => {
    const { cluster, driver, states } = await stopped();
    await driver.during(driver.client.deleteSandbox(byId));
    const [, ran] = states as [Live<AgentSandbox>, Live<AgentSandbox>];
    const { name, labels, annotations: notes } = ran.metadata;
    await cluster.create(sandboxes("v1beta1"), "sandboxes", {
      metadata: { name, labels, annotations: notes },
      spec: ran.spec,
    } as AgentSandbox);
    await driver.quiet();
    expect(await driver.reasons()).toEqual(["RecordUnreadable", "GenerationFailed", "GenerationFailed"]);
    expect(cluster.all("secrets")).toEqual([]);
  });

  test("while no gateway ran, is not gone on with by a start: that makes a generation of its own", async () => {
    const { cluster, driver, states, putBack } = await stopped();
    const former = await driver.during(driver.client.startSandbox({ ...byId, generationId: "second" }));
    await driver.during(driver.client.stopSandbox(byId));
    await driver.stop();
    await putBack(states[1] as Live<AgentSandbox>);
    const next = await driverOn(cluster, {});
    const request = { ...byId, generationId: "third", expectedRuntimeIdentity: former.runtimeIdentity };
    const { runtimeIdentity } = await next.during(next.client.startSandbox(request));
    expect(runtimeIdentity).not.toBe(former.runtimeIdentity);
    const [resource] = cluster.all<AgentSandbox>("sandboxes");
    const generation = JSON.parse(resource?.metadata.annotations?.[annotations.generation] ?? "{}").generation;
    expect(runtimeIdentity).toContain(generation.id);
    const old = JSON.parse(states[1]?.metadata.annotations?.[annotations.generation] ?? "{}").generation;
    expect(generation.id).not.toBe(old.id);
    expect(await next.reasons()).toEqual(ready);
  });
});

describe("nothing is kept of a Sandbox", () => {
  /** UIDs of what was judged and not forgotten. */
  function kept(): Set<string> {
    const uids = new Set<string>();
    const { judge, forget } = RecordProgress.prototype;
    vi.spyOn(RecordProgress.prototype, "judge").mockImplementation(function (this: RecordProgress, resource, read) {
      uids.add(resource.metadata.uid);
      return judge.call(this, resource, read);
    });
    vi.spyOn(RecordProgress.prototype, "forget").mockImplementation(function (this: RecordProgress, uid) {
      uids.delete(uid);
      forget.call(this, uid);
    });
    onTestFinished(() => void vi.restoreAllMocks());
    return uids;
  }

  const isUnknown = async (client: Awaited<ReturnType<typeof driverOn>>["client"]) =>
    (await client.listSandboxes({})).sandboxes.length === 0;

  test.each(["by us", "by somebody else"])("that is deleted %s", async (whom) => {
    const uids = kept();
    const cluster = new FakeCluster();
    const { client, during, quiet } = await driverOn(cluster, {});
    await during(client.createSandbox({ sandbox: asked }));
    expect(uids.size).toBe(1);
    if (whom === "by us") await during(client.deleteSandbox(byId));
    for (const resource of cluster.all("sandboxes")) cluster.forget("sandboxes", resource);
    await settled(cluster, () => isUnknown(client));
    await quiet();
    expect([...uids]).toEqual([]);
  });

  test("that goes with its namespace, where the rights to look for it go first", async () => {
    const uids = kept();
    const cluster = new FakeCluster();
    const { client, during, quiet } = await driverOn(cluster, { workspace_mode: "managed" });
    await during(client.createSandbox({ sandbox: { ...asked, workspace: "team-a" } }));
    expect(uids.size).toBe(1);
    cluster.beforeWrite = ({ resource }) => {
      if (resource === "sandboxes" || resource === "pods") throw refusal(403, "Forbidden", "no binding any more");
    };
    await cluster.delete(namespaces, undefined, "openshell-openshell-team-a");
    await settled(cluster, () => isUnknown(client));
    await quiet();
    expect([...uids]).toEqual([]);
  });
});
