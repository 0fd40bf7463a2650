import { create } from "@bufbuild/protobuf";
import { pino } from "pino";
import { expect, test } from "vitest";
import type { BackoffOptions } from "../common/async.ts";
import { openshell } from "../wire/index.ts";
import { type GatewayOptions, GatewaySession } from "./gateway-session.ts";
import type { GatewayLink } from "./state.ts";
import type { SessionToken } from "./token.ts";

const accepted = () =>
  create(openshell.GatewayMessageSchema, { payload: { case: "sessionAccepted", value: { sessionId: "s1" } } });

/** Runs a session until `stop`, with a gateway that answers so each time. */
async function runSession(
  answer: () => AsyncGenerator<openshell.GatewayMessage>,
  stop: AbortController,
  options: Partial<GatewayOptions>,
): Promise<void> {
  const token = { ensure: async () => {}, headers: () => ({}), sessionAccepted: () => {} };
  const session = new GatewaySession({
    gateway: { client: { connectSupervisor: answer }, close: () => {} },
    token: token as unknown as SessionToken,
    sandboxId: "sb-1",
    instanceId: "i-1",
    log: pino({ level: "silent" }),
    onLink: () => {},
    onRelayOpen: () => {},
    onRelayClose: () => {},
    ...options,
  });
  await expect(session.run(stop.signal)).rejects.toThrow();
}

/** A gateway that accepts each session, and drops it after `livesMs` by the session's clock. */
async function beginAgain(times: number, livesMs: number, backoff: BackoffOptions): Promise<void> {
  const stop = new AbortController();
  let begun = 0;
  let now = 0;
  const answer = async function* () {
    begun += 1;
    if (begun > times) stop.abort();
    yield accepted();
    now += livesMs;
  };
  await runSession(answer, stop, { backoff, now: () => now });
}

test("a session that is accepted and dropped is begun again each time later", async () => {
  const begin = performance.now();
  await beginAgain(8, 1_000, { initialMs: 2, random: () => 0 });
  expect(performance.now() - begin).toBeGreaterThan(1 + 2 + 4 + 8 + 16 + 32 + 64);
});

test("one that lived is followed by the next at once", async () => {
  await beginAgain(8, 5_000, { initialMs: 2, factor: 100_000 });
});

test("a gateway that accepts a session twice is left, and connected to anew", async () => {
  const stop = new AbortController();
  const whys: string[] = [];
  const answer = async function* () {
    yield accepted();
    yield accepted();
  };
  const onLink = (link: GatewayLink) => {
    if (link.name !== "waiting") return;
    whys.push(link.why);
    stop.abort();
  };
  await runSession(answer, stop, { onLink });
  expect(whys).toEqual(["the gateway accepted the session twice"]);
});
