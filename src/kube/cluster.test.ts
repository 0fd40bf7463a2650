import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { kubeconfigAccess } from "./access.ts";
import { createKubeClient } from "./client.ts";
import { isAlreadyExists, isConflict, isInvalid, isNotFound } from "./errors.ts";
import { Informer } from "./informer.ts";
import { holdLease } from "./lease.ts";
import { configMaps, namespaces, tokenReviews } from "./resources.ts";
import type { KubeClient, RequestRecord } from "./types.ts";

const kubeconfig = process.env.OPENSHELL_TEST_KUBECONFIG;
const title = kubeconfig
  ? "against a real API server"
  : "against a real API server (skipped: OPENSHELL_TEST_KUBECONFIG names no kubeconfig)";

describe.skipIf(!kubeconfig)(title, () => {
  const namespace = `kube-test-${randomBytes(4).toString("hex")}`;
  const records: RequestRecord[] = [];
  let client: KubeClient;

  beforeAll(async () => {
    const access = await kubeconfigAccess(kubeconfig);
    client = await createKubeClient({ component: "openshell-kube-test", access, onRequest: (r) => records.push(r) });
    await client.create(namespaces, undefined, { metadata: { name: namespace } });
  });

  afterAll(async () => {
    await client.delete(namespaces, undefined, namespace);
    client.close();
  });

  const create = (name: string, data: Record<string, string> = {}) =>
    client.create(configMaps, namespace, { metadata: { name, labels: { test: name.split("-")[0] ?? "" } }, data });

  test("the version is read", async () => {
    expect(await client.raw("/version")).toMatchObject({ major: "1" });
    expect(await client.apiVersionsOf("apps")).toEqual(["v1"]);
    expect(await client.apiVersionsOf("nothing.example.com")).toEqual([]);
    expect(await client.resourcesOf("", "v1")).toContain("configmaps");
  });

  test("an object is made once, read, patched in three ways, and deleted by its UID only", async () => {
    const made = await create("one", { a: "1" });
    await expect(create("one")).rejects.toSatisfy(isAlreadyExists);
    const { resourceVersion } = made.metadata;
    const stale = { metadata: { resourceVersion }, data: { b: "2" } };
    const merged = await client.patch(configMaps, namespace, "one", { type: "merge", body: stale });
    expect(merged.data).toEqual({ a: "1", b: "2" });
    const again = client.patch(configMaps, namespace, "one", { type: "merge", body: { ...stale, data: { c: "3" } } });
    await expect(again).rejects.toSatisfy(isConflict);
    const removal = [{ op: "remove", path: "/data/a" }] as const;
    const patched = await client.patch(configMaps, namespace, "one", { type: "json", body: removal });
    expect(patched.data).toEqual({ b: "2" });
    await expect(client.patch(configMaps, namespace, "one", { type: "json", body: removal })).rejects.toSatisfy(
      isInvalid,
    );
    const body = { metadata: { name: "one" }, data: { d: "4" } };
    const applied = await client.patch(configMaps, namespace, "one", { type: "apply", body, force: true });
    expect(applied.data).toEqual({ b: "2", d: "4" });
    const wrong = client.delete(configMaps, namespace, "one", { preconditions: { uid: "another" } });
    await expect(wrong).rejects.toSatisfy(isConflict);
    await client.delete(configMaps, namespace, "one", { preconditions: { uid: made.metadata.uid } });
    await expect(client.get(configMaps, namespace, "one")).rejects.toSatisfy(isNotFound);
  });

  test("a dry run leaves nothing", async () => {
    await client.create(configMaps, namespace, { metadata: { name: "dry" } }, { dryRun: true });
    expect(await client.find(configMaps, namespace, "dry")).toBeUndefined();
  });

  test("a list of three pages is complete", async () => {
    await Promise.all(["page-1", "page-2", "page-3"].map((name) => create(name)));
    const { items } = await client.list(configMaps, namespace, { labelSelector: "test=page", pageSize: 1 });
    expect(items.map((item) => item.metadata.name)).toEqual(["page-1", "page-2", "page-3"]);
    expect(items[0]).toMatchObject({ apiVersion: "v1", kind: "ConfigMap" });
  });

  test("an informer follows, also over the ends of streams of one second", async () => {
    await create("follow-before");
    const errors: unknown[] = [];
    await using informer = new Informer({
      client,
      resource: configMaps,
      namespace,
      labelSelector: "test=follow",
      timeoutSeconds: () => 1,
      onError: (error) => errors.push(error),
    });
    await informer.synced;
    const { metadata } = await create("follow-after");
    await informer.until("follow-after to be there", (i) => i.get(namespace, "follow-after"));
    await expect.poll(() => informer.stats.restarts, { timeout: 10_000 }).toBeGreaterThanOrEqual(2);
    await client.patch(configMaps, namespace, "follow-after", { type: "merge", body: { data: { a: "1" } } });
    await informer.until("the change", (i) => i.get(namespace, "follow-after")?.data?.a === "1");
    await client.delete(configMaps, namespace, "follow-after", { preconditions: { uid: metadata.uid } });
    await informer.until("the deletion", (i) => i.get(namespace, "follow-after") === undefined);
    expect(errors).toEqual([]);
  });

  test("a token that is none is not authenticated", async () => {
    const answer = await client.review(tokenReviews, { spec: { token: "none", audiences: ["x"] } });
    expect(answer.status?.authenticated ?? false).toBe(false);
  });

  test("a lease is held, and given back", async () => {
    const options = { client, namespace, name: "lease", durationSeconds: 1 };
    const mine = await holdLease({ ...options, identity: "me" });
    await mine.release();
    const next = await holdLease({ ...options, identity: "you" });
    await next.release();
  });

  test("every answer was reported", () => {
    expect(records).toContainEqual(expect.objectContaining({ verb: "create", resource: "configmaps", code: 409 }));
    expect(records).toContainEqual(expect.objectContaining({ verb: "watch", resource: "configmaps", code: 200 }));
  });
});
