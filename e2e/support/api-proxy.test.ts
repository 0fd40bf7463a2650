import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createKubeClient, fixedAccess, Informer, type KubeClient, pods } from "../../src/kube/index.ts";
import { Authority } from "../cluster/local/certificates.ts";
import { ApiProxy, expiredWatch, statusAnswer } from "./api-proxy.ts";

const pod = (name: string, resourceVersion: string) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, namespace: "default", uid: name, resourceVersion },
});
const event = (type: string, object: object) => `${JSON.stringify({ type, object })}\n`;

/** An API server with a list of one Pod and a stream that says what a test wants. */
let upstream: Server;
let streams: Set<{ write(text: string): unknown }>;
let lists = 0;
/** Watches that were ever opened. */
let watches = 0;
let directory: string;
let authority: Authority;
let proxy: ApiProxy;
let client: KubeClient;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "api-proxy-"));
  authority = await Authority.open(directory);
  const pair = await authority.issue({ name: "server", commonName: "server", hosts: ["127.0.0.1"] });
  streams = new Set();
  upstream = createServer({ cert: pair.certificate, key: pair.key }, (request, response) => {
    const url = new URL(request.url ?? "", "https://upstream");
    response.setHeader("content-type", "application/json");
    if (url.searchParams.has("watch")) {
      response.flushHeaders();
      streams.add(response);
      watches += 1;
      response.once("close", () => streams.delete(response));
      return;
    }
    if (request.method === "GET") {
      lists += 1;
      response.end(JSON.stringify({ metadata: { resourceVersion: "5" }, items: [pod("a", "1")] }));
      return;
    }
    request.pipe(response);
  });
  upstream.listen(0, "127.0.0.1");
  await once(upstream, "listening");
  proxy = await ApiProxy.open({
    server: new URL(`https://127.0.0.1:${(upstream.address() as AddressInfo).port}`),
    ca: authority.certificate,
    address: "127.0.0.1",
    certificate: await readFile(authority.file("server.crt"), "utf8"),
    key: await readFile(authority.file("server.key"), "utf8"),
  });
  const access = fixedAccess(`https://127.0.0.1:${proxy.port}`, {}, { ca: authority.certificate });
  client = await createKubeClient({ component: "test", access });
});

afterAll(async () => {
  client.close();
  await proxy[Symbol.asyncDispose]();
  upstream.close();
  upstream.closeAllConnections();
  await rm(directory, { recursive: true, force: true });
});

const informerOf = () =>
  new Informer({ client, resource: pods, namespace: "default", backoff: { initialMs: 1, maxMs: 4 } });
const say = (text: string) => {
  for (const stream of streams) stream.write(text);
};

describe("a proxy before the API server", () => {
  it("passes a write on and its answer back, and has seen both", async () => {
    const made = await client.create(pods, "default", pod("b", "2"));
    expect(made.metadata.name).toBe("b");
    expect(proxy.requests.at(-1)).toMatchObject({ method: "POST", path: "/api/v1/namespaces/default/pods" });
  });

  it("answers in the API server's place, or loses an answer", async () => {
    {
      using _fault = proxy.breaking(async () => statusAnswer(409, "Conflict", "no"));
      await expect(client.create(pods, "default", pod("b", "2"))).rejects.toThrow(/no/);
    }
    using _fault = proxy.breaking(async (_request, pass) => {
      await pass();
      return undefined;
    });
    await expect(client.create(pods, "default", pod("b", "2"))).rejects.toMatchObject({ code: "unavailable" });
  });

  it("refuses everything while it is away, and then nothing", async () => {
    {
      using _away = proxy.away();
      await expect(client.create(pods, "default", pod("b", "2"))).rejects.toMatchObject({ code: "unavailable" });
    }
    await client.create(pods, "default", pod("b", "2"));
  });

  it("drops watches, tells them that their place is forgotten, silences and doubles them", async () => {
    const already = watches;
    const opened = (count: number) => expect.poll(() => watches - already).toBe(count);
    await using informer = informerOf();
    await informer.synced;
    await opened(1);
    const before = lists;

    await expect.poll(() => proxy.dropWatches()).toBe(1);
    await expect.poll(() => informer.stats.restarts).toBe(1);
    await opened(2);
    expect(lists).toBe(before);

    await expect.poll(() => proxy.dropWatches(expiredWatch)).toBe(1);
    await expect.poll(() => informer.stats.relists).toBe(1);
    await opened(3);

    // An informer takes the second of two equal events for nothing new: what comes is counted as it comes.
    const raw = client.watch(pods, "default", { resourceVersion: "5", timeoutSeconds: 60 })[Symbol.asyncIterator]();
    const first = raw.next();
    await opened(4);
    proxy.lineFault = (line) => [line, line];
    say(event("ADDED", pod("c", "7")));
    const both = [await first, await raw.next()].map(({ value }) => value?.object?.metadata.name);
    expect(both).toEqual(["c", "c"]);
    proxy.lineFault = undefined;
    await raw.return?.(undefined);
    await informer.until("Pod c", () => informer.get("default", "c"));

    expect(proxy.silenceWatches()).toBeGreaterThanOrEqual(1);
    await using other = informerOf();
    await other.synced;
    await opened(5);
    say(event("ADDED", pod("d", "8")));
    await other.until("Pod d", () => other.get("default", "d"));
    expect(proxy.dropWatches()).toBe(1);
    expect(informer.get("default", "d")).toBeUndefined();
  });
});
