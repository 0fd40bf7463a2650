import { create } from "@bufbuild/protobuf";
import { pino } from "pino";
import { expect, test } from "vitest";
import type { BackoffOptions } from "../common/async.ts";
import { openshell } from "../wire/index.ts";
import { GatewaySession } from "./gateway-session.ts";
import type { SessionToken } from "./token.ts";

/** A gateway that accepts each session, and drops it after `livesMs` by the session's clock. */
async function beginAgain(times: number, livesMs: number, backoff: BackoffOptions): Promise<void> {
  const stop = new AbortController();
  let begun = 0;
  let now = 0;
  const client = {
    async *connectSupervisor() {
      begun += 1;
      if (begun > times) stop.abort();
      const value = { sessionId: "s1" };
      yield create(openshell.GatewayMessageSchema, { payload: { case: "sessionAccepted", value } });
      now += livesMs;
    },
  };
  const token = { ensure: async () => {}, headers: () => ({}), sessionAccepted: () => {} };
  const session = new GatewaySession({
    gateway: { client, close: () => {} },
    token: token as unknown as SessionToken,
    sandboxId: "sb-1",
    instanceId: "i-1",
    log: pino({ level: "silent" }),
    backoff,
    now: () => now,
    onLink: () => {},
    onRelayOpen: () => {},
    onRelayClose: () => {},
  });
  await expect(session.run(stop.signal)).rejects.toThrow();
}

test("a session that is accepted and dropped is begun again each time later", async () => {
  const begin = performance.now();
  await beginAgain(8, 1_000, { initialMs: 2, random: () => 0 });
  expect(performance.now() - begin).toBeGreaterThan(1 + 2 + 4 + 8 + 16 + 32 + 64);
});

test("one that lived is followed by the next at once", async () => {
  await beginAgain(8, 5_000, { initialMs: 2, factor: 100_000 });
});
