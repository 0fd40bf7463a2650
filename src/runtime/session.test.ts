import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { claim, disconnect, mayOpenChannel, type SessionState, terminate, waiting } from "./session.ts";

const hello = (session: number, instanceId: string, connection: number) => ({
  grant: { session, tls: `tls-${session}` },
  instanceId,
  connection,
});

const active: SessionState = { kind: "active", session: 2, instanceId: "a", tls: "tls-2", connection: 1 };
const lost: SessionState = { kind: "lost", session: 2, instanceId: "a", tls: "tls-2" };

describe("a hello", () => {
  it.each([
    ["the first", waiting(), hello(2, "a", 5), true, undefined],
    ["a newer session while one is active", active, hello(3, "b", 5), true, 1],
    ["a newer session after a loss", lost, hello(3, "b", 5), true, undefined],
    ["the same process again after a loss", lost, hello(2, "a", 5), true, undefined],
    ["the same process again before its loss was noticed", active, hello(2, "a", 5), true, 1],
  ] as const)("is accepted: %s", (_name, state, one, accepted, replaced) => {
    expect(claim(state, one)).toEqual({
      accepted,
      replaced,
      state: {
        kind: "active",
        session: one.grant.session,
        instanceId: one.instanceId,
        tls: one.grant.tls,
        connection: 5,
      },
    });
  });

  it.each([
    ["an older session", active, hello(1, "a", 5), "OLDER_SESSION"],
    ["an older session after a loss", lost, hello(1, "a", 5), "OLDER_SESSION"],
    ["another process with the same session", active, hello(2, "b", 5), "OTHER_INSTANCE"],
    ["another process with the same session after a loss", lost, hello(2, "b", 5), "OTHER_INSTANCE"],
    ["anybody after the end", terminate(), hello(9, "z", 5), "TERMINATED"],
  ] as const)("is refused: %s", (_name, state, one, refusal) => {
    expect(claim(state, one)).toMatchObject({ accepted: false, refusal });
  });
});

describe("a session through any history", () => {
  const events = fc.array(
    fc.oneof(
      fc.record({
        kind: fc.constant("hello" as const),
        session: fc.integer({ min: 1, max: 4 }),
        instanceId: fc.constantFrom("a", "b"),
      }),
      fc.record({ kind: fc.constant("disconnect" as const), connection: fc.integer({ min: 0, max: 20 }) }),
      fc.constant({ kind: "terminate" as const }),
    ),
    { maxLength: 30 },
  );

  it("never goes back, keeps one process per session, and has an end that is final", () => {
    fc.assert(
      fc.property(events, (history) => {
        let state: SessionState = waiting();
        let highest = 0;
        const pinned = new Map<number, string>();
        let over = false;
        history.forEach((event, connection) => {
          if (event.kind === "terminate") {
            state = terminate();
            over = true;
          } else if (event.kind === "disconnect") {
            state = disconnect(state, event.connection);
          } else {
            const result = claim(state, hello(event.session, event.instanceId, connection));
            if (!result.accepted) return;
            expect(over).toBe(false);
            expect(event.session).toBeGreaterThanOrEqual(highest);
            expect(pinned.get(event.session) ?? event.instanceId).toBe(event.instanceId);
            pinned.set(event.session, event.instanceId);
            highest = event.session;
            state = result.state;
            expect(mayOpenChannel(state, `tls-${event.session}`)).toBe(true);
            expect(mayOpenChannel(state, "tls-other")).toBe(false);
          }
        });
        if (over) expect(state.kind).toBe("terminated");
      }),
    );
  });

  it("opens no channel while its supervisor is away", () => {
    expect(mayOpenChannel(lost, "tls-2")).toBe(false);
    expect(mayOpenChannel(waiting(), "")).toBe(false);
  });

  it("does not mind the end of a connection that was replaced", () => {
    expect(disconnect(active, 0)).toBe(active);
  });
});
