import { describe, expect, test } from "vitest";
import type { KubeObject } from "../kube/index.ts";
import { FakeCluster } from "./_fake-cluster.ts";
import { calmCluster, testGatewayId, testObserved, testPod, testRecord, testSettings } from "./_testing.ts";
import { driverOn, ready, settled } from "./_testing-driver.ts";
import { asked, isGated, isSupervisor, podsOf, recordOf, required } from "./_upgraded.ts";
import { classMade } from "./class-made.ts";
import type { ClusterFacts } from "./observed.ts";
import { plan } from "./plan.ts";

/** Of `globalDefault`, as an operator makes it while pairs wait. */
const usual = { metadata: { name: "usual", uid: "usual", resourceVersion: "1" }, value: 1000, globalDefault: true };

describe("a pair that waits for a node, verified whole", () => {
  const settings = testSettings({ default_runtime_class_name: "kata" }, { pod_anti_affinity: "required" });
  const record = testRecord({ supervisorUid: "supervisor-uid" }, settings);
  const overhead = { memory: "100Mi" };
  const nodeSelector = { kata: "yes" };
  const workload = testPod("workload", record, { gated: false, spec: { overhead, nodeSelector } });
  const supervisor = testPod("supervisor", record);
  const gatedWorkload = testPod("workload", record, { spec: { overhead, nodeSelector } });
  const classes = (change: Partial<ClusterFacts> = {}, podFixed: object = overhead, labels: object = nodeSelector) =>
    ({
      ...calmCluster,
      runtimeClass: (name: string) => ({
        metadata: { name, uid: name, resourceVersion: "1" },
        overhead: { podFixed },
        scheduling: { nodeSelector: labels },
      }),
      ...change,
    }) as ClusterFacts;
  const made = new Map([workload, supervisor].map((pod) => [pod.metadata.uid, classMade(pod)]));
  const planned = (cluster: ClusterFacts, pods = { workload, supervisor }, verified = made) => {
    const memory = {
      gatewayId: testGatewayId,
      rendered: { workload: record.generation.id, supervisor: record.generation.id },
      request: undefined,
      writtenSecrets: new Set([...verified.keys()].map((uid) => `${uid}/1`)),
      missingSecrets: new Set<string>(),
      verified,
    };
    const observed = testObserved(record, { cluster, workloads: [pods.workload], supervisors: [pods.supervisor] });
    return plan(observed, memory).actions.map((action) =>
      action.do === "suspend" ? action.record?.failure : [action.do, "role" in action && action.role],
    );
  };

  test.each<[string, ClusterFacts]>([
    ["no class", classes()],
    ["the default PriorityClass", classes({ priorityClass: () => usual })],
    ["the overhead of its RuntimeClass", classes({}, { memory: "160Mi" })],
    ["the nodes of its RuntimeClass", classes({}, overhead, { kata: "other" })],
    ["that there is its RuntimeClass", classes({ runtimeClass: () => undefined })],
  ])("waits on when an operator changes %s", (_what, cluster) => {
    expect(planned(cluster)).toEqual([]);
    const both = planned(cluster, { workload: gatedWorkload, supervisor });
    expect(both).toEqual([["release", "workload"]]);
  });

  test("ends for what was changed in the Pod since, and for what was never verified", () => {
    const moved = testPod("workload", record, { spec: { overhead, nodeSelector: { ...nodeSelector, zone: "a" } } });
    expect(planned(classes(), { workload: moved, supervisor })).toMatchObject([
      { reason: "AdmissionViolation", message: expect.stringContaining("spec.nodeSelector") },
      ["delete-pod", false],
    ]);
    const message = `admission changed the supervisor Pod: spec.priority is 0 instead of absent, unless an operator changed a RuntimeClass or PriorityClass since the Pod was made; start the sandbox again then`;
    const unverified = planned(classes({ priorityClass: () => usual }), { workload, supervisor }, new Map());
    expect(unverified[0]).toMatchObject({ reason: "AdmissionViolation", message });
  });
});

test("a supervisor whose gate is opened after a default PriorityClass was made is what was verified", async () => {
  const cluster = new FakeCluster();
  cluster.fits = isSupervisor;
  cluster.admitPod = <T extends KubeObject>(pod: T) => {
    const { spec } = pod as unknown as { spec: Record<string, unknown> };
    return { ...pod, spec: { ...spec, priority: 0, preemptionPolicy: "PreemptLowerPriority" } };
  };
  const { client, during, quiet, reasons } = await driverOn(cluster, required);
  await during(client.createSandbox({ sandbox: asked }));
  await settled(cluster, () => podsOf(cluster).filter((pod) => !isGated(pod)).length === 1);
  await quiet();
  cluster.place("priorityclasses", usual);
  cluster.fits = () => true;
  await settled(cluster, async () => recordOf(cluster).failure !== undefined || (await reasons())?.[2] === ready[2]);
  await quiet();
  expect([recordOf(cluster).failure, await reasons()]).toEqual([undefined, ready]);
});
