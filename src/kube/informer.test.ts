import { describe, expect, test } from "vitest";
import {
  lines,
  linesThenBreak,
  linesThenSilence,
  pod,
  podList,
  refuse,
  ScriptedServer,
  type ScriptedStep,
  watchLine,
} from "./_scripted-server.ts";
import { createKubeClient } from "./client.ts";
import { Informer, type InformerOptions } from "./informer.ts";
import { Informers, secondsOfStream } from "./informers.ts";
import { type Pod, pods } from "./resources.ts";

const backoff = { initialMs: 1, maxMs: 4 };

async function watchPods(steps: ScriptedStep[] | ScriptedStep, options: Partial<InformerOptions<Pod>> = {}) {
  const server = await ScriptedServer.start(steps);
  const client = await createKubeClient({ component: "test", access: server.access });
  const errors: unknown[] = [];
  const seen: string[] = [];
  const onError = (error: unknown): void => void errors.push(error);
  const informer = new Informer({ client, resource: pods, namespace: "default", backoff, onError, ...options });
  for (const type of ["added", "modified", "deleted"] as const) {
    informer.on(type, (object) => void seen.push(`${type} ${object.metadata.name} ${object.metadata.resourceVersion}`));
  }
  return {
    server,
    client,
    informer,
    errors,
    seen,
    /** The watch requests' resource versions. */
    watchedFrom: () => server.requests.filter((r) => r.query.has("watch")).map((r) => r.query.get("resourceVersion")),
    async [Symbol.asyncDispose]() {
      await informer.stop();
      client.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

describe("an informer", () => {
  test("lists, then watches from the list's place", async () => {
    await using w = await watchPods([
      podList("10", pod("a", "3")),
      linesThenSilence(watchLine("MODIFIED", pod("a", "11")), watchLine("ADDED", pod("b", "12"))),
    ]);
    await w.informer.until("Pod b", (i) => i.get("default", "b"));
    expect(w.seen).toEqual(["added a 3", "modified a 11", "added b 12"]);
    expect(w.watchedFrom()).toEqual(["10"]);
    expect(w.informer.resourceVersion).toBe("12");
    expect(w.informer.list().map((object) => object.metadata.name)).toEqual(["a", "b"]);
  });

  test("continues from the last event or bookmark where the server ended the stream", async () => {
    let restarts = 0;
    const onRestart = (): void => {
      restarts += 1;
    };
    await using w = await watchPods(
      [
        podList("10"),
        lines(watchLine("ADDED", pod("a", "11"))),
        lines(watchLine("BOOKMARK", { metadata: { resourceVersion: "25" } })),
        linesThenSilence(watchLine("ADDED", pod("b", "26"))),
      ],
      { onRestart },
    );
    await w.informer.until("Pod b", (i) => i.get("default", "b"));
    expect(w.watchedFrom()).toEqual(["10", "11", "25"]);
    expect(w.informer.stats).toEqual({ restarts: 2, relists: 0, errors: 0 });
    expect(restarts).toBe(2);
  });

  test.each([
    ["an answer", refuse(410, "Expired", "too old")],
    ["a line", lines(watchLine("ERROR", { kind: "Status", code: 410, reason: "Expired", message: "too old" }))],
  ])("lists again after a 410 as %s, and reports what went away meanwhile", async (_, gone) => {
    await using w = await watchPods([
      podList("10", pod("a", "3"), pod("b", "4")),
      gone,
      podList("50", pod("b", "4"), pod("c", "40")),
      linesThenSilence(),
    ]);
    await w.informer.until("Pod c", (i) => i.get("default", "c"));
    expect(w.seen).toEqual(["added a 3", "added b 4", "deleted a 3", "added c 40"]);
    expect(w.informer.stats.relists).toBe(1);
    expect(w.errors).toHaveLength(1);
  });

  test("reports a bad line and reads the events again from before it", async () => {
    await using w = await watchPods([
      podList("10"),
      lines(watchLine("ADDED", pod("a", "11")), "garbage", watchLine("ADDED", pod("b", "12"))),
      linesThenSilence(watchLine("ADDED", pod("b", "12"))),
    ]);
    await w.informer.until("Pod b", (i) => i.get("default", "b"));
    expect(w.watchedFrom()).toEqual(["10", "11"]);
    expect(w.errors).toMatchObject([{ code: "data-loss" }]);
  });

  const undecodable = { kind: "Status", code: 500, reason: "InternalError", message: "unable to decode" };

  test.each([
    ["a line that says so", "internal", lines(watchLine("ERROR", undecodable))],
    ["a line that is no event", "data-loss", lines("garbage")],
    ["a line that is too long", "resource-exhausted", lines("x".repeat(9 * 1024 * 1024))],
  ])("lists again when it cannot read what comes next twice in a row: %s", async (_, code, unreadable) => {
    await using w = await watchPods([
      podList("10"),
      unreadable,
      unreadable,
      podList("12", pod("a", "11")),
      linesThenSilence(),
    ]);
    await w.informer.until("Pod a", (i) => i.get("default", "a"));
    await expect.poll(() => w.watchedFrom()).toEqual(["10", "10", "12"]);
    expect(w.errors).toMatchObject([{ code }, { code }]);
  });

  test.each([
    ["broken connections", (_: number) => linesThenBreak()],
    ["an API server that is busy", (_: number) => refuse(503, "ServiceUnavailable", "starting")],
    ["a right that is missing", (_: number) => refuse(403, "Forbidden", "no")],
    ["failures of another kind between", (n: number) => (n % 2 === 0 ? lines("garbage") : linesThenBreak())],
  ])("keeps its place over %s", async (_, failing) => {
    const failures = Array.from({ length: 6 }, (_, n) => failing(n));
    await using w = await watchPods([podList("10"), ...failures, linesThenSilence(watchLine("ADDED", pod("a", "11")))]);
    await w.informer.until("Pod a", (i) => i.get("default", "a"));
    expect(w.informer.stats).toEqual({ restarts: 6, relists: 0, errors: 6 });
  });

  test("reads again what it could not apply", async () => {
    let isBroken = true;
    const event = linesThenSilence(watchLine("ADDED", pod("a", "11")));
    await using w = await watchPods([podList("10"), event, event], {
      trim: (object) => {
        if (!isBroken) return object;
        isBroken = false;
        throw new Error("once");
      },
    });
    await w.informer.until("Pod a", (i) => i.get("default", "a"));
    expect(w.watchedFrom()).toEqual(["10", "10"]);
  });

  test("keeps one connection at a time over a hundred broken ones", async () => {
    let version = 10;
    let most = 0;
    await using w = await watchPods((request, response) => {
      most = Math.max(most, w.server.sockets.size);
      version += 1;
      if (!request.query.has("watch")) return podList("10")(request, response);
      return linesThenBreak(watchLine("ADDED", pod(`p${version}`, String(version))))(request, response);
    });
    await w.informer.until("100 Pods", (i) => i.size >= 100);
    // The list's kept connection, the stream, and one that is just closing.
    expect(most).toBeLessThanOrEqual(3);
    expect(w.informer.stats.relists).toBe(0);
  });

  test("waits longer after each failure in a row, and never has two streams", async () => {
    const times: number[] = [];
    await using _ = await watchPods(
      (request, response) => {
        if (!request.query.has("watch")) return podList("10")(request, response);
        times.push(performance.now());
        return refuse(500, "InternalError", "no")(request, response);
      },
      { backoff: { initialMs: 10, maxMs: 1000, random: () => 1 } },
    );
    await expect.poll(() => times.length, { timeout: 5000 }).toBe(6);
    const waits = times.slice(1).map((time, i) => time - (times[i] ?? 0));
    for (const [i, wait] of waits.entries()) expect(wait).toBeGreaterThanOrEqual(10 * 2 ** i - 2);
  });

  test("is synced only after a list has succeeded", async () => {
    await using w = await watchPods([refuse(403, "Forbidden", "no"), podList("10"), linesThenSilence()]);
    expect(w.informer.hasSynced).toBe(false);
    await w.informer.synced;
    expect(w.errors).toMatchObject([{ code: "failed-precondition" }]);
  });

  test("goes on when a listener throws or rejects", async () => {
    await using w = await watchPods([podList("10"), linesThenSilence(watchLine("ADDED", pod("a", "11")))]);
    w.informer.on("added", () => {
      throw new Error("thrown");
    });
    w.informer.on("added", () => Promise.reject(new Error("rejected")));
    await w.informer.until("Pod a", (i) => i.get("default", "a"));
    await expect.poll(() => w.errors.map(String)).toEqual(["Error: thrown", "Error: rejected"]);
  });

  test("stops while it waits, and says so to who waits for it", async () => {
    await using w = await watchPods(refuse(500, "InternalError", "no"), { backoff: { initialMs: 60_000 } });
    const waiting = expect(w.informer.until("a Pod", () => undefined)).rejects.toMatchObject({ code: "cancelled" });
    await expect.poll(() => w.errors.length).toBe(1);
    await w.informer.stop();
    await waiting;
    await expect(w.informer.synced).rejects.toMatchObject({ code: "cancelled" });
  });

  test("names what was waited for in vain", async () => {
    await using w = await watchPods([podList("10"), linesThenSilence()]);
    const waiting = w.informer.until("Pod default/a to be gone", () => undefined, { deadlineMs: 20 });
    await expect(waiting).rejects.toThrow("waited 20 ms for Pod default/a to be gone");
  });

  test("keeps no managed fields", async () => {
    const managed = { ...pod("a", "3"), metadata: { ...pod("a", "3").metadata, managedFields: [{ manager: "x" }] } };
    await using w = await watchPods([podList("10", managed), linesThenSilence()]);
    await w.informer.synced;
    expect(w.informer.get("default", "a")?.metadata).toEqual(pod("a", "3").metadata);
  });
});

describe("a stream that falls silent", () => {
  test("is opened anew when it is overdue, and its connection is closed", async () => {
    await using server = await ScriptedServer.start([
      podList("10"),
      linesThenSilence(),
      linesThenSilence(watchLine("ADDED", pod("a", "11"))),
    ]);
    const client = await createKubeClient({ component: "test", access: server.access, watchOverdueMs: 30 });
    const errors: unknown[] = [];
    await using informer = new Informer({
      client,
      resource: pods,
      backoff,
      onError: (error) => errors.push(error),
      timeoutSeconds: () => (errors.length === 0 ? 0 : 60),
    });
    await informer.until("Pod a", (i) => i.get("default", "a"));
    expect(errors).toMatchObject([{ code: "unavailable", message: expect.stringContaining("the stream fell silent") }]);
    client.close();
    await expect.poll(() => server.sockets.size).toBe(1);
  });

  test("is asked to last between four and six minutes", async () => {
    await using w = await watchPods([podList("10"), linesThenSilence()]);
    await expect.poll(() => w.watchedFrom().length).toBe(1);
    const seconds = Number(w.server.requests.at(-1)?.query.get("timeoutSeconds"));
    expect(seconds).toBeGreaterThanOrEqual(240);
    expect(seconds).toBeLessThanOrEqual(360);
  });
});

describe("shared informers", () => {
  test.each([
    [10, 0, 30],
    [10, 1, 45],
    [200, 0, 100],
    [6000, 1, 450],
  ])("%i of them with a chance of %f have streams of %i seconds", (informers, chance, seconds) => {
    expect(secondsOfStream(informers, () => chance)).toBe(seconds);
  });

  test("ask for short streams, so that one that falls silent is missed for less than a minute", async () => {
    await using server = await ScriptedServer.start([podList("10"), linesThenSilence()]);
    const client = await createKubeClient({ component: "test", access: server.access });
    await using informers = new Informers(client);
    await informers.of(pods, { namespace: "default" }).synced;
    await expect.poll(() => server.requests.length).toBe(2);
    const seconds = Number(server.requests[1]?.query.get("timeoutSeconds"));
    // And ten beyond, for its end to arrive.
    expect(seconds).toBeLessThan(50);
    expect(seconds).toBeGreaterThanOrEqual(30);
    client.close();
  });

  test("are one for each scope", async () => {
    await using server = await ScriptedServer.start(podList("1"));
    const client = await createKubeClient({ component: "test", access: server.access });
    await using informers = new Informers(client, { backoff: { initialMs: 1000 } });
    const first = informers.of(pods, { namespace: "a", labelSelector: "x=1" });
    expect(informers.of(pods, { namespace: "a", labelSelector: "x=1" })).toBe(first);
    expect(informers.of(pods, { namespace: "b", labelSelector: "x=1" })).not.toBe(first);
    await informers.synced();
    expect(informers.hasSynced).toBe(true);
  });

  test("tell of every watch that is opened again by the name of its resource", async () => {
    await using server = await ScriptedServer.start([podList("1"), lines(), linesThenSilence()]);
    const client = await createKubeClient({ component: "test", access: server.access });
    const restarted: string[] = [];
    await using informers = new Informers(client, { backoff, onRestart: (resource) => restarted.push(resource) });
    informers.of(pods, { namespace: "a" });
    await expect.poll(() => restarted).toEqual(["pods"]);
  });
});
