import { describe, expect, test } from "vitest";
import { testNow, testPod, testRecord, testSettings, testSpec } from "./_testing.ts";
import { firstPlaced, isBlockedByPeer, podInTheWay, withoutNode } from "./placement-order.ts";

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

  const waitAfter = (tries: number) => {
    const tried = record({}, { placement: { evicted: Array.from({ length: tries }, String) } });
    // In the turned order it is the other one that waits.
    const turned = {
      workload: testPod("workload", record(), { gated: false, status: blocked }),
      supervisor: testPod("supervisor", record(), { gated: false, node: "a" }),
    };
    return podInTheWay(tried, tries % 2 === 0 ? pods : turned, testNow)?.waitMs;
  };

  test("is left more and more time the more often it did not help, up to five minutes", () => {
    expect([0, 2, 4, 20].map(waitAfter)).toEqual([2_000, 32_000, 300_000, 300_000]);
  });

  test("is left little time in the turned order, so that the pair waits in the natural one", () => {
    expect([1, 3, 19].map(waitAfter)).toEqual([8_000, 8_000, 8_000]);
  });

  test("is never moved once its agent may have run, nor where the pair may share a node", () => {
    const replacedAt = [testNow.toISOString()];
    expect(podInTheWay(record({}, { replacedAt, workloadUid: "workload-uid" }), pods, later(9_000))).toBeUndefined();
    expect(podInTheWay(testRecord(), pods, later(9_000))).toBeUndefined();
  });

  test("is moved although its containers run, as long as no supervisor of it ever did", () => {
    expect(podInTheWay(record({}, { workloadUid: "workload-uid" }), pods, later(2_000))).toMatchObject({ waitMs: 0 });
  });
});

describe("a Pod that gives up its node", () => {
  test("is remembered, with as many before it as say whose turn it is", () => {
    let tried = record({}, { workloadUid: "w1" });
    for (let tries = 1; tries <= 50; tries += 1) {
      tried = withoutNode(tried, testPod("workload", record(), { uid: `w${tries}` }));
      const evicted = tried.placement?.evicted ?? [];
      expect(evicted.at(-1)).toBe(`w${tries}`);
      expect(evicted.length % 2).toBe(tries % 2);
      expect(evicted.length).toBeLessThanOrEqual(20);
      expect(firstPlaced(tried)).toBe(tries % 2 === 0 ? "workload" : "supervisor");
    }
    expect(tried.workloadUid).toBeUndefined();
  });
});
