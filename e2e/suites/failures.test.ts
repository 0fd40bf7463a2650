import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { referenceOf } from "../../images/references.ts";
import type { KubeObject, Live, Pod } from "../../src/kube/index.ts";
import { openshell } from "../../src/wire/index.ts";
import { Conformance, randomName } from "../support/conformance.ts";
import { denying } from "../support/denying-policy.ts";
import { evict } from "../support/evict.ts";
import { type FirstSeen, firstSeen } from "../support/first-seen.ts";
import { objectNames } from "../support/object-names.ts";
import { failed, failureOf, said } from "../support/outcome.ts";
import { platformEvent } from "../support/platform-event.ts";
import { podQuota } from "../support/resource-quota.ts";
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

/** A whole call, with what the cluster takes for it. The machine of a test may be slow; the bound is still far from a timeout. */
const soonMs = 15_000;

/** What the cluster knows, a sandbox says within these. */
const knownMs = 5_000;

/** Listens for the workload Pod that a sandbox of this name will have. */
const podSeen = (name: string, what: string, fits: (pod: Live<Pod>) => boolean): FirstSeen =>
  firstSeen(suite.pods, what, (pod) => pod.metadata.name === `${suite.workspace}--${name}` && fits(pod));

const hasCondition =
  (of: string, why: string) =>
  ({ status }: Live<Pod>): boolean =>
    status?.conditions?.some(({ type, reason: word }) => type === of && word === why) === true;

/** Waits until there is nothing that was not there before. */
async function nothingNew(before: readonly string[]): Promise<void> {
  const added = async () => (await objectNames(suite)).filter((name) => !before.includes(name));
  await expect.poll(added, { timeout: 30_000 }).toEqual([]);
}

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
    const before = await objectNames(suite);
    const name = randomName();
    // The second time the name is as free as the first.
    for (const _ of [1, 2]) {
      const [{ text, sandbox }, ms] = await timed(() => failureOf(suite.create({ name })));
      await sandbox?.[Symbol.asyncDispose]();
      expect(text).toMatch(/exceeded quota: conformance-pods/);
      expect(sandbox).toBeUndefined();
      expect(ms).toBeLessThan(soonMs);
    }
    await nothingNew(before);
  });

  it("QuotaExceeded: only the workload is refused, and a start goes on once there is room", async () => {
    await using quota = await podQuota(suite, suite.pods.list().length + 1);
    await using sandbox = await suite.create();
    const seen = await sandbox.until(failed(soonMs));
    expect(said(seen)).toMatch(/PodsAdmitted QuotaExceeded: .*exceeded quota: conformance-pods/);
    await suite.pods.until("its supervisor to be gone", () => suite.podsOf(sandbox).length === 0);
    await quota[Symbol.asyncDispose]();
    await sandbox.start();
    await sandbox.ready();
  });

  it("LimitRangeRefused: with the API server's words", async () => {
    const limits = [{ type: "Container", min: { memory: "4Gi" } }];
    await using _range = await suite.applied(inSandboxes("LimitRange", "conformance-minimum", { limits }));
    const before = await objectNames(suite);
    const [{ text, sandbox }, ms] = await timed(() => failureOf(suite.create()));
    await sandbox?.[Symbol.asyncDispose]();
    expect(text).toMatch(/minimum memory usage per Container is 4Gi/);
    expect(ms).toBeLessThan(soonMs);
    await nothingNew(before);
  });

  it("AdmissionRefused: in the words of the policy, whether it refuses the workload or, in the call, the supervisor; then nothing is left", async () => {
    const words = "conformance wants no workload today";
    await using _workloads = await denying(suite, "workload", words);
    await using refused = await suite.create();
    const seen = await refused.until(failed(soonMs));
    expect(said(seen)).toMatch(
      /PodsAdmitted AdmissionRefused: the cluster refused the workload Pod: .*ValidatingAdmissionPolicy '(\S+)' with binding '\1' denied request: conformance wants no workload today/,
    );
    await suite.pods.until("its supervisor to be gone", () => suite.podsOf(refused).length === 0);
    await using _supervisors = await denying(suite, "supervisor", "conformance wants no supervisor today");
    const before = await objectNames(suite);
    const { text, sandbox } = await failureOf(suite.create());
    await sandbox?.[Symbol.asyncDispose]();
    expect(text).toMatch(
      /the cluster refused the supervisor Pod: .*denied request: conformance wants no supervisor today/,
    );
    expect(sandbox).toBeUndefined();
    await nothingNew(before);
  });

  it("Unschedulable: it waits, and says what is missing, as does the scheduler's own event", async () => {
    const name = randomName();
    using known = podSeen(name, "an unschedulable Pod", hasCondition("PodScheduled", "Unschedulable"));
    await using sandbox = await suite.create({
      name,
      driverConfig: { pod: { node_selector: { "conformance.openshell.test/pool": "nowhere" } } },
    });
    const seen = await sandbox.until(reason("Unschedulable", soonMs));
    expect(await known.lag()).toBeLessThan(knownMs);
    expect(said(seen)).toMatch(/Scheduled Unschedulable: no node fits the workload Pod: 0\/\d+ nodes are available/);
    expect(phase("PROVISIONING").test(seen)).toBe(true);
    expect(await platformEvent(suite, sandbox, "FailedScheduling", /0\/\d+ nodes are available/)).toMatchObject({
      source: "default-scheduler",
      type: "Warning",
      metadata: { kind: "Pod", name: sandbox.resourceName, count: expect.stringMatching(/^[1-9]\d*$/) },
    });
  });

  it("PullingImage: it waits, and names the image, as does the kubelet's own event", async () => {
    const image = "registry.invalid/conformance/absent:1";
    const name = randomName();
    const waits = ({ status }: Live<Pod>) =>
      [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])].some(({ state }) =>
        /^(ErrImagePull|ImagePullBackOff)$/.test(state?.waiting?.reason ?? ""),
      );
    using known = podSeen(name, "a failed pull", waits);
    const spec = { template: { image } };
    await using sandbox = await TestSandbox.create(() => suite.gateway.client, name, spec, suite.workspace);
    const seen = await sandbox.until(reason("PullingImage", 60_000));
    expect(await known.lag()).toBeLessThan(knownMs);
    expect(said(seen)).toMatch(
      /WorkloadReady PullingImage: container \w+ \(image registry\.invalid\/conformance\/absent:1\)/,
    );
    expect(phase("PROVISIONING").test(seen)).toBe(true);
    expect(await platformEvent(suite, sandbox, "Failed", /registry\.invalid\/conformance\/absent:1/)).toMatchObject({
      source: "kubelet",
      type: "Warning",
      metadata: { kind: "Pod", name: sandbox.resourceName },
    });
  });

  it("OutOfMemory: the container is over, says so, and starts again with its files", async () => {
    await using sandbox = await suite.create({ resources: { limits: { memory: "160Mi" } } });
    await sandbox.ready();
    await sandbox.exec(["sh", "-c", "echo kept > /sandbox/kept.txt; sync"]);
    // With cgroup v1 the kernel kills one process, the biggest: among many small ones the runtime. With v2 the kubelet has all of them killed.
    const small = `awk 'BEGIN { s = sprintf("%3000000s", "x"); system("sleep 60") }'`;
    const many = ["sh", "-c", `i=0; while [ $i -lt 60 ]; do ${small} & i=$((i+1)); done; wait`];
    const eating = sandbox.exec(many, { noLoginShell: true }).catch(() => undefined);
    const seen = await sandbox.until(failed());
    await eating;
    expect(said(seen)).toMatch(/WorkloadReady OutOfMemory: container agent exceeded its memory limit/);
    await suite.pods.until("both Pods to be gone", () => suite.podsOf(sandbox).length === 0, { deadlineMs: 60_000 });
    await startsAgain(sandbox);
    expect(await sandbox.exec(["cat", "/sandbox/kept.txt"])).toMatchObject({ stdout: "kept\n" });
  }, 300_000);

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
  it("somebody adds a container to its workload (ForeignContainer); and a start, when its volume was deleted (WorkspaceLost)", async () => {
    await using sandbox = await suite.create();
    await sandbox.ready();
    const { workload } = await suite.pair(sandbox);
    const securityContext = workload.spec?.containers[0]?.securityContext ?? {};
    const ephemeral = { name: "debugger", image: "openshell.local/pause:dev", securityContext };
    const patch = JSON.stringify({ spec: { ephemeralContainers: [ephemeral] } });
    using known = podSeen(sandbox.name, "the container", ({ spec }) => (spec?.ephemeralContainers ?? []).length > 0);
    const where = ["-n", workload.metadata.namespace ?? "", "pod", workload.metadata.name];
    await suite.kubectl(["patch", "--subresource=ephemeralcontainers", "--type=strategic", "-p", patch, ...where]);
    const seen = await sandbox.until(failed(soonMs));
    expect(await known.lag()).toBeLessThan(knownMs);
    expect(said(seen)).toMatch(/PodsAdmitted ForeignContainer: ephemeral container debugger/);

    const [claim] = (workload.spec?.volumes ?? []).flatMap((one) => one.persistentVolumeClaim?.claimName ?? []);
    await suite.kubectl(["-n", suite.release.sandboxNamespace, "delete", "pvc", claim ?? "none", "--timeout=60s"]);
    await sandbox.start();
    await sandbox.until(reason("WorkspaceLost"));
    const lost = await sandbox.until(failed(soonMs));
    expect(said(lost)).toMatch(/WorkloadReady WorkspaceLost: \S/);
  }, 300_000);

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

  it("its workload is evicted (Evicted), and starts again with its files", async () => {
    await using sandbox = await suite.create();
    await sandbox.ready();
    await sandbox.exec(["sh", "-c", "echo kept > /sandbox/kept.txt; sync"]);
    using known = podSeen(sandbox.name, "an eviction", hasCondition("DisruptionTarget", "EvictionByEvictionAPI"));
    await evict(suite, (await suite.pair(sandbox)).workload);
    const seen = await sandbox.until(failed(soonMs));
    expect(await known.lag()).toBeLessThan(knownMs);
    expect(said(seen)).toMatch(
      /WorkloadReady Evicted: the workload Pod \(node \S+\) was evicted through the eviction API/,
    );
    await startsAgain(sandbox);
    expect(await sandbox.exec(["cat", "/sandbox/kept.txt"])).toMatchObject({ stdout: "kept\n" });
  }, 300_000);
});

describe("a sandbox that runs is not ended when", () => {
  it("its main process ends again and again and is to be restarted: it stays READY, and counts", async () => {
    const spec = {
      template: { image: referenceOf("busybox") },
      command: ["sh", "-c", "echo started >> /sandbox/starts; exit 3"],
      restartPolicy: openshell.SandboxRestartPolicy.ALWAYS,
    };
    await using sandbox = await TestSandbox.create(() => suite.gateway.client, randomName(), spec, suite.workspace);
    await sandbox.ready();
    const restarts = (least: number) => ({
      what: `${least} restarts`,
      withinMs: 60_000,
      test: ({ status }: openshell.Sandbox) => (status?.restartCount ?? 0) >= least,
    });
    const once = await sandbox.until(restarts(1));
    const seen = await sandbox.until(restarts((once.status?.restartCount ?? 0) + 1));
    expect(phase("READY").test(seen)).toBe(true);
    const { stdout } = await sandbox.exec(["cat", "/sandbox/starts"]);
    expect(stdout.trim().split("\n").length).toBeGreaterThanOrEqual(seen.status?.restartCount ?? 0);
  });
});
