import { UnsecuredJWT } from "jose";
import { pino } from "pino";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import {
  type AgentSandbox,
  type KubeObject,
  type Lease,
  type Live,
  type NetworkPolicy,
  networkPolicies,
  type Pod,
  pods,
  type Resource,
  type Secret,
  sandboxes,
} from "../kube/index.ts";
import { annotations, clusterPermissions, labels, sandboxNamespacePermissions } from "../manifests/index.ts";
import { compute, localClient } from "../wire/index.ts";
import { FakeCluster, refusal } from "./_fake-cluster.ts";
import { testSandboxId, testSettings } from "./_testing.ts";
import { tokenNaming } from "./_testing-driver.ts";
import type { Action } from "./action.ts";
import { ClusterView } from "./cluster-view.ts";
import { createDriver } from "./driver.ts";
import type { Driver, DriverOptions } from "./types.ts";

const ends: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
  vi.unstubAllEnvs();
});

const peer = {
  protocolVersion: { major: 1, minor: 0 },
  implementationName: "openshell/gateway",
  implementationVersion: "0.1.0",
  supportedCapabilities: ["openshell.compute.contract"],
  requiredCapabilities: ["openshell.compute.contract"],
};
const asked = { id: testSandboxId, name: "blue", workspace: "default", spec: { template: {} } };

const gatewayOf = (caPem: () => string) => ({
  id: "openshell",
  version: "0.1.0",
  endpoint: "https://gateway.test:8080",
  fenceTargets: [],
  caPem,
});
const optionsOn = (client: FakeCluster) => ({
  gateway: gatewayOf(() => "CA"),
  masterSecret: new Uint8Array(32).fill(7),
  log: pino({ level: "silent" }),
  client,
});

async function driverOn(cluster: FakeCluster, settings = testSettings(), options: Partial<DriverOptions> = {}) {
  const rounds: string[][] = [];
  const driver: Driver = createDriver({
    ...optionsOn(cluster),
    ...options,
    settings,
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
async function until(
  cluster: FakeCluster,
  what: string,
  condition: () => boolean | Promise<boolean>,
  deadlineMs = 5_000,
): Promise<void> {
  const end = performance.now() + deadlineMs;
  while (!(await condition())) {
    if (performance.now() > end) expect.fail(`waited ${deadlineMs / 1000} s for ${what}`);
    await cluster.settle();
  }
}

/** Runs a call while the cluster around it moves, until the driver has nothing left to do. */
async function during<T>(cluster: FakeCluster, driver: Driver, call: Promise<T>, deadlineMs?: number): Promise<T> {
  let isOver = false;
  const over = call.finally(() => {
    isOver = true;
  });
  over.catch(() => undefined);
  await until(cluster, "the call", () => isOver, deadlineMs);
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
  test.each([
    ["off", 6],
    ["preferred", 6],
    // The second Pod is released when the first has its node.
    ["required", 7],
  ] as const)("create, anti-affinity %s: 9 writes, no read, %i rounds", async (pod_anti_affinity, count) => {
    const cluster = new FakeCluster();
    const { client, rounds, driver } = await driverOn(cluster, testSettings({}, { pod_anti_affinity }));
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
    expect(rounds).toEqual([
      ["create-service", "create-supervisor"],
      ["run"],
      ["write-secret", "write-secret"],
      ...(pod_anti_affinity === "required" ? [["release"], ["release"]] : [["release", "release"]]),
      ["record"],
    ]);
    // The first round is the CR itself.
    expect(rounds.length + 1).toBe(count);
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
    const [pod] = cluster.all<Pod>("pods");
    if (pod !== undefined) await client.authenticateSandbox({ credential: tokenNaming(pod) }).catch(() => undefined);
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
        "sandboxes",
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
  const refuse =
    (plural: string, message: string, of = "create") =>
    (cluster: FakeCluster) => {
      cluster.beforeWrite = ({ verb, resource }) => {
        if (verb === of && resource === plural) throw refusal(403, "Forbidden", message);
      };
    };
  const denied = "an admission policy denied the request";

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

  test.each([
    [500, "InternalError", 'failed calling webhook "w.example.com": connect: connection refused'],
    [403, "Forbidden", 'is forbidden: User "system:serviceaccount:a:b" cannot create resource in API group ""'],
  ])("with %i that are over in a moment are nobody's answer, and no end", async (code, reason, message) => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    const refused = new Set<string>();
    cluster.beforeWrite = ({ verb, resource }) => {
      if (resource === "leases" || refused.has(`${verb} ${resource}`)) return;
      refused.add(`${verb} ${resource}`);
      throw refusal(code, reason, message);
    };
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    expect(await reasonsOf(client)).toEqual(ready);
    expect([...refused].sort()).toEqual([
      "create pods",
      "create sandboxes",
      "create secrets",
      "create services",
      "patch pods",
      "patch sandboxes",
    ]);
  });

  test("for want of a right are told when they last", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    refuse("pods", 'pods is forbidden: User "system:serviceaccount:a:b" cannot create resource "pods"')(cluster);
    const creating = during(cluster, driver, client.createSandbox({ sandbox: asked }), 15_000);
    await expect(creating).rejects.toMatchObject({
      code: "failed-precondition",
      details: { reason: "PermissionDenied" },
    });
  }, 20_000);

  test("of a Sandbox that was never made nothing is remembered", async () => {
    const forget = vi.spyOn(ClusterView.prototype, "forget");
    onTestFinished(() => forget.mockRestore());
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    refuse("sandboxes", 'sandboxes "x" is forbidden: exceeded quota: q')(cluster);
    const creating = client.createSandbox({ sandbox: asked });
    await expect(during(cluster, driver, creating)).rejects.toMatchObject({
      code: "resource-exhausted",
      message: expect.stringMatching(/^the cluster refused the Sandbox: .*exceeded quota/),
      details: { reason: "QuotaExceeded" },
    });
    expect(forget).toHaveBeenCalledExactlyOnceWith(testSandboxId);
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

  test("a Sandbox that may not run is the caller's answer: a new one leaves nothing, a stopped one stays stopped", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    const answer = { code: "failed-precondition", details: { reason: "AdmissionRefused" } };
    const refuseToRun = refuse("sandboxes", denied, "patch");
    refuseToRun(cluster);
    const creating = client.createSandbox({ sandbox: asked });
    await expect(during(cluster, driver, creating)).rejects.toMatchObject(answer);
    expect(["sandboxes", "pods", "services", "secrets"].flatMap((kind) => cluster.all(kind))).toEqual([]);
    cluster.beforeWrite = () => undefined;
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    await during(cluster, driver, client.stopSandbox({ sandboxId: testSandboxId }));
    refuseToRun(cluster);
    const starting = client.startSandbox({ sandboxId: testSandboxId });
    await expect(during(cluster, driver, starting)).rejects.toMatchObject(answer);
    expect(await reasonsOf(client)).toEqual(["Stopped", "Stopped", "Stopped"]);
    expect(cluster.all("pods")).toEqual([]);
  });

  test.each([
    [403, "AdmissionRefused"],
    [422, "InvalidPod"],
  ] as const)("a release refused with %i ends the generation with %s", async (code, reason) => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    cluster.beforeWrite = ({ verb, resource }) => {
      if (verb === "patch" && resource === "pods") throw refusal(code, "", denied);
    };
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    expect(await reasonsOf(client)).toEqual([reason, "GenerationFailed", "GenerationFailed"]);
    expect(cluster.all("pods")).toEqual([]);
  });

  const isSupervisor = ({ metadata }: Live<Pod>) => metadata.name.startsWith("os-supervisor");

  test("the refused release of a first supervisor ends the generation although its workload runs already", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster, testSettings({}, { pod_anti_affinity: "required" }));
    const isUp = (pod: Live<Pod>) => !isSupervisor(pod) && pod.status?.phase === "Running";
    cluster.beforeWrite = ({ verb, resource }) => {
      const isSecond = cluster.all<Pod>("pods").some(isUp);
      if (verb === "patch" && resource === "pods" && isSecond) throw refusal(403, "Forbidden", denied);
    };
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    expect(await reasonsOf(client)).toEqual(["AdmissionRefused", "GenerationFailed", "GenerationFailed"]);
    expect(cluster.all("pods")).toEqual([]);
  });

  test("the Secret of a first supervisor, lost before it started and refused again, ends the generation", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    const create = cluster.create.bind(cluster);
    // Another controller holds the supervisor back.
    cluster.create = async (resource, namespace, body) => {
      const held = structuredClone(body) as Pod & typeof body;
      held.spec?.schedulingGates?.push({ name: "kueue.x-k8s.io/admission" });
      const isPod = resource.plural === "pods";
      return await create(resource, namespace, isPod ? { ...held, status: { phase: "Pending" } } : body);
    };
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const { metadata } = cluster.all<Pod>("pods").find(isSupervisor) as Live<Pod>;
    const [workload] = cluster.all<Pod>("pods").filter((pod) => !isSupervisor(pod));
    expect(workload?.status?.phase).toBe("Running");
    refuse("secrets", 'secrets "x" is forbidden: exceeded quota: q')(cluster);
    cluster.place("events", {
      metadata: { name: "lost", namespace: "sandboxes" },
      involvedObject: { kind: "Pod", ...metadata },
      reason: "FailedMount",
      message: 'MountVolume.SetUp failed for volume "identity" : secret "x" not found',
    } as KubeObject & { metadata: { name: string } });
    await until(cluster, "its end", async () => (await reasonsOf(client))[0] === "QuotaExceeded");
    await until(cluster, "its Pods' end", () => cluster.all("pods").length === 0);
  });

  test("a workload that its node can never start, as only the node's event says, ends the generation", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster, testSettings({ enable_user_namespaces: true }));
    cluster.fits = isSupervisor;
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const { metadata } = cluster.all<Pod>("pods").find((pod) => !isSupervisor(pod)) as Live<Pod>;
    cluster.place("events", {
      metadata: { name: "refused", namespace: "sandboxes" },
      involvedObject: { kind: "Pod", ...metadata },
      reason: "FailedCreatePodSandBox",
      message:
        "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces",
    } as KubeObject & { metadata: { name: string } });
    await until(cluster, "its end", async () => (await reasonsOf(client))[2] === "NodeRefused");
    await until(cluster, "its Pods' end", () => cluster.all("pods").length === 0);
  });

  test("why a node cannot start a workload's containers yet is said in its latest words, until it can", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster, testSettings());
    cluster.fits = isSupervisor;
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const pod = cluster.all<Pod>("pods").find((each) => !isSupervisor(each)) as Live<Pod>;
    const become = (type: string, status: "True" | "False") => {
      const body = { spec: { nodeName: "node-1" }, status: { phase: "Pending", conditions: [{ type, status }] } };
      return cluster.patch(pods, "sandboxes", pod.metadata.name, { type: "merge", body });
    };
    const tell = (name: string, minute: number, message: string) =>
      cluster.place("events", {
        metadata: { name, namespace: "sandboxes" },
        involvedObject: { kind: "Pod", ...pod.metadata },
        reason: "FailedCreatePodSandBox",
        lastTimestamp: `2026-01-02T03:0${minute}:00Z`,
        message,
      } as KubeObject & { metadata: { name: string } });
    const said = async () =>
      (await client.getSandbox({ sandboxId: testSandboxId })).sandbox?.status?.conditions[2]?.message;
    const saying = (message: string) => until(cluster, message, async () => (await said()) === message);
    await become("PodReadyToStartContainers", "False");
    tell("a", 2, "Failed to create pod sandbox: no network");
    await saying("node node-1 cannot start the containers yet: Failed to create pod sandbox: no network");
    tell("b", 1, "Failed to create pod sandbox: older");
    tell("c", 3, "Failed to create pod sandbox: no class");
    await saying("node node-1 cannot start the containers yet: Failed to create pod sandbox: no class");
    await become("PodReadyToStartContainers", "True");
    await saying("node node-1 is starting the containers");
  });

  /** A sandbox that ran and has lost its supervisor. */
  async function withoutSupervisor(prepare: (cluster: FakeCluster) => void) {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const lost = cluster.all<Pod>("pods").find(isSupervisor) as Live<Pod>;
    prepare(cluster);
    cluster.forget("pods", lost);
    return { cluster, client };
  }

  /** It gets no other one, since these objects, or the opening of its gate, are refused. */
  async function refusedReplacement(what: "pods" | "secrets" | "release") {
    const { cluster, client } = await withoutSupervisor((cluster) => {
      if (what !== "release") return refuse(what, `${what} "x" is forbidden: exceeded quota: q`)(cluster);
      cluster.beforeWrite = ({ verb, resource }) => {
        const isThere = cluster.all<Pod>("pods").some(isSupervisor);
        if (verb === "patch" && resource === "pods" && isThere) throw refusal(403, "Forbidden", denied);
      };
    });
    await until(cluster, "the refusal", async () => (await reasonsOf(client))[0] === "SupervisorRefused");
    return { cluster, client };
  }

  test("a refused replacement is said, and ends no workload that runs", async () => {
    const { cluster, client } = await refusedReplacement("pods");
    expect(await reasonsOf(client)).toEqual(["SupervisorRefused", "WaitingForAdmission", "WorkloadRunning"]);
    expect(cluster.all<Pod>("pods").map(isSupervisor)).toEqual([false]);
    expect(cluster.all<AgentSandbox>("sandboxes")[0]?.spec.operatingMode).toBe("Running");
  });

  test.each([
    ["Secret", "secrets"],
    ["release", "release"],
  ] as const)(
    "a refused %s of a replacement is said, ends no workload that runs, and is asked for again",
    async (_name, what) => {
      const { cluster, client } = await refusedReplacement(what);
      expect(cluster.all<AgentSandbox>("sandboxes")[0]?.spec.operatingMode).toBe("Running");
      cluster.beforeWrite = () => undefined;
      const isReady = async () => (await reasonsOf(client)).join() === ready.join();
      // Asked once in five seconds.
      await until(cluster, "the next supervisor", isReady, 15_000);
    },
  );

  test("what admission changes in the release of a replacement ends the generation", async () => {
    const { cluster, client } = await withoutSupervisor((changing) => {
      const patch = changing.patch.bind(changing);
      changing.patch = async (resource, namespace, name, body) => {
        const answer = await patch(resource, namespace, name, body);
        return resource.plural === "pods"
          ? { ...answer, spec: { ...(answer as Pod).spec, hostNetwork: true } }
          : answer;
      };
    });
    await until(cluster, "its end", async () => (await reasonsOf(client))[0] === "AdmissionViolation");
    await until(cluster, "its Pods' end", () => cluster.all("pods").length === 0);
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

test("an error of the controller that may pass has the Sandbox touched, by one write", async () => {
  const cluster = new FakeCluster();
  let now = Date.now();
  const { client, driver } = await driverOn(cluster, testSettings(), { now: () => new Date(now) });
  // The controller of this cluster sees no Sandbox, and so makes no Pod.
  const stored = cluster.all.bind(cluster);
  cluster.all = (plural) => (plural === "sandboxes" ? [] : stored(plural));
  await during(cluster, driver, client.createSandbox({ sandbox: asked }));
  now += 31_000;
  cluster.calls.length = 0;
  const resource: Resource = { group: "", version: "v1", kind: "", plural: "sandboxes", namespaced: true };
  const error = { type: "Ready", status: "False", reason: "ReconcilerError", message: "x", lastTransitionTime: "" };
  const patch = { type: "merge", body: { status: { conditions: [error] } } } as const;
  await cluster.patch(resource, "sandboxes", "default--blue", patch);
  const nudged = () => stored<AgentSandbox>("sandboxes")[0]?.metadata.annotations?.[annotations.nudge];
  await until(cluster, "a write", () => nudged() !== undefined);
  await until(cluster, "the driver", () => driver.depth() === 0);
  expect(nudged()).toBe(new Date(now).toISOString());
  expect(await reasonsOf(client)).toContain("ControllerError");
  // One by the test, one by the driver.
  expect(cluster.writes()).toEqual(["patch sandboxes", "patch sandboxes"]);
});

describe("a sandbox that has failed", () => {
  test("is started anew also by who hears of it before its record says so", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const written = Promise.withResolvers<void>();
    let isHeld = false;
    cluster.beforeWrite = async ({ verb, resource }) => {
      if (isHeld || verb !== "patch" || resource !== "sandboxes") return;
      isHeld = true;
      await written.promise;
    };
    const workload = cluster.all<Pod>("pods").find(({ metadata }) => !metadata.name.startsWith("os-supervisor"));
    const status = { phase: "Failed", reason: "Evicted", message: "The node was low on resource: memory." };
    const { namespace, name = "" } = workload?.metadata ?? {};
    await cluster.patch(pods, namespace, name, { type: "merge", body: { status } });
    await until(cluster, "the write of its end", () => isHeld);
    expect(await reasonsOf(client)).toContain("Evicted");
    const starting = client.startSandbox({ sandboxId: testSandboxId, generationId: "g2" });
    written.resolve();
    await during(cluster, driver, starting);
    expect(await reasonsOf(client)).toEqual(ready);
  });
});

describe("affinity that somebody writes into the Sandbox", () => {
  test("is kept by the next start, also when it comes while that is under way", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    await during(cluster, driver, client.stopSandbox({ sandboxId: testSandboxId }));
    const [resource] = cluster.all<AgentSandbox>("sandboxes");
    const term = { weight: 1, preference: { matchExpressions: [{ key: "zone", operator: "Exists" }] } };
    const affinity = { nodeAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [term] } };
    let isWritten = false;
    cluster.beforeWrite = async ({ verb, resource: plural }) => {
      if (isWritten || verb !== "patch" || plural !== "sandboxes") return;
      isWritten = true;
      const body = { spec: { podTemplate: { spec: { affinity } } } };
      await cluster.patch(sandboxes("v1beta1"), "sandboxes", resource?.metadata.name ?? "", { type: "merge", body });
    };
    await during(cluster, driver, client.startSandbox({ sandboxId: testSandboxId }));
    expect(isWritten).toBe(true);
    expect(cluster.all<AgentSandbox>("sandboxes")[0]?.spec.podTemplate.spec.affinity).toEqual(affinity);
  });
});

describe("an operator who allows less than when a sandbox was made", () => {
  const labelled = { ...asked, spec: { template: { labels: { team: "a" } } } };

  test("is obeyed at the next start, not before; and it starts when that is allowed again", async () => {
    const cluster = new FakeCluster();
    const open = testSettings({ allowed_pod_labels: ["team"] });
    const first = await driverOn(cluster, open);
    await during(cluster, first.driver, first.client.createSandbox({ sandbox: labelled }));
    await first.driver.stop();

    const closed = await driverOn(cluster, testSettings());
    expect(await reasonsOf(closed.client)).toEqual(ready);
    await during(cluster, closed.driver, closed.client.stopSandbox({ sandboxId: testSandboxId }));
    const refused = closed.client.startSandbox({ sandboxId: testSandboxId });
    await expect(during(cluster, closed.driver, refused)).rejects.toMatchObject({
      code: "failed-precondition",
      message: "template.labels.team: is not among this gateway's allowed_pod_labels (none)",
      details: { reason: "NoLongerAllowed" },
    });
    expect(cluster.all("pods")).toEqual([]);
    await closed.driver.stop();

    const again = await driverOn(cluster, open);
    await during(cluster, again.driver, again.client.startSandbox({ sandboxId: testSandboxId }));
    expect(await reasonsOf(again.client)).toEqual(ready);
  });
});

test("supervisors have the user of today's sandbox_uid from the next start on, and the agent keeps its own", async () => {
  const cluster = new FakeCluster();
  const uids = () =>
    Object.fromEntries(
      cluster
        .all<Pod>("pods")
        .map(({ metadata, spec }) => [metadata.labels?.[labels.boundaryRole], spec?.securityContext?.runAsUser]),
    );
  const first = await driverOn(cluster);
  await during(cluster, first.driver, first.client.createSandbox({ sandbox: asked }));
  await first.driver.stop();

  const next = await driverOn(cluster, testSettings({ sandbox_uid: 20_000 }));
  expect(uids()).toEqual({ supervisor: 10_002, workload: 10_001 });
  await during(cluster, next.driver, next.client.stopSandbox({ sandboxId: testSandboxId }));
  await during(cluster, next.driver, next.client.startSandbox({ sandboxId: testSandboxId }));
  expect(uids()).toEqual({ supervisor: 20_001, workload: 10_001 });
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
    const token = tokenNaming(supervisor);
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
    cluster.calls.length = 0;
    const otherUid = { metadata: { ...supervisor.metadata, uid: "other" } };
    for (const credential of ["", "x", "a.b.c", tokenNaming(otherUid), new UnsecuredJWT({ sub: "x" }).encode()]) {
      await expect(client.authenticateSandbox({ credential })).rejects.toMatchObject({ code: "unauthenticated" });
    }
    // Made up by whoever reaches the port: the API server hears of none.
    expect(cluster.calls).toEqual([]);
    expect(await client.authenticateSandbox({ credential: token })).toMatchObject({
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
      await expect(client.authenticateSandbox({ credential: token })).rejects.toMatchObject({
        code: "unauthenticated",
      });
    }
    cluster.tokenReview = status();
    await during(cluster, driver, client.stopSandbox({ sandboxId: testSandboxId }));
    await expect(client.authenticateSandbox({ credential: token })).rejects.toMatchObject({
      code: "unauthenticated",
    });
  });

  test("a supervisor gets the gateway's authority as it is then: it may have changed since the driver began", async () => {
    const cluster = new FakeCluster();
    let authority = "old";
    const { client, driver } = await driverOn(cluster, testSettings(), { gateway: gatewayOf(() => authority) });
    const authorities = () =>
      cluster
        .all<KubeObject & { readonly stringData?: Readonly<Record<string, string>> }>("secrets")
        .flatMap(({ stringData }) => stringData?.["gateway-ca.crt"] ?? []);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    expect(authorities()).toEqual(["old"]);
    await during(cluster, driver, client.stopSandbox({ sandboxId: testSandboxId }));
    authority = "new";
    await during(cluster, driver, client.startSandbox({ sandboxId: testSandboxId, generationId: "g2" }));
    expect(authorities()).toContain("new");
  });

  test("GPUs are counted as nodes write their number, by one list", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    const place = (name: string, count: string) =>
      cluster.place("nodes", {
        metadata: { name },
        status: { allocatable: { "nvidia.com/gpu": count } },
      } as KubeObject & {
        metadata: { name: string };
      });
    place("a", "1");
    place("b", "1k");
    const wanting = (count: number) => ({
      sandbox: { ...asked, spec: { template: {}, resourceRequirements: { gpu: { count } } } },
    });
    await expect(client.validateSandboxCreate(wanting(1001))).rejects.toMatchObject({
      message: "no node has 1001 nvidia.com/gpu; the most that one node has is 1000",
    });
    cluster.calls.length = 0;
    await during(cluster, driver, client.createSandbox(wanting(1000)));
    expect(await reasonsOf(client)).toEqual(ready);
    expect(cluster.calls.filter(({ verb, resource }) => verb === "list" && resource === "nodes").length).toBe(1);
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

  test("a delete finds the Sandbox that a former process made and no watch shows yet, by one list", async () => {
    const former = new FakeCluster();
    const first = await driverOn(former);
    await during(former, first.driver, first.client.createSandbox({ sandbox: asked }));
    const cluster = new FakeCluster();
    const watch = cluster.watch.bind(cluster);
    const caughtUp = Promise.withResolvers<void>();
    cluster.watch = async function* (resource, namespace, options) {
      for await (const event of watch(resource, namespace, options)) {
        if (resource.plural === "sandboxes") await caughtUp.promise;
        yield event;
      }
    };
    const { client, driver } = await driverOn(cluster);
    const [{ metadata, ...made } = expect.fail("no Sandbox")] = former.all<AgentSandbox>("sandboxes");
    cluster.place("sandboxes", { ...made, metadata } as Live<AgentSandbox>);
    const read = () => cluster.calls.filter(({ verb }) => verb === "get" || verb === "list");
    cluster.calls.length = 0;
    expect(await client.deleteSandbox({ sandboxId: testSandboxId })).toMatchObject({ deleted: true });
    expect(read()).toMatchObject([{ verb: "list", resource: "sandboxes" }]);
    expect(cluster.all("sandboxes")).toEqual([]);
    caughtUp.resolve();
    await during(cluster, driver, Promise.resolve());
    expect(cluster.writes()).toEqual(["delete sandboxes"]);
    expect(await client.deleteSandbox({ sandboxId: testSandboxId })).toMatchObject({ deleted: false });
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

describe("labels that somebody changes", () => {
  const ofPods = [
    labels.managedBy,
    labels.gatewayId,
    labels.sandboxId,
    labels.workspace,
    labels.pairId,
    labels.boundaryRole,
  ];
  const podOf = (cluster: FakeCluster, role: "workload" | "supervisor") =>
    cluster
      .all<Pod>("pods")
      .find(({ metadata }) => metadata.name.startsWith("os-supervisor") === (role === "supervisor")) as Live<Pod>;
  const relabel = async (cluster: FakeCluster, object: Live<KubeObject>, plural: string, change: object) => {
    const resource: Resource = { group: "", version: "v1", kind: "", plural, namespaced: true };
    await cluster.patch(resource, "sandboxes", object.metadata.name, {
      type: "merge",
      body: { metadata: { labels: change } },
    });
  };

  const cases = (["workload", "supervisor"] as const).flatMap((role) =>
    ofPods.flatMap((label) =>
      (["taken away", "changed"] as const).map((how) => [role, label.split("/")[1] ?? "", how] as const),
    ),
  );
  test.each(cases)("the %s Pod's %s, %s, is put back, and the pair goes on", async (role, label, how) => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const before = podOf(cluster, role);
    const generations = cluster.all<Pod>("pods").map(({ metadata }) => metadata.uid);
    cluster.calls.length = 0;
    await relabel(cluster, before, "pods", { [`openshell.ai/${label}`]: how === "changed" ? "other" : null });
    await until(cluster, "the label", () => {
      const { metadata } = podOf(cluster, role);
      return (
        JSON.stringify(Object.entries(metadata.labels ?? {}).sort()) ===
        JSON.stringify(Object.entries(before.metadata.labels ?? {}).sort())
      );
    });
    await until(cluster, "the driver", () => driver.depth() === 0);
    expect(await reasonsOf(client)).toEqual(ready);
    expect(cluster.all<Pod>("pods").map(({ metadata }) => metadata.uid)).toEqual(generations);
    // One by the test, one by the driver.
    expect(cluster.writes()).toEqual(["patch pods", "patch pods"]);
  });

  test.each([labels.gatewayId, labels.sandboxId, labels.workspace, labels.managedBy])(
    "the Sandbox's %s is put back, and nobody is told that it was deleted",
    async (label) => {
      const cluster = new FakeCluster();
      const { client, driver } = await driverOn(cluster);
      await during(cluster, driver, client.createSandbox({ sandbox: asked }));
      const [before] = cluster.all<AgentSandbox>("sandboxes");
      await relabel(cluster, before as Live<AgentSandbox>, "sandboxes", { [label]: null });
      await until(cluster, "the label", async () => {
        expect(await reasonsOf(client)).toEqual(ready);
        return cluster.all<AgentSandbox>("sandboxes")[0]?.metadata.labels?.[label] === before?.metadata.labels?.[label];
      });
      await until(cluster, "the driver", () => driver.depth() === 0);
      expect(await reasonsOf(client)).toEqual(ready);
    },
  );

  test("what lost its labels while no gateway ran is found by the record", async () => {
    const cluster = new FakeCluster();
    const first = await driverOn(cluster);
    await during(cluster, first.driver, first.client.createSandbox({ sandbox: asked }));
    for (const end of ends.splice(0)) await end();
    const uids = cluster.all<Pod>("pods").map(({ metadata }) => metadata.uid);
    for (const pod of cluster.all<Pod>("pods")) await relabel(cluster, pod, "pods", { [labels.gatewayId]: null });
    const { client, driver } = await driverOn(cluster);
    const isReady = async () => JSON.stringify(await reasonsOf(client)) === JSON.stringify(ready);
    await until(cluster, "both Pods", async () => (await isReady()) && driver.depth() === 0);
    expect(cluster.all<Pod>("pods").map(({ metadata }) => [metadata.uid, metadata.labels?.[labels.gatewayId]])).toEqual(
      uids.map((uid) => [uid, "openshell"]),
    );
  });

  test("a Pod that really went is looked for once, and no label is said to be changed", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const stop = new AbortController();
    const events: string[] = [];
    const watching = (async () => {
      for await (const { payload } of client.watchSandboxes({}, { signal: stop.signal }))
        events.push(payload.case ?? "");
    })();
    watching.catch(() => undefined);
    cluster.calls.length = 0;
    const supervisor = podOf(cluster, "supervisor");
    // As by `kubectl delete --force`: gone at once, without having been seen ending.
    cluster.forget("pods", supervisor);
    await until(
      cluster,
      "the next supervisor",
      () => ![undefined, supervisor.metadata.uid].includes(podOf(cluster, "supervisor")?.metadata.uid),
    );
    await until(cluster, "the driver", () => driver.depth() === 0);
    expect(await reasonsOf(client)).toEqual(ready);
    expect(cluster.writes().slice(0, 2)).toEqual(["patch pods", "create pods"]);
    expect(events).not.toContain("platformEvent");
    stop.abort();
    await watching;
  });

  test("are said to be put back when they are, and not before", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const stop = new AbortController();
    let told = 0;
    const watching = (async () => {
      for await (const { payload } of client.watchSandboxes({}, { signal: stop.signal }))
        if (payload.case === "platformEvent") told += 1;
    })();
    watching.catch(() => undefined);
    let writes = 0;
    cluster.beforeWrite = ({ resource }) => {
      if (resource === "pods") writes += 1;
      // The first is the test's own.
      if (writes > 1 && writes < 5) throw refusal(500, "InternalError", "etcd is away");
    };
    await relabel(cluster, podOf(cluster, "supervisor"), "pods", { [labels.workspace]: "other" });
    const isRight = () => podOf(cluster, "supervisor").metadata.labels?.[labels.workspace] === "default";
    await until(cluster, "the label", isRight);
    await until(cluster, "a word", () => told > 0);
    await until(cluster, "the driver", () => driver.depth() === 0);
    expect([writes, told]).toEqual([5, 1]);
    stop.abort();
    await watching;
  });

  test.each([
    ["the workload Pod's role", "pods", labels.boundaryRole],
    ["the workload Pod's gateway", "pods", labels.gatewayId],
    ["the Sandbox's gateway", "sandboxes", labels.gatewayId],
  ])("as often as they are put back, end the generation: %s", async (_what, plural, label) => {
    const cluster = new FakeCluster();
    let now = Date.now();
    const { client, driver } = await driverOn(cluster, testSettings(), { now: () => new Date(now) });
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const of = () => cluster.all(plural).find(({ metadata }) => metadata.name === "default--blue");
    const isEnded = () => cluster.all<AgentSandbox>("sandboxes")[0]?.spec.operatingMode === "Suspended";
    let changes = 0;
    for (let object = of(); object !== undefined && !isEnded() && changes < 20; object = of()) {
      changes += 1;
      now += 2_000;
      await relabel(cluster, object, plural, { [label]: "other" });
      await until(cluster, "an answer", () => isEnded() || of()?.metadata.labels?.[label] !== "other");
      await until(cluster, "the driver", () => driver.depth() === 0);
    }
    expect(changes).toBe(9);
    expect(await reasonsOf(client)).toEqual(["AdmissionViolation", "GenerationFailed", "GenerationFailed"]);
    expect(of()?.metadata.labels?.[label]).not.toBe("other");
    expect(cluster.all("pods")).toEqual([]);
  });

  test("a Sandbox that somebody else deleted ends in deleted", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    await during(cluster, driver, client.createSandbox({ sandbox: asked }));
    const [resource] = cluster.all<AgentSandbox>("sandboxes");
    cluster.forget("sandboxes", resource as Live<AgentSandbox>);
    const isKnown = () =>
      client.getSandbox({ sandboxId: testSandboxId }).then(
        () => true,
        () => false,
      );
    await until(cluster, "its end", async () => !(await isKnown()));
    await until(cluster, "the driver", () => driver.depth() === 0);
    expect(cluster.all("pods")).toEqual([]);
  });
});

describe("images of a pair that runs", () => {
  const settingsOf = (images: string, allowed_image_rewrites: Record<string, string>) =>
    testSettings({
      default_image: `registry.test/agent:${images}`,
      supervisor_image: `registry.test/supervisor:${images}`,
      sandbox_runtime_image: `registry.test/runtime:${images}`,
      admission: { allowed_image_rewrites },
    });

  /** A pair whose supervisor's image a webhook took to a mirror, under a driver of the next release. */
  async function upgraded() {
    const cluster = new FakeCluster();
    const create = cluster.create.bind(cluster);
    cluster.create = async (resource, namespace, body) => {
      const text = JSON.stringify(body);
      const isPod = resource.plural === "pods";
      return await create(
        resource,
        namespace,
        isPod ? JSON.parse(text.replaceAll("registry.test/", "mirror.test/")) : body,
      );
    };
    const first = await driverOn(cluster, settingsOf("1", { "registry.test/": "mirror.test/" }));
    await during(cluster, first.driver, first.client.createSandbox({ sandbox: asked }));
    for (const end of ends.splice(0)) await end();
    cluster.calls.length = 0;
    return { cluster, ...(await driverOn(cluster, settingsOf("2", {}))) };
  }

  test("are not judged by what is set since: an upgrade with other images and rewrites writes nothing", async () => {
    const { cluster, client, driver } = await upgraded();
    const images = () => cluster.all<Pod>("pods").map(({ spec }) => spec?.containers[0]?.image);
    expect(images().sort()).toEqual(["mirror.test/supervisor:1", "registry.test/agent:1"]);
    await until(cluster, "the driver", () => driver.depth() === 0);
    expect(cluster.writes()).toEqual([]);
    expect(await reasonsOf(client)).toEqual(ready);
  });

  test.each(["supervisor", "agent"])(
    "may not change: the %s's ends the generation, with the image named",
    async (name) => {
      const { cluster, client } = await upgraded();
      const pod = cluster.all<Pod>("pods").find(({ spec }) => spec?.containers[0]?.name === name) as Live<Pod>;
      const containers = [{ ...pod.spec?.containers[0], image: "evil.test/it:1" }];
      const resource: Resource = { group: "", version: "v1", kind: "Pod", plural: "pods", namespaced: true };
      await cluster.patch(resource, "sandboxes", pod.metadata.name, {
        type: "merge",
        body: { spec: { containers } } as KubeObject,
      });
      await until(cluster, "its end", async () => (await reasonsOf(client))[0] === "AdmissionViolation");
      await until(cluster, "its Pods' end", () => cluster.all("pods").length === 0);
    },
  );
});

test("policies that a webhook changes are put back less and less often, and that is said until it is over", async () => {
  const cluster = new FakeCluster();
  const patch = cluster.patch.bind(cluster);
  const open = { ingress: [{}] };
  const passes: number[] = [];
  let isChanging = true;
  cluster.patch = async (resource, namespace, name, asked) => {
    if (resource.plural !== networkPolicies.plural || asked.type !== "json") {
      return await patch(resource, namespace, name, asked);
    }
    passes.push(performance.now());
    const change = { op: "add", path: "/spec/ingress", value: open.ingress } as const;
    const body = isChanging ? [...asked.body, change] : asked.body;
    return await patch(resource, namespace, name, { ...asked, body: structuredClone(body) });
  };
  const said: string[] = [];
  const log = pino({ level: "error" }, { write: (line: string) => void said.push(JSON.parse(line).msg) });
  await driverOn(cluster, testSettings(), { log });
  said.length = 0;
  const policies = () => cluster.all<NetworkPolicy>(networkPolicies.plural);
  const change = async () => {
    await cluster.settle();
    const body = { spec: open } as NetworkPolicy;
    await patch(networkPolicies, "sandboxes", policies()[0]?.metadata.name ?? "", { type: "merge", body });
  };
  await change();
  await until(cluster, "a word", () => said.length > 0);
  isChanging = false;
  const message = 'the NetworkPolicies of namespace "sandboxes" are changed again; trying again';
  expect([...new Set(said)]).toEqual([message]);
  const isRight = () => policies().every(({ spec }) => JSON.stringify(spec?.ingress) !== JSON.stringify(open.ingress));
  await until(cluster, "what was asked for", isRight);
  const [, second = 0, , fourth = 0] = passes;
  expect(fourth - second).toBeGreaterThan(600);
  said.length = 0;
  for (let times = 0; times < 3; times += 1) {
    await change();
    await until(cluster, "a repair", isRight);
  }
  expect(said).toEqual([]);
});

test("policies that a controller deletes each time are made again less and less often, up to a time, and that is said", async () => {
  const cluster = new FakeCluster();
  const said: string[] = [];
  const log = pino({ level: "error" }, { write: (line: string) => void said.push(JSON.parse(line).msg) });
  await driverOn(cluster, testSettings(), { log });
  let made = 0;
  const removeAll = () => {
    for (const policy of cluster.all(networkPolicies.plural)) cluster.forget(networkPolicies.plural, policy);
  };
  cluster.afterWrite = ({ verb, resource }) => {
    if (verb === "create" && resource === networkPolicies.plural) made += 1;
  };
  said.length = 0;
  removeAll();
  const pruned = async () => {
    await cluster.settle();
    removeAll();
    return said.length > 0;
  };
  await until(cluster, "a word", pruned, 15_000);
  expect([...new Set(said)]).toEqual(['the NetworkPolicies of namespace "sandboxes" are changed again; trying again']);
  expect(made, "two in each pass").toBeLessThan(15);
}, 20_000);

test("a delete whose answer was lost, and whose end the watch told meanwhile, comes to its end when it is asked for again", async () => {
  const cluster = new FakeCluster();
  const { client, driver } = await driverOn(cluster);
  await during(cluster, driver, client.createSandbox({ sandbox: asked }));
  let isCut = true;
  cluster.beforeWrite = ({ resource }) => {
    if (isCut && resource === "sandboxes") throw new OpenShellError("unavailable", "socket hang up");
  };
  await expect(client.deleteSandbox({ sandboxId: testSandboxId })).rejects.toThrow("socket hang up");
  for (const resource of cluster.all<AgentSandbox>("sandboxes")) cluster.forget("sandboxes", resource);
  for (const pod of cluster.all<Pod>("pods")) cluster.forget("pods", pod);
  // What has vanished may live on with other labels, and is looked for by a write, which is lost as well.
  await cluster.settle();
  isCut = false;
  await during(cluster, driver, client.deleteSandbox({ sandboxId: testSandboxId }));
  await expect(client.getSandbox({ sandboxId: testSandboxId })).rejects.toMatchObject({ code: "not-found" });
});

describe("a cluster that does not answer", () => {
  test("when the driver starts is asked until it does", async () => {
    const cluster = new FakeCluster();
    cluster.served.length = 0;
    let asked = 0;
    const versions = cluster.apiVersionsOf.bind(cluster);
    cluster.apiVersionsOf = async () => {
      asked += 1;
      if (asked < 3) throw new OpenShellError("unavailable", "no answer from the API server");
      cluster.served.push("v1beta1");
      return await versions();
    };
    const { driver } = await driverOn(cluster);
    expect([asked, driver.ready(), driver.leads()]).toEqual([3, true, true]);
  });

  test("is said to be away once for all watches", async () => {
    const cluster = new FakeCluster();
    let failed = 0;
    cluster.beforeList = () => {
      failed += 1;
      if (failed < 15) throw new OpenShellError("unavailable", "no answer from the API server");
    };
    const said: string[] = [];
    const log = pino({ level: "warn" }, { write: (line: string) => void said.push(JSON.parse(line).msg) });
    await driverOn(cluster, testSettings(), { log });
    expect(said.filter((message) => message.startsWith("a watch failed")).length).toBe(1);
  });
});

describe("without the Agent Sandbox API", () => {
  test("nothing is said to be there or not, until it is served; then everything is there at once", async () => {
    const cluster = new FakeCluster();
    const first = await driverOn(cluster);
    await during(cluster, first.driver, first.client.createSandbox({ sandbox: asked }));
    await during(cluster, first.driver, first.client.stopSandbox({ sandboxId: testSandboxId }));
    for (const end of ends.splice(0)) await end();
    cluster.served.length = 0;
    const { client, driver } = await driverOn(cluster);
    const unavailable = {
      code: "unavailable",
      message: expect.stringMatching(/sandboxes\.agents\.x-k8s\.io.*install Agent Sandbox/),
      details: { reason: "AgentSandboxUnavailable", retryAfterMs: expect.any(Number) },
    };
    const watch = async () => {
      for await (const event of client.watchSandboxes({}, { signal: AbortSignal.timeout(1_000) })) return event;
      return undefined;
    };
    for (const call of [
      () => client.listSandboxes({}),
      () => watch(),
      () => client.getSandbox({ sandboxId: testSandboxId }),
      () => client.stopSandbox({ sandboxId: testSandboxId }),
      () => client.deleteSandbox({ sandboxId: testSandboxId }),
    ]) {
      await expect(call()).rejects.toMatchObject(unavailable);
    }
    expect(driver.ready()).toBe(false);
    cluster.served.push("v1beta1");
    await until(cluster, "the API", () => driver.ready());
    expect((await client.listSandboxes({})).sandboxes.map(({ id }) => id)).toEqual([testSandboxId]);
    expect((await watch())?.payload.case).toBe("sandbox");
    expect(await reasonsOf(client)).toEqual(["Stopped", "Stopped", "Stopped"]);
  });
});

describe("who leads", () => {
  test("two drivers on one host do not both lead, and the one that does not says unavailable", async () => {
    // As in a Pod, whose host name is the Pod's.
    vi.stubEnv("KUBERNETES_SERVICE_HOST", "10.96.0.1");
    vi.stubEnv("KUBERNETES_SERVICE_PORT", "443");
    const cluster = new FakeCluster();
    await driverOn(cluster);
    const holders = () => cluster.all<Lease>("leases").map(({ spec }) => spec?.holderIdentity);
    const [holder] = holders();
    const other = createDriver({ ...optionsOn(cluster), settings: testSettings() });
    const stop = new AbortController();
    const started = other.start(stop.signal);
    ends.push(async () => {
      stop.abort();
      await started;
      await other.stop();
    });
    for (let turn = 0; turn < 10; turn += 1) await cluster.settle();
    expect(holders()).toEqual([holder]);
    // It knows what there is; it may not write.
    expect([other.ready(), other.leads()]).toEqual([true, false]);
    const client = localClient(compute.ComputeDriver, other.implementation, undefined);
    for (const call of [
      client.createSandbox({ sandbox: asked }),
      client.startSandbox({ sandboxId: testSandboxId }),
      client.stopSandbox({ sandboxId: testSandboxId }),
      client.deleteSandbox({ sandboxId: testSandboxId }),
    ]) {
      await expect(call).rejects.toMatchObject({
        code: "unavailable",
        message: expect.stringContaining("lease"),
        details: { retryAfterMs: expect.any(Number) },
      });
    }
    expect(cluster.writes()).toEqual([]);
  });

  test("a create that is asked for again while the first is under way answers both, also when it fails", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    let refusals = 0;
    cluster.beforeWrite = ({ verb, resource }) => {
      if (verb !== "create" || resource !== "sandboxes") return;
      refusals += 1;
      if (refusals > 1) throw refusal(500, "InternalError", "etcd is away");
    };
    const both = [client.createSandbox({ sandbox: asked }), client.createSandbox({ sandbox: asked })];
    const answers = await during(cluster, driver, Promise.allSettled(both));
    expect(answers.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled"]);
    expect(refusals).toBe(1);
  });

  test("a create whose Sandbox somebody deletes before it could be looked at is answered", async () => {
    const cluster = new FakeCluster();
    const { client } = await driverOn(cluster);
    const answer = Promise.withResolvers<void>();
    cluster.beforeWrite = ({ verb, resource }) =>
      verb === "create" && resource === "services" ? answer.promise : undefined;
    // As many as are worked on at a time.
    const others = Array.from({ length: 64 }, (_, index) =>
      client.createSandbox({ sandbox: { ...asked, id: `other-${index}`, name: `other-${index}` } }),
    );
    for (const other of others) other.catch(() => undefined);
    await until(cluster, "the others", () => cluster.all("sandboxes").length === 64, 15_000);
    const creating = client.createSandbox({ sandbox: asked });
    creating.catch(() => undefined);
    const of = () => cluster.all("sandboxes").find(({ metadata }) => metadata.name === "default--blue");
    await until(cluster, "the Sandbox", () => of() !== undefined);
    cluster.forget("sandboxes", of() as Live<KubeObject>);
    await cluster.settle();
    answer.resolve();
    await expect(creating).rejects.toMatchObject({ code: "not-found" });
  });

  test("a driver that leads no more ends what it has begun, and begins nothing", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    const begun = Promise.withResolvers<void>();
    const answered = Promise.withResolvers<void>();
    cluster.beforeWrite = ({ verb, resource }) => {
      if (verb !== "create" || resource !== "pods") return undefined;
      begun.resolve();
      return answered.promise;
    };
    const creating = client.createSandbox({ sandbox: asked });
    creating.catch(() => undefined);
    await begun.promise;
    const stopped = driver.stop();
    answered.resolve();
    await stopped;
    await expect(creating).rejects.toMatchObject({ code: "unavailable" });
    expect(cluster.writes()).toEqual(["create sandboxes", "create services", "create pods"]);
  });

  test("a driver that leads no more waits for no answer of the API server", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    const begun = Promise.withResolvers<void>();
    const create = cluster.create.bind(cluster);
    cluster.create = async (resource, namespace, body, options) => {
      if (resource.plural !== "pods") return await create(resource, namespace, body, options);
      begun.resolve();
      return await new Promise((_, reject) => options?.signal?.addEventListener("abort", () => reject("cancelled")));
    };
    const creating = client.createSandbox({ sandbox: asked });
    creating.catch(() => undefined);
    await begun.promise;
    await driver.stop();
    await expect(creating).rejects.toMatchObject({ code: "unavailable" });
  });

  test("whoever waits for a driver that stops is told to ask again", async () => {
    const cluster = new FakeCluster();
    const { client, driver } = await driverOn(cluster);
    cluster.beforeWrite = ({ verb, resource }) => {
      if (verb === "create" && resource === "pods") throw refusal(500, "InternalError", "etcd is away");
    };
    const creating = client.createSandbox({ sandbox: asked });
    creating.catch(() => undefined);
    await until(cluster, "the Sandbox", () => cluster.all("sandboxes").length === 1);
    await driver.stop();
    await expect(creating).rejects.toMatchObject({ code: "unavailable" });
  });
});
