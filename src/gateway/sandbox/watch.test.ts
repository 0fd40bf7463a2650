import { create as message } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { openshell } from "../../wire/index.ts";
import { inDefault, TestGateway } from "../_testing.ts";
import { create } from "../_testing-sandbox.ts";
import type { SandboxRecord } from "../store/sandboxes.ts";
import { SandboxHub } from "./hub.ts";
import { watchSandbox } from "./watch.ts";

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

describe("a watch that has nothing to say", () => {
  let hub: SandboxHub;
  let leave: AbortController;
  /** A clock that only the test moves. */
  beforeEach(() => {
    hub = new SandboxHub();
    leave = new AbortController();
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  });
  afterEach(() => vi.useRealTimers());

  const inPhase = (phase: keyof typeof openshell.SandboxPhase) =>
    message(openshell.SandboxSchema, { metadata: { id: "one" }, status: { phase: openshell.SandboxPhase[phase] } });
  const platformEvent = message(openshell.PlatformEventSchema, happened("BackOff"));

  function watch(follow: { readonly followStatus?: boolean; readonly followEvents?: boolean }) {
    const record = { id: "one", object: inPhase("PROVISIONING") } as SandboxRecord;
    const request = message(openshell.WatchSandboxRequestSchema, follow);
    const stream = watchSandbox({ hub }, () => record, request, leave.signal);
    /** What comes next: a phase, the name of another payload, or that nothing does without more time or the end. */
    const next = async () => {
      const { done, value } = await stream.next();
      if (done) return "the end";
      const { payload } = value;
      return payload?.case === "sandbox" ? openshell.SandboxPhase[payload.value.status?.phase ?? 0] : payload?.case;
    };
    return { stream, next };
  }
  const nothing = (coming: Promise<unknown>) =>
    Promise.race([coming, new Promise((resolve) => setImmediate(resolve, "nothing"))]);

  it("repeats the sandbox every 30 s", async () => {
    const { next } = watch({ followStatus: true });
    expect(await next()).toBe("PROVISIONING");
    for (let round = 0; round < 3; round += 1) {
      const coming = next();
      vi.advanceTimersByTime(29_999);
      expect(await nothing(coming)).toBe("nothing");
      vi.advanceTimersByTime(1);
      expect(await coming).toBe("PROVISIONING");
    }
  });

  it("counts from what it said last, and repeats that", async () => {
    const { next } = watch({ followStatus: true });
    await next();
    vi.advanceTimersByTime(20_000);
    hub.publish("one", inPhase("READY"));
    expect(await next()).toBe("READY");
    const coming = next();
    vi.advanceTimersByTime(20_000);
    expect(await nothing(coming)).toBe("nothing");
    vi.advanceTimersByTime(10_000);
    expect(await coming).toBe("READY");
  });

  it("says so also while there happens what it was not asked for", async () => {
    const status = watch({ followStatus: true });
    const events = watch({ followEvents: true });
    for (const { next } of [status, events]) await next();
    const coming = [status.next(), events.next()];
    vi.advanceTimersByTime(20_000);
    hub.event("one", platformEvent);
    hub.publish("one", inPhase("READY"));
    expect(await Promise.all(coming)).toEqual(["READY", "event"]);
    const repeated = [status.next(), events.next()];
    vi.advanceTimersByTime(20_000);
    hub.event("one", platformEvent);
    expect(await repeated[1]).toBe("event");
    vi.advanceTimersByTime(10_000);
    expect(await repeated[0]).toBe("READY");
    const last = events.next();
    vi.advanceTimersByTime(20_000);
    expect(await last).toBe("READY");
  });

  it("has one repetition for a reader who did not read for long", async () => {
    const { next } = watch({ followStatus: true });
    await next();
    vi.advanceTimersByTime(600_000);
    expect(await next()).toBe("PROVISIONING");
    const coming = next();
    expect(await nothing(coming)).toBe("nothing");
  });

  it("leaves no timer behind, however it ends", async () => {
    const ends: ((stream: AsyncGenerator) => unknown)[] = [
      (stream) => stream.return(undefined),
      () => hub.gone("one"),
      () => hub.close(),
      () => leave.abort(),
    ];
    for (const end of ends) {
      const { stream, next } = watch({ followStatus: true });
      await next();
      expect(vi.getTimerCount()).toBe(1);
      await end(stream);
      expect(await next()).toBe("the end");
      expect(vi.getTimerCount()).toBe(0);
    }
  });
});
