import { once } from "node:events";
import { createServer } from "node:net";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type FenceState, observe, permits, probing } from "./fence.ts";
import { answerOf, parseTargets, tryTarget } from "./fence-probe.ts";

/** Rounds of 100 ms one after the other, from a string: `x` nothing reached, `o` reached, `?` not told. */
function observing(start: FenceState, rounds: string, at = 0): FenceState {
  return [...rounds].reduce(
    (state, one, index) =>
      observe(state, {
        startedAt: at + index * 100,
        endedAt: at + (index + 1) * 100,
        ...(one === "o" ? { reachable: "10.0.0.1:443" } : {}),
        ...(one === "?" ? { untold: "EMFILE" } : {}),
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

  it("does not stand, and no longer stands, for who cannot tell", () => {
    expect(observing(probing(0), `${"x".repeat(9)}?${"x".repeat(9)}`).kind).toBe("probing");
    expect(observing(probing(0), `${"x".repeat(9)}?${"x".repeat(10)}`).kind).toBe("fenced");
    expect(observing(probing(0), "?".repeat(400)).kind).toBe("probing");
    const blind = observing({ kind: "fenced" }, "?");
    expect(blind).toEqual({ kind: "breached", untold: "EMFILE" });
    expect(observing(blind, `${"x".repeat(9)}?${"x".repeat(9)}`).kind).toBe("breached");
    expect(observing(blind, "x".repeat(10)).kind).toBe("fenced");
  });

  it("never permits agent processes when the last second had a connection or could not be told", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom("x", "o", "?"), { maxLength: 400 }), (rounds) => {
        const state = observing(probing(0), rounds.join(""));
        if (/[o?]/.test(rounds.slice(-10).join("")) || rounds.length < 10) expect(permits(state)).toBe(false);
        else expect(permits(state)).toBe(true);
      }),
    );
  });
});

describe("a probe", () => {
  it.each(["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "EPERM"])("finds the path closed by %s", (code) => {
    expect(answerOf(code, 4)).toBe("closed");
  });

  it.each(["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "EAGAIN", undefined])("is told nothing by %s", (code) => {
    expect(answerOf(code, 4)).toEqual({ untold: code ?? "unknown" });
  });

  it("finds the path closed without an address of the target's family, and is told nothing without a port", () => {
    const address = (version: number) => version === 4;
    expect(answerOf("EADDRNOTAVAIL", 6, address)).toBe("closed");
    expect(answerOf("EADDRNOTAVAIL", 4, address)).toEqual({ untold: "EADDRNOTAVAIL" });
  });

  it("sees a connection although its process stood still for longer than it waits", async () => {
    const server = createServer((socket) => socket.destroy());
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    const answer = tryTarget({ host: "127.0.0.1", port: typeof address === "object" ? (address?.port ?? 0) : 0 });
    await new Promise((resolve) => process.nextTick(resolve));
    for (const until = performance.now() + 600; performance.now() < until; );
    expect(await answer).toBe("open");
    server.close();
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
