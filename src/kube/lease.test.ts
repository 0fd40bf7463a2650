import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { answer, refuse, ScriptedServer } from "./_scripted-server.ts";
import { createKubeClient } from "./client.ts";
import { holdLease, type LeaseOptions } from "./lease.ts";
import type { Lease } from "./resources.ts";
import type { KubeClient, Live } from "./types.ts";

/** A server that keeps one Lease, with the API server's rules for creating and patching. */
async function leaseServer() {
  const state = {
    lease: undefined as Live<Lease> | undefined,
    down: false,
    /** Reads that are still to fail. */
    failingReads: 0,
    /** Between a creation and its answer. */
    afterCreate: async (_clientLeft: Promise<unknown>): Promise<void> => undefined,
  };
  const server = await ScriptedServer.start(async (request, response) => {
    const { lease } = state;
    const body = request.body as Lease & { metadata: { resourceVersion?: string } };
    const meta = { name: "l", uid: "u", resourceVersion: String(Number(lease?.metadata.resourceVersion ?? 0) + 1) };
    if (state.down) return refuse(500, "InternalError", "down")(request, response);
    if (request.method === "POST") {
      if (lease) return refuse(409, "AlreadyExists", "there is one")(request, response);
      state.lease = { spec: body.spec ?? {}, metadata: meta };
      await state.afterCreate(once(response, "close"));
    } else {
      if (request.method === "GET" && state.failingReads-- > 0) {
        return refuse(500, "InternalError", "etcd has no leader")(request, response);
      }
      if (!lease) return refuse(404, "NotFound", "none")(request, response);
      if (request.method === "PATCH") {
        if (body.metadata.resourceVersion !== lease.metadata.resourceVersion) {
          return refuse(409, "Conflict", "the object has been modified")(request, response);
        }
        state.lease = { spec: { ...lease.spec, ...body.spec }, metadata: meta };
      }
    }
    const applied = structuredClone(state.lease);
    return answer(200, applied)(request, response);
  });
  const client = await createKubeClient({ component: "test", access: server.access });
  return {
    state,
    client,
    holder: () => state.lease?.spec?.holderIdentity,
    /** Somebody else's write. */
    touch: (spec: Lease["spec"] & object) => {
      if (!state.lease) return;
      const { lease } = state;
      const resourceVersion = String(Number(lease.metadata.resourceVersion) + 1);
      state.lease = { spec: { ...lease.spec, ...spec }, metadata: { ...lease.metadata, resourceVersion } };
    },
    async [Symbol.asyncDispose]() {
      client.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

/** Longer than a busy machine stands still. */
const durationSeconds = 2;
const hold = (client: KubeClient, identity: string, options: Partial<LeaseOptions> = {}) =>
  holdLease({ client, namespace: "ns", name: "l", identity, durationSeconds, ...options });

const aborted = (signal: AbortSignal) => expect.poll(() => signal.aborted, { timeout: 15_000 }).toBe(true);

describe("a lease", () => {
  test("is made when there is none, and renewed while it is held", async () => {
    await using s = await leaseServer();
    await using _ = await hold(s.client, "me");
    const first = s.state.lease?.spec?.renewTime;
    expect(first).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
    await expect.poll(() => s.state.lease?.spec?.renewTime).not.toBe(first);
    expect(s.holder()).toBe("me");
  });

  test("is given to the next one when it is given back", async () => {
    await using s = await leaseServer();
    const mine = await hold(s.client, "me");
    const next = hold(s.client, "you");
    await mine.release();
    expect(mine.lost.aborted).toBe(true);
    await using _ = await next;
    expect(s.holder()).toBe("you");
    expect(s.state.lease?.spec?.leaseTransitions).toBe(1);
  });

  test("is taken from a holder that stopped renewing, not from one that renews", async () => {
    await using s = await leaseServer();
    const mine = await hold(s.client, "me");
    const abort = new AbortController();
    const refused = expect(hold(s.client, "you", { signal: abort.signal })).rejects.toMatchObject({
      code: "cancelled",
    });
    const first = s.state.lease?.metadata.resourceVersion;
    const renewals = () => Number(s.state.lease?.metadata.resourceVersion) - Number(first);
    await expect.poll(renewals, { timeout: 15_000 }).toBeGreaterThan(4);
    abort.abort();
    await refused;
    await mine.release();
    s.touch({ holderIdentity: "dead", leaseDurationSeconds: 0.2 });
    await using _ = await hold(s.client, "you");
    expect(s.holder()).toBe("you");
  });

  test("is known to be lost when another took it", async () => {
    await using s = await leaseServer();
    const mine = await hold(s.client, "me");
    s.touch({ holderIdentity: "thief" });
    await aborted(mine.lost);
    await mine.release();
    expect(s.holder()).toBe("thief");
  });

  test("is known to be lost when it cannot be renewed in time", async () => {
    await using s = await leaseServer();
    const mine = await hold(s.client, "me");
    s.state.down = true;
    await aborted(mine.lost);
    s.state.down = false;
    await mine.release();
  });

  test("is not held by a write whose answer came when another could have it", async () => {
    await using s = await leaseServer();
    s.state.afterCreate = async (clientLeft) => {
      const first = await Promise.race([clientLeft, delay(600, "another")]);
      if (first === "another") s.touch({ holderIdentity: "you", leaseDurationSeconds: 1 });
    };
    await using _ = await hold(s.client, "me", { durationSeconds: 0.3 });
    expect(s.holder()).toBe("me");
  });

  test("is held no longer than its time, counted from before the write that took it", async () => {
    await using s = await leaseServer();
    let heldWhenOver: Promise<boolean> | undefined;
    s.state.afterCreate = async () => {
      heldWhenOver = delay(3000).then(() => !mine.lost.aborted);
      await delay(400);
      s.state.down = true;
    };
    const mine = await hold(s.client, "me", { durationSeconds: 3 });
    expect(mine.lost.aborted).toBe(false);
    expect(await heldWhenOver).toBe(false);
    s.state.down = false;
    await mine.release();
  });

  test("is not lost by a failure to read who wrote it, which is told", async () => {
    await using s = await leaseServer();
    const told: unknown[] = [];
    await using mine = await hold(s.client, "me", { onError: (error) => told.push(error) });
    s.state.failingReads = 1;
    s.touch({});
    const touched = s.state.lease?.spec?.renewTime;
    await expect.poll(() => s.state.lease?.spec?.renewTime).not.toBe(touched);
    expect(mine.lost.aborted).toBe(false);
    expect(told).toContainEqual(expect.objectContaining({ message: expect.stringContaining("etcd has no leader") }));
  });

  test("is kept beside an API server that takes a quarter of the lease's time for each answer", async () => {
    const enough = new AbortController();
    let nowMs = 0;
    const pass = async (ms: number) => {
      nowMs += ms;
    };
    let lease: Live<Lease> = { metadata: { name: "l", uid: "u", resourceVersion: "1" } };
    const renewedAt: number[] = [];
    const slow: Pick<KubeClient, "find" | "patch"> = {
      find: async () => lease as never,
      patch: async (_resource, _namespace, _name, { body }, { deadlineMs = Number.POSITIVE_INFINITY } = {}) => {
        if (3_900 >= deadlineMs) throw new Error(`no answer within ${deadlineMs} ms`);
        renewedAt.push(nowMs);
        await pass(3_900);
        lease = { ...lease, ...(body as Pick<Lease, "spec">) };
        if (renewedAt.length === 9) enough.abort();
        return lease as never;
      },
    };
    const mine = await hold(slow as KubeClient, "me", {
      durationSeconds: 15,
      clock: { now: () => nowMs, sleep: pass },
      signal: enough.signal,
    });
    await aborted(mine.lost);
    expect(renewedAt).toEqual([0, 5, 10, 15, 20, 25, 30, 35, 40].map((seconds) => seconds * 1_000));
  });

  test("survives somebody else's write that leaves the holder alone", async () => {
    await using s = await leaseServer();
    await using mine = await hold(s.client, "me");
    s.touch({});
    const touched = s.state.lease?.spec?.renewTime;
    await expect.poll(() => s.state.lease?.spec?.renewTime).not.toBe(touched);
    expect(mine.lost.aborted).toBe(false);
  });
});
