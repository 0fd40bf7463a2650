import fc from "fast-check";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { ServerClock } from "./server-clock.ts";

const at = Date.parse("2026-01-01T00:00:00Z");

describe("the API server's clock", () => {
  test("is this machine's until an answer says otherwise, and where the two agree", () => {
    const clock = new ServerClock(() => at + 400);
    expect(clock.now().getTime()).toBe(at + 400);
    clock.hear({ durationMs: 5 });
    clock.hear({ answeredAt: new Date(at), durationMs: 5 });
    // One that was a long time on its way.
    clock.hear({ answeredAt: new Date(at - 30_000), durationMs: 30_500 });
    expect(clock.now().getTime()).toBe(at + 400);
  });

  test("goes on as it did when somebody sets this machine's clock", () => {
    const clock = new ServerClock();
    const before = clock.now().getTime();
    vi.spyOn(Date, "now").mockReturnValue(before + 3_600_000);
    onTestFinished(() => void vi.restoreAllMocks());
    expect(clock.now().getTime() - before).toBeLessThan(60_000);
  });

  test("is within a second and the time of one exchange of the server's, whatever this machine's says", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: -1e9, max: 1e9 }),
        fc.array(fc.tuple(fc.nat(20_000), fc.nat(20_000)), { minLength: 1, maxLength: 20 }),
        (skew, exchanges) => {
          let real = at;
          const clock = new ServerClock(() => real + skew);
          for (const [there, back] of exchanges) {
            const answeredAt = new Date(Math.floor((real + there) / 1000) * 1000);
            real += there + back;
            clock.hear({ answeredAt, durationMs: there + back });
          }
          const shortest = Math.min(...exchanges.map(([there, back]) => there + back));
          const error = Math.abs(clock.now().getTime() - real);
          return error <= shortest + 1_000;
        },
      ),
    );
  });
});
