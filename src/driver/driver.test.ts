import { pino } from "pino";
import { afterEach, describe, expect, test } from "vitest";
import type { AgentSandbox, Live, Pod, Secret } from "../kube/index.ts";
import { clusterPermissions, labels, sandboxNamespacePermissions } from "../manifests/index.ts";
import { compute, localClient } from "../wire/index.ts";
import { FakeCluster, refusal } from "./_fake-cluster.ts";
import { testSandboxId, testSettings } from "./_testing.ts";
import type { Action } from "./action.ts";
import { createDriver } from "./driver.ts";
import type { Driver } from "./types.ts";

const ends: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

const peer = {
  protocolVersion: { major: 1, minor: 0 },
  implementationName: "openshell/gateway",
  implementationVersion: "0.1.0",
  supportedCapabilities: ["openshell.compute.contract"],
  requiredCapabilities: ["openshell.compute.contract"],
};
const asked = { id: testSandboxId, name: "blue", workspace: "default", spec: { template: {} } };

async function driverOn(cluster: FakeCluster, settings = testSettings()) {
  const rounds: string[][] = [];
  const driver: Driver = createDriver({
    settings,
    gateway: {
      id: "openshell",
      version: "0.1.0",
      endpoint: "https://gateway.test:8080",
      fenceTargets: [],
      caPem: "CA",
    },
    masterSecret: new Uint8Array(32).fill(7),
    log: pino({ level: "silent" }),
    client: cluster,
    onRound: (_id, actions: readonly Action[]) => rounds.push(actions.map((action) => action.do)),
  });
  const stop = new AbortController();
  ends.push(async () => {
    stop.abort();
    await driver.stop();
  });
  await driver.start(stop.signal);
  await cluster.settle();
  return { client: localClient(compute.ComputeDriver, driver.implementation, undefined), rounds, driver };
}

/** Lets the cluster and the driver move until `condition` holds. */
async function until(cluster: FakeCluster, what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  const end = performance.now() + 5_000;
  while (!(await condition())) {
    if (performance.now() > end) expect.fail(`waited 5 s for ${what}`);
    await cluster.settle();
  }
}

/** Runs a call while the cluster around it moves, until the driver has nothing left to do. */
async function during<T>(cluster: FakeCluster, driver: Driver, call: Promise<T>): Promise<T> {
  let isOver = false;
  const over = call.finally(() => {
    isOver = true;
  });
  over.catch(() => undefined);
  await until(cluster, "the call", () => isOver);
  await cluster.settle();
  await until(cluster, "the driver", () => driver.depth() === 0);
  return await over;
}

async function reasonsOf(client: Awaited<ReturnType<typeof driverOn>>["client"]): Promise<string[]> {
  const { sandbox } = await client.getSandbox({ sandboxId: testSandboxId });
  return sandbox?.status?.conditions.map(({ reason }) => reason) ?? [];
}

const ready = ["Admitted", "Scheduled", "WorkloadRunning"];

describe("the number and the order of writes (in-memory cluster)", () => {
  test("create: 9 writes, no read, 6 rounds", async () => {
    const cluster = new FakeCluster();
    const { client, rounds, driver } = await driverOn(cluster);
    const before = cluster.calls.length;
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    expect(await reasonsOf(client)).toEqual(ready);
    expect(cluster.writes().sort()).toEqual([
      "create pods",
      "create sandboxes",
      "create secrets",
      "create secrets",
      "create services",
      "patch pods",
      "patch pods",
      "patch sandboxes",
      "patch sandboxes",
    ]);
    expect(cluster.calls.slice(before).filter(({ verb }) => verb === "get" || verb === "list")).toEqual([]);
    // The first round is the CR itself.
    expect(rounds).toEqual([
      ["create-service", "create-supervisor"],
      ["run"],
      ["write-secret", "write-secret"],
      ["release", "release"],
      ["record"],
    ]);
  });

  test("stop 2, start 7, delete 1, and nothing while nothing happens", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const count = async (call: () => Promise<unknown>) => {
      cluster.calls.length = 0;
      await during(cluster, driver, call());
      return cluster.writes();
    };
    expect(await count(async () => undefined)).toEqual([]);
    expect((await count(() => client.stopSandbox({ sandboxId: testSandboxId }))).length).toBe(2);
    expect(await reasonsOf(client)).toEqual(["Stopped", "Stopped", "Stopped"]);
    expect((await count(() => client.startSandbox({ sandboxId: testSandboxId, generationId: "g2" }))).length).toBe(7);
    expect(await reasonsOf(client)).toEqual(ready);
    expect(await count(() => client.deleteSandbox({ sandboxId: testSandboxId }))).toEqual(["delete sandboxes"]);
    expect(["sandboxes", "pods", "services", "secrets"].flatMap((kind) => cluster.all(kind))).toEqual([]);
    await expect(client.getSandbox({ sandboxId: testSandboxId })).rejects.toMatchObject({ code: "not-found" });
  });

  test("a restarted gateway writes nothing", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    for (const end of ends.splice(0)) await end();
    cluster.calls.length = 0;
    const second = await driverOn(cluster);
    expect(cluster.writes()).toEqual([]);
    expect(await reasonsOf(second.client)).toEqual(ready);
  });

  test("every call is one that the verb table grants, and every verb of Secrets is create or delete", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    cluster.tokenReview = { authenticated: false };
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    await client.authenticateSandbox({ credential: "x" }).catch(() => undefined);
    await during(cluster, driver, client.stopSandbox({ sandboxId: testSandboxId }));
    await during(cluster, driver, client.startSandbox({ sandboxId: testSandboxId, generationId: "g2" }));
    await during(cluster, driver, client.deleteSandbox({ sandboxId: testSandboxId }));
    const granted = [...sandboxNamespacePermissions, ...clusterPermissions];
    for (const { verb, group, resource } of cluster.calls) {
      const isGranted = granted.some(
        (each) => each.group === group && each.resources.includes(resource) && each.verbs.includes(verb),
      );
      expect(isGranted, `${verb} ${group}/${resource}`).toBe(true);
    }
    expect(new Set(cluster.calls.filter(({ resource }) => resource === "secrets").map(({ verb }) => verb))).toEqual(
      new Set(["create"]),
    );
  });
});

describe("a gateway that dies at a write of create", () => {
  const writes = Array.from({ length: 9 }, (_, index) => index + 1);
  const cases = writes.flatMap(
    (at) =>
      [
        [at, "before it is sent"],
        [at, "before its answer is seen"],
      ] as const,
  );

  test.each(cases)("write %i, %s: the next one continues", async (at, when) => {
    const cluster = new FakeCluster();
    const first = await driverOn(cluster);
    let seen = 0;
    const never = new Promise<void>(() => {});
    const isCounted = ({ resource }: { resource: string }) => resource !== "leases" && resource !== "networkpolicies";
    cluster.beforeWrite = (call) => {
      if (!isCounted(call)) return undefined;
      seen += 1;
      return seen > at || (seen === at && when === "before it is sent") ? never : undefined;
    };
    cluster.afterWrite = (call) => (isCounted(call) && seen >= at ? never : undefined);
    first.client.createSandbox({ sandbox: asked }).catch(() => undefined);
    await until(cluster, `write ${at}`, () => seen >= at);
    await cluster.settle();
    ends.length = 0;
    cluster.beforeWrite = () => undefined;
    cluster.afterWrite = () => undefined;
    for (const lease of cluster.all("leases"))
      await cluster.delete(
        { group: "", version: "v1", kind: "Lease", plural: "leases", namespaced: true },
        undefined,
        lease.metadata.name,
      );

    const second = await driverOn(cluster);
    await cluster.settle();
    if (at === 1 && when === "before it is sent") {
      expect(cluster.all("sandboxes")).toEqual([]);
      return;
    }
    const isReady = async () => JSON.stringify(await reasonsOf(second.client)) === JSON.stringify(ready);
    await until(cluster, "the second driver", isReady);
    const secrets = cluster.all<Secret>("secrets");
    const pods = cluster.all<Pod>("pods");
    expect(secrets.length).toBe(2);
    // Each Secret is owned by a Pod that exists: none was kept from before a Pod was made anew.
    for (const { metadata } of secrets) {
      expect(pods.map((pod) => pod.metadata.uid)).toContain(metadata.ownerReferences?.[0]?.uid);
    }
  });
});

describe("refusals", () => {
  const refuse = (plural: string, message: string) => (cluster: FakeCluster) => {
    cluster.beforeWrite = ({ verb, resource }) => {
      if (verb === "create" && resource === plural) throw refusal(403, "Forbidden", message);
    };
  };

  test("a refused supervisor is the caller's answer and leaves nothing", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    refuse("pods", 'pods "x" is forbidden: exceeded quota: q')(cluster);
    await expect(during(cluster, driver, client.createSandbox({ sandbox: asked }))).rejects.toMatchObject({
      code: "resource-exhausted",
      details: { reason: "QuotaExceeded" },
    });
    expect(["sandboxes", "pods", "services", "secrets"].flatMap((kind) => cluster.all(kind))).toEqual([]);
  });

  test("a refused Secret ends the generation with the reason", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    refuse("secrets", 'secrets "x" is forbidden: exceeded quota: q')(cluster);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    expect(await reasonsOf(client)).toEqual(["QuotaExceeded", "GenerationFailed", "GenerationFailed"]);
    expect(cluster.all("pods")).toEqual([]);
    cluster.beforeWrite = () => undefined;
    await during(cluster, driver, client.startSandbox({ sandboxId: testSandboxId, generationId: "again" }));
    expect(await reasonsOf(client)).toEqual(ready);
  });

  test("a supervisor whose pair label admission changed is refused by that label, and is deleted", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    const create = cluster.create.bind(cluster);
    cluster.create = async (resource, namespace, body) => {
      const changed = structuredClone(body);
      if (resource.plural === "pods")
        Object.assign(changed.metadata?.labels ?? {}, { [labels.pairId]: "f".repeat(32) });
      return await create(resource, namespace, changed);
    };
    await expect(during(cluster, driver, client.createSandbox({ sandbox: asked }))).rejects.toMatchObject({
      details: { reason: "AdmissionViolation" },
      message: expect.stringContaining(`metadata.labels.${labels.pairId}`),
    });
    expect(["sandboxes", "pods", "services", "secrets"].flatMap((kind) => cluster.all(kind))).toEqual([]);
  });

  test("a name that somebody else has is said, and theirs is not touched", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    await cluster.create(
      { group: "agents.x-k8s.io", version: "v1beta1", kind: "Sandbox", plural: "sandboxes", namespaced: true },
      "sandboxes",
      {
        metadata: { name: "default--blue" },
        spec: { operatingMode: "Suspended" },
      } as never,
    );
    await expect(during(cluster, driver, client.createSandbox({ sandbox: asked }))).rejects.toMatchObject({
      code: "already-exists",
    });
    expect(cluster.all("sandboxes").length).toBe(1);
  });
});

describe("callers that overlap", () => {
  test("ten starts are one generation", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    await during(cluster, driver, client.stopSandbox({ sandboxId: testSandboxId }));
    const starts = Array.from({ length: 10 }, (_, index) =>
      client.startSandbox({ sandboxId: testSandboxId, generationId: `g${index}` }),
    );
    const results = await during(cluster, driver, Promise.allSettled(starts));
    const identities = results.map((result) =>
      result.status === "fulfilled" ? result.value.runtimeIdentity : result.reason,
    );
    expect(new Set(identities).size).toBe(1);
    expect(new Set(cluster.all<Pod>("pods").map(({ metadata }) => metadata.labels?.[labels.pairId])).size).toBe(1);
    expect(cluster.all("pods").length).toBe(2);
    expect(await reasonsOf(client)).toEqual(ready);
  });

  test("create of the same sandbox twice makes it once", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    const one = await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const two = await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    expect(two.runtimeIdentity).toBe(one.runtimeIdentity);
    expect(cluster.all("sandboxes").length).toBe(1);
  });
});

describe("what the gateway asks", () => {
  test("the handshake refuses a gateway that does not fit", async () => {
    const { client } = await driverOn(new FakeCluster());
    await expect(client.getCapabilities({})).rejects.toMatchObject({ code: "failed-precondition" });
    await expect(
      client.getCapabilities({ gateway: { ...peer, protocolVersion: { major: 2, minor: 0 } } }),
    ).rejects.toMatchObject({ code: "failed-precondition" });
    const { extension, supportsSandboxAuthentication } = await client.getCapabilities({ gateway: peer });
    expect(extension?.requiredCapabilities).toEqual(["openshell.compute.contract"]);
    expect(supportsSandboxAuthentication).toBe(true);
  });

  test("a token is accepted from the current supervisor Pod of the right ServiceAccount for the right audience, and from no other", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    const { runtimeIdentity } = await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const supervisor = cluster
      .all<Pod>("pods")
      .find(({ metadata }) => metadata.name.startsWith("os-supervisor")) as Live<Pod>;
    const status = (
      change: { username?: string; audiences?: string[]; uid?: string; authenticated?: boolean } = {},
    ) => ({
      authenticated: change.authenticated ?? true,
      audiences: change.audiences ?? ["openshell-gateway:openshell"],
      user: {
        username: change.username ?? "system:serviceaccount:sandboxes:default",
        extra: {
          "authentication.kubernetes.io/pod-name": [supervisor.metadata.name],
          "authentication.kubernetes.io/pod-uid": [change.uid ?? supervisor.metadata.uid],
        },
      },
    });
    cluster.tokenReview = status();
    expect(await client.authenticateSandbox({ credential: "token" })).toMatchObject({
      sandboxId: testSandboxId,
      runtimeIdentity,
    });
    for (const wrong of [
      { username: "system:serviceaccount:other:default" },
      { audiences: ["other"] },
      { uid: "other" },
      { authenticated: false },
    ]) {
      cluster.tokenReview = status(wrong);
      await expect(client.authenticateSandbox({ credential: "token" })).rejects.toMatchObject({
        code: "unauthenticated",
      });
    }
    cluster.tokenReview = status();
    await during(cluster, driver, client.stopSandbox({ sandboxId: testSandboxId }));
    await expect(client.authenticateSandbox({ credential: "token" })).rejects.toMatchObject({
      code: "unauthenticated",
    });
  });

  test("a watch is a snapshot and then every change, until the sandbox is gone", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const stop = new AbortController();
    const seen: string[] = [];
    const watching = (async () => {
      for await (const { payload } of client.watchSandboxes({}, { signal: stop.signal })) {
        seen.push(
          payload.case === "sandbox"
            ? (payload.value.sandbox?.status?.conditions[2]?.reason ?? "")
            : (payload.case ?? ""),
        );
        if (payload.case === "deleted") return;
      }
    })();
    await until(cluster, "the snapshot", () => seen.length > 0);
    await during(cluster, driver, client.deleteSandbox({ sandboxId: testSandboxId }));
    await watching;
    expect(seen[0]).toBe("WorkloadRunning");
    expect(seen.at(-1)).toBe("deleted");
  });

  test("v1alpha1 is spoken where v1beta1 is not served", async () => {
    const cluster = new FakeCluster();
    cluster.served.splice(0, 1, "v1alpha1");
    const { client, driver } = await driverOn(cluster);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    expect(await reasonsOf(client)).toEqual(ready);
    const [resource] = cluster.all<AgentSandbox>("sandboxes");
    expect(resource?.spec).toMatchObject({ replicas: 1 });
    expect(resource?.spec).not.toHaveProperty("operatingMode");
    await during(cluster, driver, client.stopSandbox({ sandboxId: testSandboxId }));
    expect(cluster.all<AgentSandbox>("sandboxes")[0]?.spec.replicas).toBe(0);
  });

  test("without the Agent Sandbox API creation says so", async () => {
    const cluster = new FakeCluster();
    cluster.served.length = 0;
    const { client } = await driverOn(cluster);
    await expect(client.createSandbox({ sandbox: asked })).rejects.toMatchObject({
      details: { reason: "AgentSandboxUnavailable" },
    });
  });
});
