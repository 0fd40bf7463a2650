import { describe, expect, test } from "vitest";
import type { Live, Pod } from "../kube/index.ts";
import { FakeCluster } from "./_fake-cluster.ts";
import { testGatewayId, testObserved, testPod, testRecord, testSandboxId } from "./_testing.ts";
import { driverOn, ready, settled } from "./_testing-driver.ts";
import { asked, type Begun, isGated, isSupervisor, podsOf, recordOf } from "./_upgraded.ts";
import type { LastSupervisor } from "./action.ts";
import { plan } from "./plan.ts";
import type { GenerationRecord } from "./record.ts";

const kept = "start the sandbox again, its workspace is kept";
const unknown = `the supervisor Pod is gone, and whether a workload Pod ran and went with it is not known; ${kept}`;

async function runs(cluster: FakeCluster, { client, during, reasons, quiet }: Begun, generation: number) {
  await during(client.createSandbox({ sandbox: asked }));
  for (let before = 1; before < generation; before += 1) {
    await settled(cluster, async () => (await reasons())?.[2] === "WorkloadRunning");
    await quiet();
    await during(client.stopSandbox({ sandboxId: testSandboxId }));
    await during(client.startSandbox({ sandboxId: testSandboxId }));
  }
  await settled(cluster, async () => (await reasons())?.[2] === "WorkloadRunning");
  await quiet();
}

const forget = (cluster: FakeCluster, isLost: (pod: Live<Pod>) => boolean) => {
  for (const pod of podsOf(cluster).filter(isLost)) cluster.forget("pods", pod);
};

const endOf = async (cluster: FakeCluster) => {
  await settled(cluster, () => recordOf(cluster).failure !== undefined);
  const { intent, failure } = recordOf(cluster);
  return { intent, ...failure };
};

describe("both Pods of a pair that ran go at once, and another workload is made", () => {
  test.each([1, 2])("while no gateway runs: generation %i ends", async (generation) => {
    const cluster = new FakeCluster();
    const before = await driverOn(cluster, {});
    await runs(cluster, before, generation);
    await before.stop();
    forget(cluster, () => true);
    await cluster.settle();
    await driverOn(cluster, {});
    expect(await endOf(cluster)).toMatchObject({ intent: "failed", reason: "WorkloadDeleted" });
  });

  test.each([1, 2])("beside a gateway that runs: generation %i ends", async (generation) => {
    const cluster = new FakeCluster();
    await runs(cluster, await driverOn(cluster, {}), generation);
    forget(cluster, () => true);
    expect(await endOf(cluster)).toMatchObject({
      intent: "failed",
      reason: "WorkloadDeleted",
      message: `somebody else deleted the workload Pod, or suspended its Sandbox; ${kept}`,
    });
  });
});

describe("a supervisor of a second generation that was never released is lost", () => {
  /** The fence is open, so that both Pods wait behind their gates. */
  async function bothWait() {
    const cluster = new FakeCluster();
    const begun = await driverOn(cluster, {});
    await runs(cluster, begun, 1);
    await begun.during(begun.client.stopSandbox({ sandboxId: testSandboxId }));
    const fence = Promise.withResolvers<void>();
    cluster.beforeWrite = ({ resource }) => (resource === "networkpolicies" ? fence.promise : undefined);
    for (const policy of cluster.all("networkpolicies")) cluster.forget("networkpolicies", policy);
    await begun.during(begun.client.startSandbox({ sandboxId: testSandboxId }));
    await settled(cluster, () => podsOf(cluster).length === 2);
    await begun.quiet();
    expect(podsOf(cluster).map(isGated)).toEqual([true, true]);
    return { cluster, fence, ...begun };
  }

  test("and is replaced by the process that saw it wait", async () => {
    const { cluster, fence, reasons, quiet } = await bothWait();
    const { generation } = recordOf(cluster);
    forget(cluster, isSupervisor);
    await settled(cluster, () => recordOf(cluster).generation.session === generation.session + 1);
    await quiet();
    fence.resolve();
    await settled(cluster, async () => (await reasons())?.[2] === "WorkloadRunning");
    expect([recordOf(cluster).generation.id, await reasons()]).toEqual([generation.id, ready]);
  });

  test("while no gateway runs: the generation ends and says that nobody knows", async () => {
    const { cluster, stop } = await bothWait();
    await stop();
    forget(cluster, isSupervisor);
    await driverOn(cluster, {});
    expect(await endOf(cluster)).toMatchObject({ reason: "WorkloadDeleted", message: unknown });
  });
});

describe("a workload behind its gate whose supervisor is gone", () => {
  const record = testRecord({ seeded: true, supervisorUid: "supervisor-uid" });
  const gated = testPod("workload", record);
  const planned = (of: GenerationRecord, lastSupervisor?: LastSupervisor, troubled: readonly Live<Pod>[] = []) => {
    const memory = {
      gatewayId: testGatewayId,
      rendered: {},
      request: undefined,
      writtenSecrets: new Set<string>(),
      missingSecrets: new Set<string>(),
      lastSupervisor,
      troubled,
    };
    const [action] = plan(testObserved(of, { workloads: [gated] }), memory).actions;
    return action?.do === "suspend" ? action.record?.failure?.reason : action?.do;
  };
  const uid = "supervisor-uid";

  test.each<[string, string | undefined, GenerationRecord, LastSupervisor?]>([
    ["nobody saw", "WorkloadDeleted", record],
    ["another was seen instead of", "WorkloadDeleted", record, { uid: "another", peerUid: undefined }],
    ["was released with another workload", "WorkloadDeleted", record, { uid, peerUid: "former" }],
    ["was released with this workload", "create-supervisor", record, { uid, peerUid: "workload-uid" }],
    ["was behind its gate", "create-supervisor", record, { uid, peerUid: undefined }],
    ["is of a sandbox that never ran", "create-supervisor", { ...record, seeded: false }],
    ["was of a pair that is placed anew", "create-supervisor", { ...record, placement: { evicted: ["former"] } }],
    ["was to be made anew itself", "create-supervisor", { ...record, outdated: uid }],
  ])("that %s: %s", (_what, expected, of, lastSupervisor) => {
    expect(planned(of, lastSupervisor)).toBe(expected);
  });

  test("ends for what its former workload said, where that was seen", () => {
    const condition = { type: "DisruptionTarget", status: "True", reason: "DeletionByTaintManager" };
    const lost = { metadata: { ...gated.metadata, uid: "former" }, status: { conditions: [condition] } } as Live<Pod>;
    expect(planned(record, { uid, peerUid: "former" }, [lost])).toBe("NodeLost");
  });
});
