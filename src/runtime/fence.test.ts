import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type FenceState, observe, permits, probing } from "./fence.ts";
import { parseTargets } from "./fence-probe.ts";

/** Rounds of 100 ms one after the other, from a string: `x` nothing reached, `o` reached. */
function observing(start: FenceState, rounds: string, at = 0): FenceState {
  return [...rounds].reduce(
    (state, one, index) =>
      observe(state, {
        startedAt: at + index * 100,
        endedAt: at + (index + 1) * 100,
        ...(one === "o" ? { reachable: "10.0.0.1:443" } : {}),
      }),
    start,
  );
}

describe("the fence", () => {
  it("stands after a second without a connection", () => {
    expect(observing(probing(0), "x".repeat(9)).kind).toBe("probing");
    expect(observing(probing(0), "x".repeat(10)).kind).toBe("fenced");
  });

  it("starts to count again after every connection", () => {
    expect(observing(probing(0), `${"x".repeat(9)}o${"x".repeat(9)}`).kind).toBe("probing");
    expect(observing(probing(0), `${"x".repeat(9)}o${"x".repeat(10)}`).kind).toBe("fenced");
  });

  it("is found not enforced after thirty seconds, and still closes later", () => {
    expect(observing(probing(0), "o".repeat(299)).kind).toBe("probing");
    const open = observing(probing(0), "o".repeat(300));
    expect(open).toEqual({ kind: "not-enforced", reachable: "10.0.0.1:443" });
    expect(observing(open, "x".repeat(10), 30_000).kind).toBe("fenced");
  });

  it("that is connected through later is breached until it held for a second again", () => {
    const breached = observe({ kind: "fenced" }, { startedAt: 0, endedAt: 1, reachable: "10.0.0.1:443" });
    expect(breached).toEqual({ kind: "breached", reachable: "10.0.0.1:443" });
    expect(observing(breached, "x".repeat(9)).kind).toBe("breached");
    expect(observing(breached, "x".repeat(10)).kind).toBe("fenced");
  });

  it("never permits agent processes when the last second had a connection", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom("x", "o"), { maxLength: 400 }), (rounds) => {
        const state = observing(probing(0), rounds.join(""));
        if (rounds.slice(-10).includes("o") || rounds.length < 10) expect(permits(state)).toBe(false);
        else expect(permits(state)).toBe(true);
      }),
    );
  });
});

describe("fence targets", () => {
  it("are IP literals with ports", () => {
    expect(parseTargets("10.96.0.1:443, [fd00::1]:8080,")).toEqual([
      { host: "10.96.0.1", port: 443 },
      { host: "fd00::1", port: 8080 },
    ]);
  });

  it.each(["kubernetes.default:443", "10.0.0.1", "10.0.0.1:0", "10.0.0.1:70000", "fd00::1:80", "[10.0.0.1"])(
    "are not %s",
    (text) => {
      expect(() => parseTargets(text)).toThrow(/is not IP:PORT/);
    },
  );
});
