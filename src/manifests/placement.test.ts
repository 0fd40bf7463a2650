import { describe, expect, test } from "vitest";
import type { Affinity } from "./generation.ts";
import { labels } from "./names.ts";
import { affinityOf, foreignAffinity, mergeAffinity, peerTerm, supervisorTolerations } from "./placement.ts";

const required = "requiredDuringSchedulingIgnoredDuringExecution";
const preferred = "preferredDuringSchedulingIgnoredDuringExecution";
const zoneTerm = { labelSelector: { matchLabels: { app: "x" } }, topologyKey: "topology.kubernetes.io/zone" };
const nodes = (...keys: string[]): Affinity => ({
  nodeAffinity: {
    [required]: { nodeSelectorTerms: keys.map((key) => ({ matchExpressions: [{ key, operator: "Exists" }] })) },
  },
});

describe("the pair's own rule", () => {
  test("mode off leaves no affinity at all", () => {
    expect(affinityOf("workload", "off", "g1")).toBeUndefined();
    expect(affinityOf("supervisor", "off", "g1", {}, {})).toBeUndefined();
  });

  test.each(["workload", "supervisor"] as const)(
    "required: the %s keeps off its peer's node and nobody else's",
    (role) => {
      const peer = role === "workload" ? "supervisor" : "workload";
      expect(affinityOf(role, "required", "g1")).toEqual({
        podAntiAffinity: {
          [required]: [
            {
              labelSelector: { matchLabels: { [labels.pairId]: "g1", [labels.boundaryRole]: peer } },
              topologyKey: "kubernetes.io/hostname",
            },
          ],
        },
      });
    },
  );

  test("preferred: the same term with weight 100", () => {
    expect(affinityOf("workload", "preferred", "g1")?.podAntiAffinity).toEqual({
      [preferred]: [{ weight: 100, podAffinityTerm: peerTerm("workload", "g1") }],
    });
  });

  test("it is appended to operators' terms, which keep their order", () => {
    const operator: Affinity = { podAntiAffinity: { [required]: [zoneTerm] }, ...nodes("pool") };
    const affinity = affinityOf("workload", "required", "g1", operator);
    expect(affinity?.podAntiAffinity).toEqual({ [required]: [zoneTerm, peerTerm("workload", "g1")] });
    expect(affinity?.nodeAffinity).toEqual(operator.nodeAffinity);
  });
});

describe("merging affinities", () => {
  test("alternatives of required node terms are combined, so that none widens the other", () => {
    const merged = mergeAffinity(nodes("a", "b"), nodes("c"));
    const exists = (key: string) => ({ key, operator: "Exists" });
    expect(merged.nodeAffinity?.[required]).toEqual({
      nodeSelectorTerms: [
        { matchExpressions: [exists("a"), exists("c")] },
        { matchExpressions: [exists("b"), exists("c")] },
      ],
    });
  });

  test("merging with nothing changes nothing", () => {
    const some: Affinity = { ...nodes("a"), podAffinity: { [required]: [zoneTerm] } };
    expect(mergeAffinity(some, {})).toEqual(some);
    expect(mergeAffinity({}, some)).toEqual(some);
  });
});

describe("what others wrote", () => {
  test("survives, and terms of an earlier generation do not", () => {
    const rendered = affinityOf("workload", "required", "old", nodes("pool"));
    const actual: Affinity = {
      ...nodes("pool"),
      podAntiAffinity: { [required]: [zoneTerm, peerTerm("workload", "old"), peerTerm("workload", "older")] },
      podAffinity: { [preferred]: [{ weight: 1, podAffinityTerm: zoneTerm }] },
    };
    expect(foreignAffinity(actual, rendered)).toEqual({
      podAntiAffinity: { [required]: [zoneTerm] },
      podAffinity: { [preferred]: [{ weight: 1, podAffinityTerm: zoneTerm }] },
    });
  });

  test("what others demand of a node stays apart from what operators demand, however often either is changed", () => {
    const demand = (key: string, value: string) => ({ key, operator: "In", values: [value] });
    const affinity = (...terms: object[]): Affinity => ({ nodeAffinity: { [required]: { nodeSelectorTerms: terms } } });
    const pools = (...names: string[]) =>
      affinity(...names.map((name) => ({ matchExpressions: [demand("pool", name)] })));
    const others = affinity({ matchExpressions: [demand("zone", "z1")], matchFields: [demand("metadata.name", "n")] });
    // What a start renders is what the next one finds.
    let foreign = others;
    for (const operators of [pools("a"), pools("b", "c"), pools("d")]) {
      const actual = affinityOf("workload", "off", "g", operators, foreign);
      foreign = foreignAffinity(actual, operators);
      expect(foreign).toEqual(others);
    }
  });

  test("an operator's former term is not foreign, whatever the order of its keys", () => {
    const reordered: Affinity = {
      nodeAffinity: {
        [required]: { nodeSelectorTerms: [{ matchExpressions: [{ operator: "Exists", key: "pool" }] }] },
      },
    };
    expect(foreignAffinity(reordered, nodes("pool"))).toEqual({});
    expect(foreignAffinity(undefined, nodes("pool"))).toEqual({});
  });
});

describe("supervisor tolerations", () => {
  test("a lost node is noticed after 15 s", () => {
    expect(supervisorTolerations([]).map(({ key, tolerationSeconds }) => [key, tolerationSeconds])).toEqual([
      ["node.kubernetes.io/not-ready", 15],
      ["node.kubernetes.io/unreachable", 15],
    ]);
  });

  test("an operator's own answer to a lost node is kept", () => {
    const own = {
      key: "node.kubernetes.io/unreachable",
      operator: "Exists" as const,
      effect: "NoExecute" as const,
      tolerationSeconds: 60,
    };
    expect(supervisorTolerations([own])).toHaveLength(2);
    expect(supervisorTolerations([own])[0]).toEqual(own);
  });
});
