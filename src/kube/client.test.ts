import { describe, expect, test } from "vitest";
import {
  answer,
  lines,
  linesThenBreak,
  pod,
  refuse,
  ScriptedServer,
  type ScriptedStep,
  watchLine,
} from "./_scripted-server.ts";
import { createKubeClient, type KubeClientOptions } from "./client.ts";
import { isConflict, isGone, isInvalid, isNotFound, kubeStatusOf } from "./errors.ts";
import { pods, tokenReviews } from "./resources.ts";
import type { RequestRecord } from "./types.ts";

async function connect(steps: ScriptedStep[] | ScriptedStep, options: Partial<KubeClientOptions> = {}) {
  const server = await ScriptedServer.start(steps);
  const client = await createKubeClient({ component: "openshell-test", access: server.access, ...options });
  return {
    server,
    client,
    async [Symbol.asyncDispose]() {
      client.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

/** Never answers. */
const silence: ScriptedStep = () => undefined;

describe("a call", () => {
  test("says who asks, and which fields are whose", async () => {
    await using c = await connect([answer(201, pod("web", "1"))]);
    await c.client.create(pods, "default", { metadata: { name: "web" } });
    expect(c.server.requests).toMatchObject([
      {
        method: "POST",
        path: "/api/v1/namespaces/default/pods",
        body: { apiVersion: "v1", kind: "Pod", metadata: { name: "web" } },
        headers: { "user-agent": "openshell-test", "content-type": "application/json" },
      },
    ]);
    expect(c.server.requests[0]?.query.get("fieldManager")).toBe("openshell-test");
  });

  test.each([
    ["merge", "application/merge-patch+json"],
    ["json", "application/json-patch+json"],
    ["apply", "application/apply-patch+yaml"],
  ] as const)("sends a %s patch as %s", async (type, contentType) => {
    await using c = await connect([answer(200, pod("web", "2"))]);
    const patch = type === "json" ? { type, body: [{ op: "remove" as const, path: "/a" }] } : { type, body: {} };
    await c.client.patch(pods, "default", "web", patch, { subresource: "status" });
    expect(c.server.requests[0]).toMatchObject({
      method: "PATCH",
      path: "/api/v1/namespaces/default/pods/web/status",
      headers: { "content-type": contentType },
    });
  });

  test("sends the preconditions of a deletion", async () => {
    await using c = await connect([refuse(409, "Conflict", "the UID in the precondition is another")]);
    const deletion = c.client.delete(pods, "default", "web", { preconditions: { uid: "u" }, gracePeriodSeconds: 5 });
    await expect(deletion).rejects.toSatisfy(isConflict);
    expect(c.server.requests[0]?.body).toMatchObject({ preconditions: { uid: "u" }, gracePeriodSeconds: 5 });
  });

  test("that is urgent waits for no connection of others", async () => {
    await using c = await connect(({ path }, response) => {
      if (path.endsWith("/urgent")) answer(200, pod("urgent", "1"))({} as never, response);
    });
    const end = new AbortController();
    const others = Array.from({ length: 100 }, () => c.client.get(pods, "default", "slow", { signal: end.signal }));
    for (const other of others) other.catch(() => undefined);
    await expect.poll(() => c.server.requests.length, { timeout: 15_000 }).toBe(64);
    await c.client.get(pods, "default", "urgent", { urgent: true });
    end.abort();
  });

  test("is repeated after the time that a 429 names, and both answers are reported", async () => {
    const records: RequestRecord[] = [];
    await using c = await connect(
      [refuse(429, "TooManyRequests", "slow down", { "retry-after": "0" }), answer(201, pod("web", "1"))],
      { onRequest: (record) => records.push(record) },
    );
    await c.client.create(pods, "default", { metadata: { name: "web" } });
    expect(records.map(({ verb, resource, code }) => ({ verb, resource, code }))).toEqual([
      { verb: "create", resource: "pods", code: 429 },
      { verb: "create", resource: "pods", code: 201 },
    ]);
  });

  test("tells when it was answered by the server's clock", async () => {
    const records: RequestRecord[] = [];
    const date = "Thu, 01 Jan 2026 00:00:00 GMT";
    const step: ScriptedStep = (request, response) => {
      response.setHeader("date", date);
      return answer(200, pod("web", "1"))(request, response);
    };
    await using c = await connect([step], { onRequest: (record) => records.push(record) });
    await c.client.get(pods, "default", "web");
    expect(records).toMatchObject([{ code: 200, answeredAt: new Date(date) }]);
  });

  test("gives up on 429s at its deadline, and says what the server said", async () => {
    await using c = await connect(refuse(429, "TooManyRequests", "slow down", { "retry-after": "0" }));
    await expect(c.client.get(pods, "default", "web", { deadlineMs: 250 })).rejects.toMatchObject({
      code: "unavailable",
      message: "cannot get pods default/web: slow down",
      details: { reason: "TooManyRequests" },
    });
  });

  test.each([429, 503])("that a %i puts off by more than a timer takes waits for its deadline", async (code) => {
    await using c = await connect(refuse(code, "Busy", "come back in a month", { "retry-after": "2592000" }));
    await expect(c.client.get(pods, "default", "web", { deadlineMs: 250 })).rejects.toMatchObject({
      code: "unavailable",
      message: "cannot get pods default/web: come back in a month",
    });
    expect(c.server.requests).toHaveLength(1);
  });

  test("that is put off ends as cancelled by its signal", async () => {
    const abort = new AbortController();
    const onRequest = () => setImmediate(() => abort.abort());
    await using c = await connect(refuse(429, "TooManyRequests", "slow down", { "retry-after": "60" }), { onRequest });
    await expect(c.client.get(pods, "default", "web", { signal: abort.signal })).rejects.toMatchObject({
      code: "cancelled",
    });
  });

  test("is repeated after a 503 only where that names a time, whatever the call", async () => {
    const busy = (headers: Record<string, string>) => refuse(503, "ServiceUnavailable", "starting", headers);
    await using c = await connect([busy({ "retry-after": "0" }), busy({})]);
    await expect(c.client.create(pods, "default", { metadata: { name: "web" } })).rejects.toMatchObject({
      code: "unavailable",
    });
    expect(c.server.requests).toHaveLength(2);
  });

  test("that writes when the client is closed ends as unavailable", async () => {
    await using c = await connect(silence);
    const creation = c.client.create(pods, "default", { metadata: { name: "web" } });
    const call = expect(creation).rejects.toMatchObject({ code: "unavailable" });
    await expect.poll(() => c.server.requests.length).toBe(1);
    c.client.close();
    await call;
  });

  test("ends at its deadline when the server says nothing", async () => {
    await using c = await connect(silence);
    await expect(c.client.get(pods, "default", "web", { deadlineMs: 50 })).rejects.toMatchObject({
      code: "deadline-exceeded",
    });
  });

  test("ends as cancelled by its signal", async () => {
    const abort = new AbortController();
    await using c = await connect(() => abort.abort());
    await expect(c.client.get(pods, "default", "web", { signal: abort.signal })).rejects.toMatchObject({
      code: "cancelled",
    });
  });

  test("that reads is repeated when the connection breaks", async () => {
    await using c = await connect([linesThenBreak("{"), answer(200, pod("web", "1"))]);
    expect((await c.client.get(pods, "default", "web")).metadata.uid).toBe("uid-web");
  });

  test("that writes is not repeated when the connection breaks", async () => {
    await using c = await connect([linesThenBreak("{"), answer(201, pod("web", "1"))]);
    const creation = c.client.create(pods, "default", { metadata: { name: "web" } });
    await expect(creation).rejects.toMatchObject({ code: "unavailable" });
    expect(c.server.requests).toHaveLength(1);
  });

  test("without a name is refused before anything is sent", async () => {
    await using c = await connect([]);
    await expect(c.client.get(pods, "default", "")).rejects.toThrow('a Pod needs a name, got ""');
    await expect(c.client.get(tokenReviews, "default", "x")).rejects.toThrow("tokenreviews have no namespace");
    expect(c.server.requests).toEqual([]);
  });
});

describe("an error", () => {
  test("keeps the API server's words, reason and fields", async () => {
    const status = {
      kind: "Status",
      reason: "Invalid",
      message: 'Pod "web" is invalid: spec.containers[0].image: Required value',
      details: {
        causes: [{ field: "spec.containers[0].image", reason: "FieldValueRequired", message: "Required value" }],
      },
    };
    await using c = await connect([answer(422, status)]);
    const error = await c.client.create(pods, "default", { metadata: { name: "web" } }).catch((e: unknown) => e);
    expect(error).toMatchObject({
      code: "invalid-argument",
      message: `cannot create pods default/web: ${status.message}`,
      details: {
        reason: "Invalid",
        violations: [{ field: "spec.containers[0].image", description: "Required value" }],
      },
    });
    expect(kubeStatusOf(error)).toMatchObject({ httpCode: 422, message: status.message });
    expect(isInvalid(error)).toBe(true);
  });

  test.each([
    [403, "Forbidden", 'pods "a" is forbidden: exceeded quota: q', "resource-exhausted"],
    [403, "Forbidden", 'pods is forbidden: User "x" cannot list', "failed-precondition"],
    [404, "NotFound", 'pods "a" not found', "not-found"],
    [409, "AlreadyExists", 'pods "a" already exists', "already-exists"],
    [409, "Conflict", "the object has been modified", "aborted"],
    [410, "Expired", "too old resource version", "aborted"],
    [500, "InternalError", "conversion webhook failed", "internal"],
    [503, "ServiceUnavailable", "starting", "unavailable"],
  ])("for %i %s (%s) has the code %s", async (httpCode, reason, message, code) => {
    await using c = await connect([refuse(httpCode, reason, message)]);
    await expect(c.client.get(pods, "default", "a")).rejects.toMatchObject({ code, details: { reason } });
  });

  test("for credentials that are refused again is not whoever asked us", async () => {
    await using c = await connect(refuse(401, "Unauthorized", "Unauthorized"));
    await expect(c.client.create(pods, "default", { metadata: { name: "a" } })).rejects.toMatchObject({
      code: "unavailable",
      message:
        "cannot create pods default/a: the API server does not accept this process's own credentials (Unauthorized)",
      details: { reason: "Unauthorized" },
    });
    expect(c.server.requests).toHaveLength(2);
  });

  test("from something that is no API server shows what it said", async () => {
    await using c = await connect([
      (_, response) => {
        response.writeHead(502);
        response.end("bad gateway");
      },
    ]);
    await expect(c.client.get(pods, "default", "a")).rejects.toThrow("HTTP 502: bad gateway");
  });

  test("of an object that is not there becomes undefined in find", async () => {
    await using c = await connect([refuse(404, "NotFound", "no")]);
    expect(await c.client.find(pods, "default", "a")).toBeUndefined();
  });

  test("of refused credentials is tried once more with fresh ones, which are asked for once", async () => {
    await using c = await connect([
      refuse(401, "Unauthorized", "expired"),
      refuse(429, "TooManyRequests", "slow down", { "retry-after": "0" }),
      answer(200, pod("a", "1")),
    ]);
    const asked: boolean[] = [];
    const access = {
      ...c.server.access,
      credentials: (refresh: boolean) => {
        asked.push(refresh);
        return c.server.access.credentials(refresh);
      },
    };
    const client = await createKubeClient({ component: "test", access });
    await client.get(pods, "default", "a");
    expect(asked).toEqual([false, true, false]);
    client.close();
  });
});

describe("a list", () => {
  test("joins all pages and gives each item its type", async () => {
    const page = (name: string, next: string) =>
      answer(200, { metadata: { resourceVersion: "7", continue: next }, items: [{ metadata: { name } }] });
    await using c = await connect([page("a", "more"), page("b", "")]);
    const list = await c.client.list(pods, undefined, { labelSelector: "app=x", pageSize: 1 });
    expect(list).toEqual({
      resourceVersion: "7",
      items: [
        { apiVersion: "v1", kind: "Pod", metadata: { name: "a" } },
        { apiVersion: "v1", kind: "Pod", metadata: { name: "b" } },
      ],
    });
    expect(c.server.requests.map((r) => [r.path, r.query.get("labelSelector"), r.query.get("continue")])).toEqual([
      ["/api/v1/pods", "app=x", null],
      ["/api/v1/pods", "app=x", "more"],
    ]);
  });

  const firstPage = answer(200, { metadata: { resourceVersion: "7", continue: "more" }, items: [] });

  test.each([
    ["first", []],
    ["second", [firstPage]],
  ])("whose %s page does not come ends at the deadline of the whole", async (_, pages) => {
    await using c = await connect([...pages, silence]);
    await expect(c.client.list(pods, "default", { deadlineMs: 250 })).rejects.toMatchObject({
      code: "deadline-exceeded",
      message: "cannot list pods default: no answer within 250 ms",
    });
  });

  test("has one deadline for all its pages", async () => {
    await using c = await connect(firstPage);
    await expect(c.client.list(pods, "default", { deadlineMs: 250 })).rejects.toMatchObject({
      code: "deadline-exceeded",
    });
  });

  test("ends as cancelled by its signal", async () => {
    const abort = new AbortController();
    await using c = await connect([firstPage, () => abort.abort()]);
    await expect(c.client.list(pods, "default", { signal: abort.signal })).rejects.toMatchObject({ code: "cancelled" });
  });
});

describe("a watch", () => {
  const options = { resourceVersion: "1", timeoutSeconds: 60 };

  async function collect(step: ScriptedStep) {
    await using c = await connect([step]);
    const seen: string[] = [];
    try {
      for await (const event of c.client.watch(pods, "default", options)) seen.push(event.type);
    } catch (error) {
      return { seen, error };
    }
    return { seen, error: undefined };
  }

  test("ends without an error when the server ends it", async () => {
    expect(await collect(lines(watchLine("ADDED", pod("a", "2"))))).toEqual({ seen: ["ADDED"], error: undefined });
  });

  test.each(["not json", "{}", "null", '"ADDED"', '{"type":"OTHER"}'])("does not hide the line %s", async (line) => {
    const { seen, error } = await collect(lines(watchLine("ADDED", pod("a", "2")), line));
    expect(seen).toEqual(["ADDED"]);
    expect(error).toMatchObject({ code: "data-loss" });
  });

  test("that is cut in the middle of a line fails", async () => {
    const { error } = await collect((_, response) => void response.end('{"type":"AD'));
    expect(error).toMatchObject({ code: "unavailable" });
  });

  test("whose connection breaks fails", async () => {
    const { seen, error } = await collect(linesThenBreak(watchLine("ADDED", pod("a", "2"))));
    expect(seen).toEqual(["ADDED"]);
    expect(error).toMatchObject({ code: "unavailable" });
  });

  test.each([
    ["as an answer", refuse(410, "Expired", "too old")],
    ["as a line", lines(watchLine("ERROR", { kind: "Status", code: 410, reason: "Expired", message: "too old" }))],
  ])("says that its place is forgotten when the server does %s", async (_, step) => {
    expect((await collect(step)).error).toSatisfy(isGone);
  });

  test("closes its connection when its reader leaves", async () => {
    await using c = await connect((_, response) => {
      response.writeHead(200);
      response.write(`${watchLine("ADDED", pod("a", "2"))}\n`);
    });
    for await (const _ of c.client.watch(pods, "default", options)) break;
    await expect.poll(() => c.server.sockets.size).toBe(0);
  });
});

describe("discovery", () => {
  test("gives the preferred version first, and nothing for a group that is not there", async () => {
    await using c = await connect([
      answer(200, {
        versions: [{ version: "v1alpha1" }, { version: "v1beta1" }],
        preferredVersion: { version: "v1beta1" },
      }),
      refuse(404, "NotFound", "no"),
      answer(200, { resources: [{ name: "sandboxes" }, { name: "sandboxes/status" }] }),
      refuse(404, "NotFound", "no"),
    ]);
    expect(await c.client.apiVersionsOf("agents.x-k8s.io")).toEqual(["v1beta1", "v1alpha1"]);
    expect(await c.client.apiVersionsOf("agents.x-k8s.io")).toEqual([]);
    expect(await c.client.resourcesOf("agents.x-k8s.io", "v1beta1")).toEqual(["sandboxes"]);
    expect(await c.client.resourcesOf("agents.x-k8s.io", "v1")).toEqual([]);
  });

  test("does not take a refusal for an absent group", async () => {
    await using c = await connect([refuse(403, "Forbidden", "no")]);
    const versions = c.client.apiVersionsOf("agents.x-k8s.io");
    await expect(versions).rejects.not.toSatisfy(isNotFound);
  });
});
