import { pino } from "pino";
import { expect, test } from "vitest";
import { testAuthority } from "./_test-certificates.ts";
import { TestRuntime } from "./_test-peers.ts";
import { BoundarySession } from "./boundary-session.ts";

const serverName = "runtime.g1.openshell.internal";

/** How long it takes until a runtime that answers and drops after `livesMs`, by the session's clock, was connected to this often. */
async function connectAgain(times: number, livesMs: number): Promise<number> {
  const authority = await testAuthority();
  const runtime = new TestRuntime();
  await runtime.listen(authority.certificate, await authority.issue(serverName));
  const stop = new AbortController();
  let now = 0;
  const session = new BoundarySession({
    settings: {
      target: `127.0.0.1:${runtime.port}`,
      serverName,
      ca: authority.certificate,
      ...(await authority.issue("supervisor")),
      grant: "grant-jws",
    },
    instanceId: "i-1",
    build: "test",
    log: pino({ level: "silent" }),
    random: () => 0.5,
    now: () => now,
    onLink: ({ name }) => {
      if (name !== "connected") return;
      now += livesMs;
      runtime.drop();
    },
    onStatus: () => {},
  });
  const running = session.run(stop.signal);
  await runtime.hellos.next();
  const begin = performance.now();
  for (let seen = 1; seen < times; seen += 1) await runtime.hellos.next();
  const took = performance.now() - begin;
  stop.abort();
  await expect(running).rejects.toThrow();
  runtime.server.forceShutdown();
  return took;
}

test("a runtime that answers and drops is connected to each time later", async () => {
  expect(await connectAgain(6, 1_000)).toBeGreaterThan(50 + 100 + 200 + 400 + 500);
});

test("one whose session lived is connected to at once", async () => {
  expect(await connectAgain(9, 5_000)).toBeLessThan(50 + 100 + 200 + 400 + 4 * 500);
});
