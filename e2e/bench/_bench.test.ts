import { describe, expect, it } from "vitest";
import type { Scrape } from "../support/gateway-metrics.ts";
import { inParallel, percentile, poisson, tail } from "./_arrivals.ts";
import { ofSandboxes, quantileBetween, requestsBetween, total, writesIn } from "./_counts.ts";
import { programCpuSeconds, programName, spentBetween, ticksOf } from "./_programs.ts";

const scrape = (values: Record<string, number>): Scrape => ({ names: [], values: new Map(Object.entries(values)) });
const request = (verb: string, resource: string, code = 200) =>
  `openshell_kube_requests_total{verb="${verb}",resource="${resource}",code="${code}"}`;

describe("percentiles", () => {
  it("are values that were measured, and count what failed as the worst", () => {
    const numbers = Array.from({ length: 100 }, (_, index) => 100 - index);
    expect([0.5, 0.9, 0.99, 1].map((share) => percentile(numbers, share))).toEqual([50, 90, 99, 100]);
    expect(percentile([1, undefined, 2], 0.99)).toBe(Number.POSITIVE_INFINITY);
    expect(percentile([7], 0.5)).toBe(7);
  });

  it("are reported with how many failed, which no target is met with", () => {
    expect(tail([1, undefined, 2])).toEqual({
      p50: 2,
      p90: Number.POSITIVE_INFINITY,
      p99: Number.POSITIVE_INFINITY,
      failed: 1,
    });
  });

  it("of a histogram lie within their bucket, and tell only of what came between two scrapes", () => {
    const before = scrape({ 'x_bucket{le="1"}': 10, 'x_bucket{le="2"}': 10, 'x_bucket{le="+Inf"}': 10 });
    const after = scrape({ 'x_bucket{le="1"}': 10, 'x_bucket{le="2"}': 20, 'x_bucket{le="+Inf"}': 20 });
    expect(quantileBetween("x", before, after, 0.5)).toBe(1.5);
    expect(quantileBetween("x", before, after, 1)).toBe(2);
    expect(quantileBetween("x", before, before, 0.5)).toBeNaN();
  });
});

describe("counted requests", () => {
  it("are those between two scrapes, whatever they were answered, without what is nobody's", () => {
    const before = scrape({ [request("create", "pods")]: 2, [request("patch", "leases")]: 5 });
    const after = scrape({
      [request("create", "pods")]: 3,
      [request("create", "pods", 409)]: 1,
      [request("patch", "leases")]: 9,
      [request("watch", "pods")]: 1,
      [request("create", "selfsubjectaccessreviews")]: 4,
      [request("list", "pods")]: 1,
    });
    const between = requestsBetween(before, after);
    expect(between.get("create pods")).toBe(2);
    expect(total(ofSandboxes(between))).toBe(7);
    expect([...writesIn(between)]).toEqual([["create pods", 2]]);
  });
});

describe("a program's time", () => {
  it("is under the name that tells it apart", () => {
    expect(programName(["/usr/bin/etcd", "--name=one", ""])).toBe("etcd");
    expect(programName(["/cache/kubernetes-v1.34.4", "kube-apiserver", "--v=1"])).toBe("kube-apiserver");
    expect(programName(["node", "--disable-sigusr1", "/openshell/runtime.mjs"])).toBe("runtime.mjs");
    expect(programName(["/opt/node", "e2e/cluster/agent-sandbox/main.ts", "--version"])).toBe("agent-sandbox");
    expect(programName(["node", "--version"])).toBe("node");
    expect(programName([""])).toBeUndefined();
  });

  it("is what it spent itself, however odd its name", () => {
    expect(ticksOf("7 (a b) (c)) S 1 7 7 0 -1 4194304 100 200 0 0 30 12 5 6 20 0 1 0 99")).toBe(42);
  });

  it("is counted between two looks, the most first, without what did nothing", () => {
    const spent = spentBetween(
      new Map([["a", 1]]),
      new Map([
        ["a", 2],
        ["b", 4],
        ["c", 0],
      ]),
      2,
    );
    expect([...spent]).toEqual([
      ["b", 2],
      ["a", 0.5],
    ]);
  });

  it("is read of this machine", { skip: process.platform !== "linux" }, () => {
    const [seconds] = [...programCpuSeconds().values()].sort((left, right) => right - left);
    expect(seconds).toBeGreaterThan(0);
  });
});

describe("arrivals", () => {
  it("do not wait for each other, and a failure is told and is no end", async () => {
    const gate = Promise.withResolvers<number>();
    let begun = 0;
    const all = poisson(10_000, 5, (index) => {
      begun += 1;
      if (begun === 5) gate.resolve(3);
      return index === 2 ? Promise.reject(new Error("no")) : gate.promise;
    });
    expect(await all).toEqual({ latenciesMs: [3, 3, undefined, 3, 3], failures: ["no"] });
  });

  it("of a loop are at most so many at once", async () => {
    let now = 0;
    let most = 0;
    const done: number[] = [];
    await inParallel(10, 3, async (index) => {
      now += 1;
      most = Math.max(most, now);
      await Promise.resolve();
      now -= 1;
      done.push(index);
    });
    expect(most).toBe(3);
    expect(done.sort((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });
});
