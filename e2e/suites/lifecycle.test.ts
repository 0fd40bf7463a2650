import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { metricTable } from "../../src/gateway/index.ts";
import { persistentVolumeClaims, secrets, services } from "../../src/kube/index.ts";
import { labels, pvcName } from "../../src/manifests/names.ts";
import { Conformance } from "../support/conformance.ts";
import { scrapeGateway } from "../support/gateway-metrics.ts";
import type { TestSandbox } from "../support/test-sandbox.ts";
import { phase } from "../support/waits.ts";

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open();
});

afterAll(async () => suite[Symbol.asyncDispose]());

/** Every object in the sandboxes' namespace that belongs to a sandbox. */
async function objectsOf(sandbox: TestSandbox): Promise<string[]> {
  const namespace = suite.release.sandboxNamespace;
  const mine = (kind: string, items: readonly { metadata: { name: string } }[]) =>
    items.map(({ metadata }) => `${kind}/${metadata.name}`);
  const labelSelector = `${labels.sandboxId}=${sandbox.id}`;
  const [serviceList, secretList, claims] = await Promise.all([
    suite.kube.list(services, namespace, { labelSelector }),
    suite.kube.list(secrets, namespace, { labelSelector }),
    suite.kube.list(persistentVolumeClaims, namespace),
  ]);
  const claim = claims.items.filter(({ metadata }) => metadata.name === pvcName(sandbox.resourceName));
  const resources = suite.resources.list().filter(({ metadata }) => metadata.name === sandbox.resourceName);
  return [
    ...mine("sandbox", resources),
    ...mine("pod", suite.podsOf(sandbox)),
    ...mine("service", serviceList.items),
    ...mine("secret", secretList.items),
    ...mine("pvc", claim),
  ].sort();
}

/** And those that one sandbox's life moves have moved. */
async function everyMetricIsShown(): Promise<void> {
  const { names, values } = await scrapeGateway(suite.kube, suite.release);
  expect(names).toEqual(Object.keys(metricTable));
  for (const moved of [
    'openshell_sandboxes{phase="READY"}',
    'openshell_create_seconds_count{stage="ready"}',
    "openshell_supervisor_sessions",
    "openshell_reconcile_seconds_count",
    'openshell_kube_requests_total{verb="create",resource="pods",code="201"}',
  ]) {
    expect(values.get(moved), moved).toBeGreaterThan(0);
  }
  expect(values.get("openshell_driver_leads")).toBe(1);
}

describe("a sandbox", () => {
  it("is created, runs commands, stops, starts with its files, and leaves nothing behind when deleted", async () => {
    await using sandbox = await suite.create();
    await sandbox.ready();
    const first = await suite.pair(sandbox);
    expect(await objectsOf(sandbox)).toHaveLength(7);
    expect(await sandbox.exec(["cat", "/sandbox/seed.txt"])).toMatchObject({
      exitCode: 0,
      stdout: "seeded by busybox\n",
    });
    await sandbox.exec(["sh", "-c", "echo kept > /sandbox/kept.txt; echo changed > /sandbox/seed.txt"]);

    await sandbox.stop();
    await sandbox.until(phase("STOPPED"));
    await suite.pods.until("both Pods to be gone", () => suite.podsOf(sandbox).length === 0);
    // The garbage collector takes the generation's Secrets after its Pods.
    const kinds = async () => (await objectsOf(sandbox)).map((object) => object.split("/")[0]);
    await expect.poll(kinds, { timeout: 15_000, interval: 250 }).not.toContain("secret");
    expect(await kinds()).toContain("pvc");

    await sandbox.start();
    await sandbox.ready();
    const second = await suite.pair(sandbox);
    const pairId = (pods: typeof first) => pods.workload.metadata.labels?.[labels.pairId];
    expect(pairId(second)).not.toBe(pairId(first));
    expect(await sandbox.exec(["cat", "/sandbox/kept.txt", "/sandbox/seed.txt"])).toMatchObject({
      exitCode: 0,
      stdout: "kept\nchanged\n",
    });
    await everyMetricIsShown();

    await sandbox.delete();
    await sandbox.gone();
    await suite.resources.until("the Sandbox resource to be gone", () =>
      suite.resources.list().every(({ metadata }) => metadata.name !== sandbox.resourceName),
    );
    await suite.pods.until("both Pods to be gone", () => suite.podsOf(sandbox).length === 0);
    await expect.poll(() => objectsOf(sandbox), { timeout: 60_000, interval: 500 }).toEqual([]);
  }, 300_000);

  it.each([
    ["true", "COMPLETED", 0],
    ["false", "ERROR", 1],
  ] as const)(
    "whose command is `%s` ends in %s with exit code %i and gives its Pods back",
    async (command, name, code) => {
      await using sandbox = await suite.create({ command: [command] });
      const ended = await sandbox.until({ ...phase(name), test: (now) => phase(name).test(now) === true });
      expect(ended.status?.exitCode).toBe(code);
      await suite.pods.until("both Pods to be gone", () => suite.podsOf(sandbox).length === 0, { deadlineMs: 60_000 });
    },
  );

  it("gives its command the environment of its spec, and shows none of it in the cluster", async () => {
    await using sandbox = await suite.create({
      command: ["sh", "-c", 'echo "$SECRET_WORD" > /sandbox/word; exec sleep 1000'],
      environment: { SECRET_WORD: "xylophone-7" },
    });
    await sandbox.ready();
    const { workload, supervisor } = await suite.pair(sandbox);
    expect(JSON.stringify([workload, supervisor, suite.resources.list()])).not.toContain("xylophone-7");
    expect((await sandbox.exec(["cat", "/sandbox/word"])).stdout).toBe("xylophone-7\n");
    expect((await sandbox.exec(["sh", "-c", 'echo "$SECRET_WORD"'])).stdout).toBe("xylophone-7\n");
  });

  it("comes up although the gateway is killed in the middle of its creation", async () => {
    await using sandbox = await suite.create();
    await suite.resources.until("the Sandbox resource", () =>
      suite.resources.list().some(({ metadata }) => metadata.name === sandbox.resourceName),
    );
    const { namespace } = suite.release;
    await suite.kubectl(["-n", namespace, "delete", "pod", suite.gateway.podName, "--grace-period=1", "--wait=true"]);
    await suite.gateway.reconnect();
    await sandbox.ready();
    expect((await sandbox.exec(["echo", "here"])).stdout).toBe("here\n");
  }, 300_000);

  it("stays ready while the gateway restarts", async () => {
    await using sandbox = await suite.create();
    await sandbox.ready();
    const before = await suite.pair(sandbox);
    const { namespace } = suite.release;
    await suite.kubectl(["-n", namespace, "delete", "pod", suite.gateway.podName, "--wait=true"]);
    await suite.gateway.reconnect();
    await sandbox.ready();
    const after = await suite.pair(sandbox);
    expect(after.workload.metadata.uid).toBe(before.workload.metadata.uid);
    expect(after.supervisor.metadata.uid).toBe(before.supervisor.metadata.uid);
    expect((await sandbox.exec(["echo", "still"])).stdout).toBe("still\n");
  }, 300_000);
});
