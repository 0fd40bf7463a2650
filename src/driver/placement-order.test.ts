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
    expect(isBlockedByPeer(text, false)).toBe(expected);
  });

  const oneOf = (other: string) =>
    `0/2 nodes are available: 1 node(s) didn't match pod anti-affinity rules, ${other}. preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.`;

  test.each<[string, boolean, boolean]>([
    ["1 Insufficient cpu", true, true],
    ["1 node(s) were unschedulable", false, false],
    ["1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }", false, false],
    ["1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }", false, false],
    ["1 node(s) had untolerated taint {example.com/agents: yes}", false, true],
    ["1 node(s) had untolerated taint(s)", false, true],
  ])("beside a node with %j is worth one: %s, and where its peer tolerates more: %s", (other, expected, ifMore) => {
    expect(isBlockedByPeer(oneOf(other), false)).toBe(expected);
    expect(isBlockedByPeer(oneOf(other), true)).toBe(ifMore);
  });

  test("is worth one for the node that is left of several", () => {
    const closed = "1 node(s) had untolerated taint {a: }, 2 node(s) had untolerated taint {b: }";
    const rules = "1 node(s) didn't match pod anti-affinity rules";
    expect(isBlockedByPeer(`0/4 nodes are available: ${rules}, ${closed}.`, false)).toBe(false);
    expect(isBlockedByPeer(`0/5 nodes are available: ${rules}, 1 Insufficient cpu, ${closed}.`, false)).toBe(true);
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

  test("is moved to a tainted node only if it tolerates what its peer does not", () => {
    const message = oneOf("1 node(s) had untolerated taint(s)");
    const status = { ...blocked, conditions: blocked.conditions.map((one) => ({ ...one, message })) };
    const common = [{ key: "node.kubernetes.io/not-ready", operator: "Exists", tolerationSeconds: 300 }];
    const supervisor = testPod("supervisor", record(), { gated: false, status, spec: { tolerations: common } });
    const tolerating = (...tolerations: object[]) => ({
      workload: testPod("workload", record(), { gated: false, node: "a", spec: { tolerations } }),
      supervisor,
    });
    expect(podInTheWay(record(), tolerating(...common), later(9_000))).toBeUndefined();
    const sooner = { ...common[0], tolerationSeconds: 30 };
    expect(podInTheWay(record(), tolerating(sooner), later(9_000))).toBeUndefined();
    const agents = { key: "example.com/agents", operator: "Exists" };
    expect(podInTheWay(record(), tolerating(...common, agents), later(9_000))).toMatchObject({ waitMs: 0 });
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

  test("is never moved where it could preempt its peer if it came second", () => {
    const prior = (spec: object) => ({
      ...pods,
      workload: testPod("workload", record(), { gated: false, node: "a", spec: { priority: 1000, ...spec } }),
    });
    expect(podInTheWay(record(), prior({}), later(2_000))).toBeUndefined();
    expect(podInTheWay(record(), prior({ preemptionPolicy: "Never" }), later(2_000))).toMatchObject({ waitMs: 0 });
  });

  test("is moved after a supervisor was lost whose workload never had a node; that loss counts no more", () => {
    const replacedAt = [testNow.toISOString()];
    const turned = record({}, { replacedAt, placement: { evicted: ["x"] } });
    const waiting = {
      workload: testPod("workload", record(), { gated: false, status: blocked }),
      supervisor: testPod("supervisor", record(), { gated: false, node: "a" }),
    };
    expect(podInTheWay(turned, waiting, later(8_000))).toMatchObject({ waitMs: 0, pod: waiting.supervisor });
    expect(withoutNode(turned, waiting.supervisor).replacedAt).toBeUndefined();
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
