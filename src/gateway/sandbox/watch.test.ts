import { type Timestamp, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, it } from "vitest";
import type { openshell } from "../../wire/index.ts";
import { inDefault, TestGateway } from "../_testing.ts";
import { create } from "../_testing-sandbox.ts";

interface Request {
  readonly resumeAfterCursor?: string;
  readonly eventTail?: number;
  readonly sinceTime?: Timestamp;
}

const at = (seconds: number) => timestampFromMs(Date.UTC(2026, 0, 1) + seconds * 1000);
const happened = (reason: string, seconds = 0) => ({
  eventTime: at(seconds),
  source: "kubelet",
  type: "Warning",
  reason,
  message: `${reason} happened`,
  metadata: { pod: "agent" },
});

/** The first `count` platform events of a watch, with their cursors. */
async function events(test: TestGateway, count: number, request: Request = {}) {
  const found: { reason: string; cursor: string; event: openshell.PlatformEvent }[] = [];
  const watched = { workspaceScope: inDefault, sandbox: "one", followEvents: true, ...request };
  for await (const { payload, cursor } of test.client.watchSandbox(watched, { timeoutMs: 5_000 })) {
    if (payload.case === "event") found.push({ reason: payload.value.reason, cursor, event: payload.value });
    if (found.length === count) break;
  }
  return found;
}

const reasons = (found: readonly { readonly reason: string }[]) => found.map(({ reason }) => reason);

async function sandboxWithEvents(test: TestGateway, ...happenings: readonly string[]): Promise<string> {
  const id = await create(test, "one");
  for (const [index, reason] of happenings.entries()) test.driver.happen(id, happened(reason, index));
  return id;
}

describe("a watch of platform events", () => {
  it("begins with those that were kept and goes on with those that come, whole", async () => {
    await using test = await TestGateway.start();
    const id = await sandboxWithEvents(test, "Pulling", "Pulled");
    const watch = events(test, 3);
    await events(test, 2);
    test.driver.happen(id, happened("Started", 2));
    const found = await watch;
    expect(reasons(found)).toEqual(["Pulling", "Pulled", "Started"]);
    expect(found[2]?.event).toMatchObject({ source: "kubelet", type: "Warning", message: "Started happened" });
    expect(found[2]?.event.metadata).toEqual({ pod: "agent" });
  });

  it("is told of what happens again each time, and later once", async () => {
    await using test = await TestGateway.start();
    const id = await sandboxWithEvents(test, "BackOff", "Pulled");
    const watch = events(test, 3);
    await events(test, 2);
    test.driver.happen(id, { ...happened("BackOff", 2), metadata: { pod: "agent", count: "2" } });
    expect(reasons(await watch)).toEqual(["BackOff", "Pulled", "BackOff"]);
    const later = await events(test, 2);
    expect(reasons(later)).toEqual(["Pulled", "BackOff"]);
    expect(later[1]?.event.metadata.count).toBe("2");
  });

  it("begins with a bounded number of them, of bounded length", async () => {
    await using test = await TestGateway.start();
    const id = await sandboxWithEvents(test, ...Array.from({ length: 60 }, (_, index) => `Happening${index}`));
    test.driver.happen(id, { ...happened("Long"), message: "x".repeat(100_000) });
    const found = await events(test, 50);
    expect(reasons(found).slice(0, 1)).toEqual(["Happening11"]);
    expect(found[49]?.event.message).toHaveLength(1024);
    expect(reasons(await events(test, 1, { eventTail: 1 }))).toEqual(["Long"]);
  });

  it("resumed after a cursor repeats nothing and misses nothing", async () => {
    await using test = await TestGateway.start();
    const id = await sandboxWithEvents(test, "Pulling", "Pulled");
    const [first, second] = await events(test, 2);
    test.driver.happen(id, happened("Started"));
    expect(reasons(await events(test, 2, { resumeAfterCursor: first?.cursor ?? "" }))).toEqual(["Pulled", "Started"]);
    expect(reasons(await events(test, 1, { resumeAfterCursor: second?.cursor ?? "" }))).toEqual(["Started"]);
  });

  it("resumed after a cursor of another process begins anew", async () => {
    await using test = await TestGateway.start();
    await sandboxWithEvents(test, "Pulling", "Pulled");
    const foreign = Buffer.from(`${crypto.randomUUID()}/99`).toString("base64url");
    expect(reasons(await events(test, 2, { resumeAfterCursor: foreign }))).toEqual(["Pulling", "Pulled"]);
    await expect(events(test, 1, { resumeAfterCursor: "nonsense" })).rejects.toMatchObject({
      code: "invalid-argument",
      details: { violations: [{ field: "resume_after_cursor" }] },
    });
  });

  it("is cut to the last ones and to those since a time", async () => {
    await using test = await TestGateway.start();
    await sandboxWithEvents(test, "Pulling", "Pulled", "Started");
    await events(test, 3);
    expect(reasons(await events(test, 1, { eventTail: 1 }))).toEqual(["Started"]);
    expect(reasons(await events(test, 2, { sinceTime: at(1) }))).toEqual(["Pulled", "Started"]);
  });

  it("shows a sandbox nothing of another's", async () => {
    await using test = await TestGateway.start();
    const other = await create(test, "two");
    test.driver.happen(other, happened("Foreign"));
    await sandboxWithEvents(test, "Own");
    expect(reasons(await events(test, 1))).toEqual(["Own"]);
  });
});
