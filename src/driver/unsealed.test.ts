import { describe, expect, test } from "vitest";
import type { Live, Pod } from "../kube/index.ts";
import { annotations } from "../manifests/index.ts";
import {
  calmCluster,
  runningStatus,
  testGatewayId,
  testObserved,
  testPod,
  testRecord,
  testSettings,
} from "./_testing.ts";
import { livingRules } from "./living-rules.ts";
import { admissionFailure, unsealedViolation } from "./verify-pods.ts";

const settings = testSettings({}, { pod_anti_affinity: "required" });
/** Of a gateway that did not seal its releases. */
const before = testRecord({ seeded: true, bindsUids: undefined }, settings);

// biome-ignore lint/suspicious/noExplicitAny: the tests write what no type allows
type AnyPod = { metadata: any; spec: any };

function found(role: "workload" | "supervisor", change: (pod: AnyPod) => void) {
  const peerUid = role === "workload" ? "supervisor-uid" : "workload-uid";
  const metadata = { annotations: { [annotations.peerUid]: peerUid } };
  const pod = testPod(role, before, { gated: false, node: "a", status: runningStatus, metadata });
  change(pod as unknown as AnyPod);
  const pods = { workload: undefined, supervisor: undefined, [role]: pod };
  return unsealedViolation(testObserved(before), before, testGatewayId, pods);
}

describe.each(["workload", "supervisor"] as const)("a %s that runs, released by a gateway before seals,", (role) => {
  test.each<[string, (pod: AnyPod) => void]>([
    ["nothing", () => undefined],
    ["a deadline", ({ spec }) => Object.assign(spec, { activeDeadlineSeconds: 3600 })],
    [
      "an in-place resize, lower than what was asked for",
      ({ spec }) => Object.assign(spec.containers[0].resources, { requests: { cpu: "1m", memory: "1Mi" } }),
    ],
    ["the priority of a class that is gone", ({ spec }) => Object.assign(spec, { priority: 1000 })],
    [
      "what was the default PriorityClass",
      ({ spec }) => Object.assign(spec, { priorityClassName: "former", priority: 5, preemptionPolicy: "Never" }),
    ],
    [
      "what its RuntimeClass said then",
      ({ spec }) =>
        Object.assign(spec, { overhead: { memory: "1Mi" }, nodeSelector: { ...spec.nodeSelector, kata: "x" } }),
    ],
    [
      "what a newer API server fills in",
      ({ spec }) =>
        Object.assign(spec.containers[0], { resizePolicy: [{ resourceName: "cpu", restartPolicy: "NotRequired" }] }),
    ],
    ["a second owner", ({ metadata }) => metadata.ownerReferences.push({ kind: "Queue", name: "q", uid: "q" })],
    ["an annotation that nobody acts on", ({ metadata }) => Object.assign(metadata.annotations, { note: "x" })],
    ["a toleration", ({ spec }) => spec.tolerations.push({ key: "spot", operator: "Exists" })],
  ])("runs on with %s", (_what, change) => {
    expect(found(role, change)).toBeUndefined();
  });

  test.each<[string, (pod: AnyPod) => void, string]>([
    [
      "a foreign network",
      ({ metadata }) => Object.assign(metadata.annotations, { "k8s.v1.cni.cncf.io/networks": "kube-system/host" }),
      "metadata.annotations",
    ],
    ["a directory of the host", ({ spec }) => spec.volumes.push({ name: "host", hostPath: { path: "/" } }), "volumes"],
    ["privileges", ({ spec }) => Object.assign(spec.containers[0].securityContext, { privileged: true }), "privileged"],
    ["the host's network", ({ spec }) => Object.assign(spec, { hostNetwork: true }), "spec.hostNetwork"],
    ["the host's processes", ({ spec }) => Object.assign(spec, { hostPID: true }), "spec.hostPID"],
    ["another account", ({ spec }) => Object.assign(spec, { serviceAccountName: "admin" }), "serviceAccountName"],
    ["no anti-affinity", ({ spec }) => Object.assign(spec.affinity, { podAntiAffinity: undefined }), "spec.affinity"],
    ["a device", ({ spec }) => Object.assign(spec.containers[0].resources, { limits: { "x/gpu": "1" } }), "resources"],
    ["one more container", ({ spec }) => spec.containers.push({ name: "sidecar", image: "x" }), "containers[sidecar]"],
    ["another image", ({ spec }) => Object.assign(spec.containers[0], { image: "evil" }), ".image"],
  ])("is ended with %s", (_what, change, field) => {
    expect(found(role, change)).toMatchObject({
      reason: "AdmissionViolation",
      message: expect.stringContaining(field),
    });
  });
});

test("a gate that is open without a seal is said to be, with who may have done that", () => {
  const record = testRecord();
  const pods = {
    workload: testPod("workload", record, {
      gated: false,
      metadata: { annotations: { [annotations.peerUid]: "supervisor-uid" } },
    }),
    supervisor: testPod("supervisor", record) as Live<Pod>,
  };
  const observed = testObserved(record, { cluster: calmCluster });
  expect(admissionFailure(observed, record, { gatewayId: testGatewayId }, pods, "workload")?.message).toMatch(
    /^the gate of the workload Pod was opened without this gateway's seal, .*an earlier release of the gateway.*; .*spec\.schedulingGates/,
  );
});

test("each rule for what lives says why", () => {
  for (const [field, { why }] of Object.entries(livingRules)) expect(why, field).not.toBe("");
});
