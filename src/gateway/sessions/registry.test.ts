import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { admit, type Hello, type Registration, release } from "./registry.ts";

const hello = (change: Partial<Hello> = {}): Hello => ({
  sessionId: "s1",
  instanceId: "i1",
  epoch: 1n,
  connection: 1,
  ...change,
});

function accept(before: Registration | undefined, change: Partial<Hello>): Registration {
  const admission = admit(before, hello(change));
  if (!admission.accepted) throw new Error(admission.reason);
  return admission.registration;
}

describe("the supervisor registry", () => {
  it("lets a newer connection of the same instance replace the older", () => {
    const first = accept(undefined, {});
    const second = admit(first, hello({ epoch: 2n, connection: 2 }));
    expect(second).toMatchObject({ accepted: true, replaces: 1, registration: { connection: 2 } });
  });

  it("pins the first instance of a session", () => {
    expect(admit(accept(undefined, {}), hello({ instanceId: "i2", epoch: 9n, connection: 2 }))).toEqual({
      accepted: false,
      reason: "this session belongs to supervisor instance i1",
    });
  });

  it("refuses an epoch that was used, also after the connection ended", () => {
    const idle = release(accept(undefined, { epoch: 5n }), 1);
    expect(admit(idle, hello({ epoch: 5n, connection: 2 }))).toMatchObject({ accepted: false });
    expect(admit(idle, hello({ epoch: 6n, connection: 2 }))).toMatchObject({ accepted: true, replaces: undefined });
  });

  it("begins anew with a new session", () => {
    const first = accept(undefined, { epoch: 7n });
    const second = admit(first, hello({ sessionId: "s2", instanceId: "i2", epoch: 1n, connection: 2 }));
    expect(second).toMatchObject({ accepted: true, replaces: 1 });
  });

  it("keeps one connection at most and epochs growing, whatever comes in whatever order", () => {
    const step = fc.oneof(
      fc.record({
        kind: fc.constant("hello" as const),
        session: fc.integer({ min: 1, max: 2 }),
        instance: fc.integer({ min: 0, max: 2 }),
        epoch: fc.bigInt({ min: 0n, max: 6n }),
      }),
      fc.record({ kind: fc.constant("end" as const), connection: fc.integer({ min: 1, max: 20 }) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        let state: Registration | undefined;
        const open = new Set<number>();
        for (const [index, one] of steps.entries()) {
          const before = state;
          if (one.kind === "end") {
            open.delete(one.connection);
            if (state !== undefined) state = release(state, one.connection);
          } else {
            const instanceId = one.instance === 0 ? "" : `i${one.instance}`;
            const admission = admit(state, {
              sessionId: `s${one.session}`,
              instanceId,
              epoch: one.epoch,
              connection: index + 1,
            });
            if (!admission.accepted) continue;
            if (admission.replaces !== undefined) open.delete(admission.replaces);
            state = admission.registration;
            open.add(index + 1);
            if (before?.sessionId === state.sessionId) {
              expect(state.epoch > before.epoch).toBe(true);
              expect(state.instanceId).toBe(before.instanceId);
            }
          }
          expect([...open]).toEqual(state?.connection === undefined ? [] : [state.connection]);
        }
      }),
    );
  });
});
