import { describe, expect, test } from "vitest";
import { testNow, testPod, testRecord, testSettings, testSpec } from "./_testing.ts";
import { firstPlaced, isBlockedByPeer, podInTheWay } from "./placement-order.ts";

const mode = { pod_anti_affinity: "required" } as const;
const pinned = { "kubernetes.io/hostname": "node-1" };
const record = (settings: Parameters<typeof testSettings>[0] = {}, change: Parameters<typeof testRecord>[0] = {}) =>
  testRecord(change, testSettings(settings, mode));

describe("who is placed first", () => {
  test.each<[string, "workload" | "supervisor", ReturnType<typeof record>]>([
    ["neither is tied to nodes", "workload", record()],
    ["the workload is", "workload", record({ workload_node_selector: pinned })],
    [
      "the caller's workload is",
      "workload",
      record({ supervisor_node_selector: pinned }, { sandbox: testSpec({ nodeSelector: pinned }) }),
    ],
    ["both are", "workload", record({ workload_node_selector: pinned, supervisor_node_selector: pinned })],
    ["only the supervisor is", "supervisor", record({ supervisor_node_selector: pinned })],
    [
      "the supervisor is, and the workload has a volume",
      "workload",
      record(
        { supervisor_node_selector: pinned },
        { generation: { id: "a", session: 2, seeded: true, foreignAffinity: {} } },
      ),
    ],
    ["the first gave up its node", "supervisor", record({}, { placement: { evicted: ["x"] } })],
    ["both have once", "workload", record({}, { placement: { evicted: ["x", "y"] } })],
  ])("when %s: the %s", (_what, first, given) => {
    expect(firstPlaced(given)).toBe(first);
  });
});

const blockedText =
  "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) didn't match pod anti-affinity rules.";

describe("a Pod in its peer's way", () => {
  test.each<[string, boolean]>([
    [blockedText, true],
    ["0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.", false],
    ["0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", false],
    ["0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy existing pods anti-affinity rules.", true],
    ["", false],
  ])("%j is worth a re-placement: %s", (text, expected) => {
    expect(isBlockedByPeer(text)).toBe(expected);
  });

  const blocked = {
    phase: "Pending",
    conditions: [
      {
        type: "PodScheduled",
        status: "False",
        reason: "Unschedulable",
        message: blockedText,
        lastTransitionTime: testNow.toISOString(),
      },
    ],
  };
  const pods = {
    workload: testPod("workload", record(), { gated: false, node: "a" }),
    supervisor: testPod("supervisor", record(), { gated: false, status: blocked }),
  };
  const later = (ms: number) => new Date(testNow.getTime() + ms);

  test("is waited for a little, then named", () => {
    expect(podInTheWay(record(), pods, testNow)).toMatchObject({ waitMs: 2_000 });
    expect(podInTheWay(record(), pods, later(2_000))).toMatchObject({
      waitMs: 0,
      pod: { metadata: { uid: "workload-uid" } },
    });
  });

  test("is left more and more time the more often it did not help, up to five minutes", () => {
    const waits = [1, 2, 3, 10].map((count) => {
      const tried = record({}, { placement: { evicted: Array.from({ length: count * 2 }, String) } });
      return podInTheWay(tried, pods, testNow)?.waitMs;
    });
    expect(waits).toEqual([32_000, 300_000, 300_000, 300_000]);
  });

  test("is never moved once the agent ran, nor where the pair may share a node", () => {
    expect(podInTheWay(record({}, { workloadUid: "workload-uid" }), pods, later(9_000))).toBeUndefined();
    expect(podInTheWay(testRecord(), pods, later(9_000))).toBeUndefined();
  });
});
