import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { type Live, type Pod, pods } from "../kube/index.ts";
import { FakeCluster } from "./_fake-cluster.ts";
import { runningStatus, testPod, testRecord, testSandboxId } from "./_testing.ts";
import { driverOn, ready, settled } from "./_testing-driver.ts";
import { lossOf, type SupervisorLoss } from "./replacement.ts";

const asked = { id: testSandboxId, name: "blue", workspace: "default", spec: { template: {} } };

/** A driver with one sandbox that runs, and what it tells while it works. */
async function measured() {
  const cluster = new FakeCluster();
  const told = { losses: [] as SupervisorLoss[], seconds: [] as number[] };
  const { client, driver, during, quiet, reasons } = await driverOn(
    cluster,
    {},
    { onReplacement: (cause) => told.losses.push(cause), onReconciled: (seconds) => told.seconds.push(seconds) },
  );
  await during(client.createSandbox({ sandbox: asked }));
  await settled(cluster, async () => (await reasons())?.join() === ready.join());
  const supervisor = () =>
    cluster.all<Pod>("pods").find(({ metadata }) => metadata.name.startsWith("os-supervisor")) as Live<Pod>;
  return { cluster, driver, told, quiet, supervisor };
}

describe("what a driver tells of its work", () => {
  test("is the time of every reconcile, and that nothing waits when it is done", async () => {
    const { driver, told } = await measured();
    expect(told.seconds.length).toBeGreaterThan(3);
    expect(told.seconds.every((seconds) => seconds >= 0 && seconds < 30)).toBe(true);
    expect(driver.depth()).toBe(0);
    expect([driver.ready(), driver.leads()]).toEqual([true, true]);
  });

  test("is every supervisor that is made anew for a workload that runs, with the cause, once", async () => {
    const { cluster, told, quiet, supervisor } = await measured();
    expect(told.losses).toEqual([]);
    const first = supervisor();
    cluster.forget("pods", first);
    await settled(cluster, () => supervisor()?.status?.phase === "Running");
    await quiet();
    expect(told.losses).toEqual(["deleted"]);
    expect(supervisor().metadata.uid).not.toBe(first.metadata.uid);
  });

  test("is what was seen of one whose Pod is gone by the time that the next may come", async () => {
    const { cluster, told, quiet, supervisor } = await measured();
    cluster.forget("pods", supervisor());
    await settled(cluster, () => supervisor()?.status?.phase === "Running");
    await quiet();
    const second = supervisor();
    const metadata = { ...second.metadata, deletionTimestamp: new Date().toISOString() };
    const status = { ...second.status, ...disrupted("EvictionByEvictionAPI") };
    const evicted: Live<Pod> = { ...second, metadata, status };
    cluster.place("pods", evicted);
    await quiet();
    // Its successor is held back by its age, as long as it is there.
    expect(told.losses).toEqual(["deleted"]);
    cluster.forget("pods", supervisor());
    await settled(cluster, () => told.losses.length === 2);
    expect(told.losses).toEqual(["deleted", "evicted"]);
  });

  test("is no replacement where the whole pair is made anew", async () => {
    const { cluster, told, quiet, supervisor } = await measured();
    const workload = cluster.all<Pod>("pods").find(({ metadata }) => metadata.uid !== supervisor().metadata.uid);
    await cluster.delete(pods, workload?.metadata.namespace, workload?.metadata.name ?? "");
    await quiet();
    expect(told.losses).toEqual([]);
  });
});

describe("a slow API server", () => {
  test("holds up each sandbox alone: fifty are waited for at once", { timeout: 60_000 }, async () => {
    const cluster = new FakeCluster();
    const { client, quiet } = await driverOn(cluster, {});
    const answers = Promise.withResolvers<void>();
    let waiting = 0;
    cluster.beforeWrite = async ({ verb, resource }) => {
      if (verb !== "create" || resource !== "services") return;
      waiting += 1;
      await answers.promise;
    };
    const creates = Array.from({ length: 50 }, (_, index) =>
      client.createSandbox({ sandbox: { ...asked, id: randomUUID(), name: `blue-${index}` } }),
    );
    await settled(cluster, () => waiting === creates.length);
    answers.resolve();
    await settled(cluster, () => cluster.all<Pod>("pods").length === 2 * creates.length);
    await Promise.all(creates);
    await quiet();
  });
});

const disrupted = (reason: string) => ({ conditions: [{ type: "DisruptionTarget", status: "True", reason }] });
const ended = (terminated: object) => ({
  phase: "Failed",
  containerStatuses: [{ ...runningStatus.containerStatuses?.[0], state: { terminated } }],
});

describe("what became of a supervisor", () => {
  test.each([
    ["evicted", disrupted("EvictionByEvictionAPI")],
    ["evicted", { phase: "Failed", reason: "Evicted", message: "The node was low on resource: memory." }],
    ["evicted", { ...ended({ exitCode: 0 }), phase: "Succeeded", ...disrupted("TerminationByKubelet") }],
    ["preempted", disrupted("PreemptionByScheduler")],
    ["node_lost", disrupted("DeletionByTaintManager")],
    ["node_lost", { phase: "Failed", reason: "NodeShutdown" }],
    ["out_of_memory", ended({ exitCode: 137, reason: "OOMKilled" })],
    ["ended", ended({ exitCode: 1 })],
  ] as const)("is said to be %s by its Pod's status (%#)", (loss, status) => {
    expect(lossOf(testPod("supervisor", testRecord(), { status: status as Pod["status"] }))).toBe(loss);
  });

  test("is a deletion when nothing is left of it, and when its Pod ends and says nothing else", () => {
    expect(lossOf(undefined)).toBe("deleted");
    const metadata = { deletionTimestamp: "2026-12-01T12:00:00Z" };
    for (const status of [runningStatus, ended({ exitCode: 143 })]) {
      expect(lossOf(testPod("supervisor", testRecord(), { metadata, status: status as Pod["status"] }))).toBe(
        "deleted",
      );
    }
  });
});
