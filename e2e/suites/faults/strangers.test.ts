import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { KubeObject } from "../../../src/kube/index.ts";
import { annotations, labels } from "../../../src/manifests/names.ts";
import { CountingSandbox } from "../../support/counting-sandbox.ts";
import { canBreak, FaultSuite } from "../../support/fault-suite.ts";
import { failed, leftOf, said } from "../../support/outcome.ts";
import type { TestSandbox } from "../../support/test-sandbox.ts";
import { phase } from "../../support/waits.ts";

let bench: FaultSuite;

/** A Sandbox that nobody runs, as somebody else would write it. */
function stranger(metadata: { readonly labels?: object; readonly annotations?: object }): KubeObject & object {
  const { suite } = bench;
  const container = { name: "agent", image: "openshell.local/pause:dev" };
  const template = { spec: { containers: [container] } };
  return {
    apiVersion: `agents.x-k8s.io/${suite.resources.list()[0]?.apiVersion?.split("/")[1] ?? "v1beta1"}`,
    kind: "Sandbox",
    metadata: {
      name: `stranger-${randomBytes(4).toString("hex")}`,
      namespace: suite.release.sandboxNamespace,
      ...metadata,
    },
    spec: { podTemplate: template, operatingMode: "Suspended" },
  } as KubeObject & object;
}

/** What the gateway's Pod says of its restarts. */
async function restarts(): Promise<string> {
  const { suite } = bench;
  const where = ["-n", suite.release.namespace, "get", "pod", suite.gateway.podName];
  return suite.kubectl([...where, "-o", "jsonpath={.metadata.uid} {.status.containerStatuses[*].restartCount}"]);
}

describe("in the namespace of its sandboxes", { skip: !canBreak }, () => {
  beforeAll(async () => {
    bench = await FaultSuite.open();
  });

  afterAll(async () => bench?.[Symbol.asyncDispose]());

  it("a gateway leaves Sandboxes of others alone, those that pretend to be its own too, and goes on with its own", async () => {
    const { suite } = bench;
    await using sandbox = await CountingSandbox.running(suite);
    const pair = await suite.pair(sandbox);
    const own = suite.resources.list().find(({ metadata }) => metadata.name === sandbox.sandbox.resourceName);
    const copied = { labels: own?.metadata.labels ?? {}, annotations: own?.metadata.annotations ?? {} };
    const gatewayId = { [labels.gatewayId]: own?.metadata.labels?.[labels.gatewayId] ?? "" };
    const [before, count] = [await restarts(), await sandbox.count()];
    const strangers = [
      stranger({}),
      stranger({ labels: gatewayId }),
      stranger({ labels: { ...gatewayId, [labels.sandboxId]: "not-an-id" } }),
      stranger({
        labels: { ...gatewayId, [labels.sandboxId]: "00000000-0000-4000-8000-000000000000" },
        annotations: { [annotations.generation]: "{".repeat(100_000) },
      }),
      // A copy of one that runs.
      stranger(copied),
    ];
    await using _applied = await suite.applied(...strangers);
    await bench.quiet();
    const at = performance.now();

    await using another = await suite.create();
    await another.ready();
    await another.stop();
    await another.until(phase("STOPPED"));
    await sandbox.countsOn(count);
    const now = await suite.pair(sandbox);
    expect([now.workload.metadata.uid, now.supervisor.metadata.uid]).toEqual([
      pair.workload.metadata.uid,
      pair.supervisor.metadata.uid,
    ]);
    const names = strangers.map(({ metadata }) => metadata?.name ?? "");
    const found = suite.resources.list().filter(({ metadata }) => names.includes(metadata.name));
    expect(found).toHaveLength(strangers.length);
    const written = bench.since(at).filter(({ path }) => names.some((name) => path.includes(name)));
    expect(written).toEqual([]);
    expect(await restarts()).toBe(before);
    await bench.quiet();
  }, 300_000);

  const where = (kind: string, name: string) => ["delete", "-n", bench.suite.release.sandboxNamespace, kind, name];
  const forced = ["--force", "--grace-period=0"];

  /** What somebody takes away from a sandbox that runs, and whether the sandbox is over by that. */
  const taken: Readonly<Record<string, readonly [RegExp | undefined, (sandbox: TestSandbox) => Promise<unknown>]>> = {
    "its workload": [
      /WorkloadDeleted/,
      ({ resourceName }) => bench.suite.kubectl([...where("pod", resourceName), ...forced]),
    ],
    "both its Pods": [
      /WorkloadDeleted/,
      async (sandbox) => {
        const { workload, supervisor } = await bench.suite.pair(sandbox);
        const names = [workload.metadata.name, supervisor.metadata.name];
        await bench.suite.kubectl([...where("pod", names[0] ?? ""), names[1] ?? "", ...forced]);
      },
    ],
    "its Service": [
      undefined,
      async (sandbox) => {
        const service = (await leftOf(bench.suite, sandbox)).find((object) => object.startsWith("service/"));
        await bench.suite.kubectl(where("service", service?.split("/")[1] ?? ""));
      },
    ],
    "its Sandbox": [
      /ResourceDeleted/,
      ({ resourceName }) => bench.suite.kubectl(where("sandboxes.agents.x-k8s.io", resourceName)),
    ],
  };

  it.each(Object.entries(taken))(
    "somebody deletes %s by hand: it goes on, or is over and says so",
    async (_what, [over, take]) => {
      const { suite } = bench;
      await using sandbox = await suite.create();
      await sandbox.ready();
      await sandbox.exec(["sh", "-c", "echo kept > /sandbox/kept"]);
      await bench.quiet();
      const at = performance.now();
      await take(sandbox);
      if (over === undefined) {
        const services = async () => (await leftOf(suite, sandbox)).filter((object) => object.startsWith("service/"));
        await expect.poll(services, { timeout: 60_000 }).toHaveLength(1);
        await sandbox.ready();
        expect(await sandbox.exec(["cat", "/sandbox/kept"])).toMatchObject({ stdout: "kept\n" });
      } else {
        expect(said(await sandbox.until(failed()))).toMatch(over);
        await suite.pods.until("its Pods to be gone", () => suite.podsOf(sandbox).length === 0, { deadlineMs: 60_000 });
      }
      await bench.quiet();
      expect(bench.since(at).length).toBeLessThan(40);
    },
    240_000,
  );

  /** All that are a sandbox's. */
  const secretsOf = async (sandbox: Pick<TestSandbox, "id">) =>
    (await leftOf(bench.suite, sandbox)).filter((object) => object.startsWith("secret/"));

  /** Takes those of every sandbox: no test here has more than one. */
  async function takeSecrets(): Promise<void> {
    const namespace = ["-n", bench.suite.release.sandboxNamespace];
    await bench.suite.kubectl([...namespace, "delete", "secrets", "-l", labels.sandboxId]);
  }

  it("somebody deletes both Secrets of a pair that runs: it goes on, gets another supervisor, stops and starts", async () => {
    const { suite } = bench;
    await using sandbox = await CountingSandbox.running(suite);
    const { supervisor } = await suite.pair(sandbox);
    const count = await sandbox.count();
    await takeSecrets();
    expect(await secretsOf(sandbox)).toEqual([]);
    await sandbox.countsOn(count + 20);
    await suite.kubectl([...where("pod", supervisor.metadata.name), ...forced]);
    await suite.pair(sandbox, "another supervisor", (pair) => pair.supervisor.metadata.uid !== supervisor.metadata.uid);
    await sandbox.countsOn(count + 40);
    await sandbox.sandbox.stop();
    await sandbox.until(phase("STOPPED"));
    await expect.poll(() => secretsOf(sandbox), { timeout: 60_000 }).toEqual([]);
    await sandbox.sandbox.start();
    await sandbox.until(phase("READY"));
    expect(await secretsOf(sandbox)).toHaveLength(2);
    await bench.quiet();
  }, 240_000);

  it("somebody deletes both Secrets of a pair before its Pods are released: they are written again, and it runs", async () => {
    const { suite, proxy } = bench;
    let taken: Promise<void> | undefined;
    const at = performance.now();
    using _fault = proxy.breaking(async ({ method, path, body }, pass) => {
      if (method === "PATCH" && path.includes("/pods/") && body.includes('"schedulingGates"')) {
        taken ??= takeSecrets();
        await taken;
      }
      return pass();
    });
    await using sandbox = await suite.create();
    await sandbox.ready();
    expect(taken).toBeDefined();
    expect(await sandbox.exec(["echo", "here"])).toMatchObject({ stdout: "here\n" });
    const kinds = async () => (await leftOf(suite, sandbox)).map((object) => object.split("/")[0]);
    expect(await kinds()).toEqual(["pod", "pod", "secret", "secret", "service"]);
    await bench.quiet();
    // Nine, two more Secrets, and what a node's second look may cost.
    expect(bench.since(at).length).toBeLessThan(20);
  }, 240_000);
});
