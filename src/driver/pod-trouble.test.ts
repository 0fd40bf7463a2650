import { describe, expect, test } from "vitest";
import type { Pod } from "../kube/index.ts";
import { runningStatus, testPod, testRecord } from "./_testing.ts";
import { awaitsLastPhase, disruptionOf, isOnSilentNode, schedulingTrouble, troubleOf } from "./pod-trouble.ts";
import { reasonClass } from "./reasons.ts";

const record = testRecord();
const pod = (status: Pod["status"]) => testPod("workload", record, { gated: false, node: "node-1", status });
const container = (state: object, name = "agent") => ({
  name,
  image: "registry.test/agent:1",
  imageID: "",
  ready: false,
  restartCount: 0,
  state,
});
const waiting = (reason: string, message?: string) => ({
  phase: "Pending",
  containerStatuses: [container({ waiting: { reason, ...(message === undefined ? {} : { message }) } })],
});
const ended = (terminated: object) => ({ phase: "Failed", containerStatuses: [container({ terminated })] });
const inInit = (terminated: object) => ({
  phase: "Failed",
  initContainerStatuses: [container({ terminated }, "seed")],
});

describe("why a Pod does not run: reason, whether it fails or waits, and the sentence", () => {
  test.each<[string, "failed" | "waiting", string, NonNullable<Pod["status"]>]>([
    [
      "PullingImage",
      "waiting",
      'container agent (image registry.test/agent:1): ErrImagePull: failed to pull "x": not found',
      waiting("ErrImagePull", 'failed to pull "x": not found'),
    ],
    [
      "PullingImage",
      "waiting",
      "container agent (image registry.test/agent:1): ImagePullBackOff",
      waiting("ImagePullBackOff"),
    ],
    [
      "InvalidImageName",
      "failed",
      "container agent (image registry.test/agent:1): InvalidImageName: bad reference",
      waiting("InvalidImageName", "bad reference"),
    ],
    [
      "ContainerConfigError",
      "failed",
      'container agent (image registry.test/agent:1): CreateContainerConfigError: secret "s" not found',
      waiting("CreateContainerConfigError", 'secret "s" not found'),
    ],
    [
      "ContainerStartError",
      "failed",
      "container agent (image registry.test/agent:1): RunContainerError: exec format error",
      waiting("RunContainerError", "exec format error"),
    ],
    [
      "OutOfMemory",
      "failed",
      "container agent exceeded its memory limit and was killed",
      ended({ exitCode: 137, reason: "OOMKilled" }),
    ],
    ["WorkloadExited", "failed", "container agent ended with exit code 3", ended({ exitCode: 3, reason: "Error" })],
    ["WorkloadExited", "failed", "container agent ended with signal 11", ended({ exitCode: 139, signal: 11 })],
    [
      "InitFailed",
      "failed",
      "container seed ended with exit code 73: WorkspaceNotWritable: /openshell-workspace",
      inInit({ exitCode: 73, message: "WorkspaceNotWritable: /openshell-workspace\n" }),
    ],
    [
      "WorkspaceLost",
      "failed",
      "the workspace volume of this sandbox was deleted",
      inInit({ exitCode: 73, message: "WorkspaceLost: the workspace volume of this sandbox was deleted" }),
    ],
    [
      "WorkspaceLost",
      "failed",
      "it was deleted",
      inInit({ exitCode: 73, message: "{}\nopenshell-runtime: WorkspaceLost: it was deleted\n" }),
    ],
    [
      "OutOfMemory",
      "failed",
      "container seed exceeded its memory limit and was killed",
      inInit({ exitCode: 137, reason: "OOMKilled" }),
    ],
    [
      "Evicted",
      "failed",
      "node node-1 evicted the Pod: The node was low on resource: memory.",
      { phase: "Failed", reason: "Evicted", message: "The node was low on resource: memory." },
    ],
    [
      "NodeLost",
      "failed",
      "node node-1 shut down: Pod was terminated in response to imminent node shutdown.",
      { phase: "Failed", reason: "Terminated", message: "Pod was terminated in response to imminent node shutdown." },
    ],
    [
      "NodeRefused",
      "failed",
      "node node-1 did not take the Pod: OutOfcpu: Node didn't have enough resource: cpu",
      { phase: "Failed", reason: "OutOfcpu", message: "Node didn't have enough resource: cpu" },
    ],
    [
      "NodeRefused",
      "failed",
      "node node-1 did not take the Pod: UnexpectedAdmissionError: no healthy devices",
      { phase: "Failed", reason: "UnexpectedAdmissionError", message: "no healthy devices" },
    ],
    [
      "NodeRefused",
      "failed",
      "node node-1 did not take the Pod: AppArmor: Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host",
      {
        phase: "Failed",
        reason: "AppArmor",
        message: "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host",
      },
    ],
    [
      "WorkloadExited",
      "failed",
      "the Pod ended: DeadlineExceeded: was active too long",
      { phase: "Failed", reason: "DeadlineExceeded", message: "was active too long" },
    ],
  ])("%s (%s): %s", (reason, kind, message, status) => {
    expect(troubleOf(pod(status))).toEqual({ reason, message });
    expect(reasonClass(reason)).toBe(kind);
  });

  test("nothing, while it starts, runs, or an init container ended well", () => {
    expect(troubleOf(pod(waiting("ContainerCreating")))).toBeUndefined();
    expect(troubleOf(pod(runningStatus))).toBeUndefined();
    expect(troubleOf(pod({ ...inInit({ exitCode: 0 }), phase: "Pending" }))).toBeUndefined();
  });
});

describe("a Pod that its kubelet ends", () => {
  const low = "The node was low on resource: memory. Threshold quantity: 23095640Ki, available: 16994908Ki. ";
  const byKubelet = (message: string) => ({
    conditions: [
      { type: "DisruptionTarget", status: "True", reason: "TerminationByKubelet", message },
      { type: "PodScheduled", status: "True" },
    ],
  });
  const agent = (terminated: object) => ({ containerStatuses: [container({ terminated })] });
  const evicted = { reason: "Evicted", message: `node node-1 evicted the Pod: ${low}` };

  // What an API server showed, one after the other, of Pods on a node that ran out of memory.
  test.each([
    ["one that obeyed", { exitCode: 143, reason: "Error" }, { phase: "Failed", reason: "Evicted", message: low }],
    ["one that was killed", { exitCode: 137, reason: "Error" }, { phase: "Failed", reason: "Evicted", message: low }],
    ["one that ended well", { exitCode: 0, reason: "Completed" }, { phase: "Succeeded" }],
  ])("is Evicted, and not before its node says so: %s", (_what, terminated, last) => {
    expect(troubleOf(pod(runningStatus))).toBeUndefined();
    const between = pod({ phase: "Running", ...agent(terminated) });
    expect(troubleOf(between)).toBeUndefined();
    expect(awaitsLastPhase(between)).toBe(true);
    const over = pod({ ...last, ...agent(terminated), ...byKubelet(low) });
    expect(troubleOf(over)).toEqual(evicted);
    expect(disruptionOf(over)).toEqual(evicted);
    expect(awaitsLastPhase(over)).toBe(false);
  });

  test.each([
    ["Preempted", "Preempting", "Pod was preempted by Kubelet to accommodate a critical pod."],
    ["NodeLost", "Terminated", "Pod was terminated in response to imminent node shutdown."],
  ])("is %s for other ends than that (%s)", (reason, ofStatus, message) => {
    const said = { reason, message: expect.stringContaining(message) };
    expect(troubleOf(pod({ phase: "Succeeded", ...agent({ exitCode: 0 }), ...byKubelet(message) }))).toEqual(said);
    const failed = { phase: "Failed", reason: ofStatus, message, ...agent({ exitCode: 143 }) };
    expect(troubleOf(pod({ ...failed, ...byKubelet(message) }))).toEqual(said);
  });

  test("is judged by how its containers ended, when its last phase came without a word of the kubelet", () => {
    expect(troubleOf(pod({ phase: "Running", ...agent({ exitCode: 137, reason: "OOMKilled" }) }))).toBeUndefined();
    const last = pod({ phase: "Failed", ...agent({ exitCode: 137, reason: "OOMKilled" }) });
    expect(troubleOf(last)).toMatchObject({ reason: "OutOfMemory" });
  });
});

describe("who took a Pod away", () => {
  const target = (reason: string, message = "") => ({
    phase: "Running",
    conditions: [{ type: "DisruptionTarget", status: "True", reason, message }],
  });

  test.each([
    ["EvictionByEvictionAPI", "Evicted", "was evicted through the eviction API, as a drain of its node does"],
    ["PreemptionByScheduler", "Preempted", "had to make room for a Pod of higher priority"],
    ["DeletionByTaintManager", "NodeLost", "was taken from its node, which does not answer or was tainted"],
    ["DeletionByPodGC", "NodeLost", "is gone with its node"],
  ])("%s: %s", (by, reason, what) => {
    expect(disruptionOf(pod(target(by, "Eviction API: evicting")))).toEqual({
      reason,
      message: `the workload Pod (node node-1) ${what}: Eviction API: evicting`,
    });
    expect(reasonClass(reason)).toBe("failed");
  });

  test("is said by a Pod that is over, where its node is gone and no container says how it ended", () => {
    const message = "PodGC: node no longer exists";
    const over = pod({ ...runningStatus, ...target("DeletionByPodGC", message), phase: "Failed" });
    const expected = { reason: "NodeLost", message: `the Pod (node node-1) is gone with its node: ${message}` };
    expect(troubleOf(over)).toEqual(expected);
    const exited = { ...target("DeletionByPodGC", message), ...ended({ exitCode: 3 }) };
    expect(troubleOf(pod(exited))).toMatchObject({ reason: "WorkloadExited" });
  });

  test("nobody, after a plain deletion or for a word that is not known", () => {
    expect(disruptionOf(pod(runningStatus))).toBeUndefined();
    expect(disruptionOf(pod(target("SomethingNew")))).toBeUndefined();
  });
});

test("a node is silent when its Pod is not ready although its containers were", () => {
  const conditions = (status: string) => [{ type: "Ready", status }];
  const ready = runningStatus.containerStatuses ?? [];
  expect(isOnSilentNode(pod({ ...runningStatus, conditions: conditions("False") }))).toBe(true);
  expect(isOnSilentNode(pod({ ...runningStatus, conditions: conditions("True") }))).toBe(false);
  const exited = ready.map((one) => ({ ...one, ready: false }));
  const status = { ...runningStatus, conditions: conditions("False"), containerStatuses: exited };
  expect(isOnSilentNode(pod(status))).toBe(false);
});

describe("why a released Pod has no node", () => {
  const unplaced = (message: string) => {
    const conditions = [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message }];
    return testPod("workload", record, { gated: false, status: { phase: "Pending", conditions } });
  };

  test.each([
    ["Unschedulable", "0/2 nodes are available: 2 Insufficient memory."],
    ["WaitingForVolume", "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."],
    ["WaitingForVolume", "0/2 nodes are available: 2 node(s) had volume node affinity conflict."],
    [
      "WaitingForVolume",
      "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) were unschedulable.",
    ],
    [
      "Unschedulable",
      "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) didn't match pod anti-affinity rules.",
    ],
    ["WaitingForVolume", 'persistentvolumeclaim "workspace-default--blue" not found'],
  ])("%s: %s", (reason, message) => {
    expect(schedulingTrouble("workload", unplaced(message))).toEqual({
      reason,
      message: `no node fits the workload Pod: ${message}`,
    });
    expect(reasonClass(reason)).toBe("waiting");
  });

  test("nothing once it has one", () => {
    expect(schedulingTrouble("workload", pod(runningStatus))).toBeUndefined();
  });
});
