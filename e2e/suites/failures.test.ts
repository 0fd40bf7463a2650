import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { KubeObject } from "../../src/kube/index.ts";
import { Conformance, randomName } from "../support/conformance.ts";
import { evict } from "../support/evict.ts";
import { failed, failureOf, said } from "../support/outcome.ts";
import { podQuota } from "../support/pod-quota.ts";
import { runtimeClass } from "../support/runtime-class.ts";
import { TestSandbox } from "../support/test-sandbox.ts";
import { phase, reason } from "../support/waits.ts";

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open();
});

afterAll(async () => suite[Symbol.asyncDispose]());

const inSandboxes = (kind: string, name: string, spec: object): KubeObject & { readonly spec: object } => ({
  apiVersion: "v1",
  kind,
  metadata: { name, namespace: suite.release.sandboxNamespace },
  spec,
});

/** Milliseconds that `work` took, and what came of it. */
async function timed<T>(work: () => Promise<T>): Promise<readonly [T, number]> {
  const started = performance.now();
  const result = await work();
  return [result, performance.now() - started];
}

/** What the cluster knows, a sandbox says within these. The machine of a test may be slow; the bound is still far from a timeout. */
const soonMs = 15_000;

/** A start is refused for as long as the driver has not seen what hindered it go. */
async function startsAgain(sandbox: TestSandbox): Promise<void> {
  const start = () =>
    sandbox.start().then(
      () => true,
      () => false,
    );
  await expect.poll(start, { timeout: soonMs }).toBe(true);
  await sandbox.ready();
}

describe("a sandbox that cannot run says why, at once", () => {
  it("QuotaExceeded: the supervisor is refused, and the call says it; nothing is left", async () => {
    await using _quota = await podQuota(suite, 0);
    const [{ text, sandbox }, ms] = await timed(() => failureOf(suite.create()));
    expect(text).toMatch(/exceeded quota: conformance-pods/);
    expect(sandbox).toBeUndefined();
    expect(ms).toBeLessThan(soonMs);
  });

  it("QuotaExceeded: only the workload is refused, and a start goes on once there is room", async () => {
    await using quota = await podQuota(suite, suite.pods.list().length + 1);
    await using sandbox = await suite.create();
    const [seen, ms] = await timed(() => sandbox.until(failed(soonMs)));
    expect(said(seen)).toMatch(/PodsAdmitted QuotaExceeded: .*exceeded quota: conformance-pods/);
    expect(ms).toBeLessThan(soonMs);
    await suite.pods.until("its supervisor to be gone", () => suite.podsOf(sandbox).length === 0);
    await quota[Symbol.asyncDispose]();
    await sandbox.start();
    await sandbox.ready();
  });

  it("LimitRangeRefused: with the API server's words", async () => {
    const limits = [{ type: "Container", min: { memory: "4Gi" } }];
    await using _range = await suite.applied(inSandboxes("LimitRange", "conformance-minimum", { limits }));
    const [{ text, sandbox }, ms] = await timed(() => failureOf(suite.create()));
    await sandbox?.[Symbol.asyncDispose]();
    expect(text).toMatch(/minimum memory usage per Container is 4Gi/);
    expect(ms).toBeLessThan(soonMs);
  });

  it("Unschedulable: it waits, and says what is missing", async () => {
    await using sandbox = await suite.create({
      driverConfig: { pod: { node_selector: { "conformance.openshell.test/pool": "nowhere" } } },
    });
    const seen = await sandbox.until(reason("Unschedulable", soonMs));
    expect(said(seen)).toMatch(/Scheduled Unschedulable: no node fits the workload Pod: 0\/\d+ nodes are available/);
    expect(phase("PROVISIONING").test(seen)).toBe(true);
  });

  it("PullingImage: it waits, and names the image", async () => {
    const image = "registry.invalid/conformance/absent:1";
    const name = randomName();
    await using sandbox = await TestSandbox.create(() => suite.gateway.client, name, { template: { image } });
    const seen = await sandbox.until(reason("PullingImage", 60_000));
    expect(said(seen)).toMatch(
      /WorkloadReady PullingImage: container \w+ \(image registry\.invalid\/conformance\/absent:1\)/,
    );
    expect(phase("PROVISIONING").test(seen)).toBe(true);
  });

  it("OutOfMemory: the container is over, says so, and starts again with its files; or only the process that was too big is", async () => {
    await using sandbox = await suite.create({ resources: { limits: { memory: "160Mi" } } });
    await sandbox.ready();
    await sandbox.exec(["sh", "-c", "echo kept > /sandbox/kept.txt; sync"]);
    const eats = ["awk", 'BEGIN { s = "x"; while (1) s = s s }'];
    const ended = await sandbox.exec(eats, { noLoginShell: true }).catch(() => undefined);
    if (ended !== undefined) {
      // A kernel with cgroup v1 kills the one process, and the workload goes on; with v2 the kubelet has the whole container killed.
      expect(ended.exitCode).toBe(137);
      expect(await sandbox.exec(["cat", "/sandbox/kept.txt"])).toMatchObject({ stdout: "kept\n" });
      return;
    }
    const seen = await sandbox.until(failed());
    expect(said(seen)).toMatch(/WorkloadReady OutOfMemory: container agent exceeded its memory limit/);
    await suite.pods.until("both Pods to be gone", () => suite.podsOf(sandbox).length === 0, { deadlineMs: 60_000 });
    await sandbox.start();
    await sandbox.ready();
    expect(await sandbox.exec(["cat", "/sandbox/kept.txt"])).toMatchObject({ stdout: "kept\n" });
  });

  it("RuntimeClassNotFound: a start is refused while the class is gone, leaves no Pod, and works once it is back", async () => {
    const name = `conformance-${randomBytes(3).toString("hex")}`;
    const missing = runtimeClass(name);
    await using first = await suite.applied(missing);
    await using sandbox = await suite.create({ runtimeClass: name });
    await sandbox.ready();
    await sandbox.stop();
    await sandbox.until(phase("STOPPED"));
    await first[Symbol.asyncDispose]();
    const text = await sandbox.start().then(
      async () => said(await sandbox.until(failed(soonMs))),
      (error: Error) => error.message,
    );
    expect(text).toMatch(new RegExp(`RuntimeClass "${name}" (not found|does not exist)`));
    expect(suite.podsOf(sandbox)).toEqual([]);
    await using _again = await suite.applied(missing);
    await startsAgain(sandbox);
  });
});

describe("a sandbox that runs is ended, by name, when", () => {
  it("somebody adds a container to its workload (ForeignContainer)", async () => {
    await using sandbox = await suite.create();
    await sandbox.ready();
    const { workload } = await suite.pair(sandbox);
    const securityContext = workload.spec?.containers[0]?.securityContext ?? {};
    const ephemeral = { name: "debugger", image: "openshell.local/pause:dev", securityContext };
    const patch = JSON.stringify({ spec: { ephemeralContainers: [ephemeral] } });
    const where = ["-n", workload.metadata.namespace ?? "", "pod", workload.metadata.name];
    await suite.kubectl(["patch", "--subresource=ephemeralcontainers", "--type=strategic", "-p", patch, ...where]);
    const seen = await sandbox.until(failed(soonMs));
    expect(said(seen)).toMatch(/PodsAdmitted ForeignContainer: ephemeral container debugger/);
  });

  it("somebody's NetworkPolicy opens its fence (ForeignNetworkPolicy), and starts again without it", async () => {
    await using sandbox = await suite.create();
    await sandbox.ready();
    const policy = {
      ...inSandboxes("NetworkPolicy", "conformance-open", { podSelector: {}, policyTypes: ["Egress"], egress: [{}] }),
      apiVersion: "networking.k8s.io/v1",
    };
    await using applied = await suite.applied(policy);
    const seen = await sandbox.until(failed(soonMs));
    expect(said(seen)).toMatch(/PodsAdmitted ForeignNetworkPolicy: NetworkPolicy "conformance-open"/);
    await applied[Symbol.asyncDispose]();
    await startsAgain(sandbox);
  });

  it("its workload is evicted (Evicted)", async () => {
    await using sandbox = await suite.create();
    await sandbox.ready();
    await evict(suite, (await suite.pair(sandbox)).workload);
    const seen = await sandbox.until(failed(soonMs));
    expect(said(seen)).toMatch(
      /WorkloadReady Evicted: the workload Pod \(node \S+\) was evicted through the eviction API/,
    );
  });
});
