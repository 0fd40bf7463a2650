import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Live, Pod } from "../../../src/kube/index.ts";
import { Conformance, type Pair, tables } from "../../support/conformance.ts";
import { CountingSandbox } from "../../support/counting-sandbox.ts";
import { cordoned } from "../../support/node-changes.ts";
import { said } from "../../support/outcome.ts";
import { priorityClass } from "../../support/priority-class.ts";
import type { TestSandbox } from "../../support/test-sandbox.ts";
import { phase, reason } from "../../support/waits.ts";

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open({ [tables.runtime]: { pod_anti_affinity: "preferred" } });
});

afterAll(async () => suite[Symbol.asyncDispose]());

const isPlaced = ({ workload, supervisor }: Pair) =>
  workload.spec?.nodeName !== undefined && supervisor.spec?.nodeName !== undefined;

const isUnschedulable = (pod: Live<Pod>) =>
  (pod.status?.conditions ?? []).some(({ type, reason }) => type === "PodScheduled" && reason === "Unschedulable");

describe("pod_anti_affinity = preferred", () => {
  let sandbox: TestSandbox;

  beforeAll(async () => {
    await using _cordoned = await cordoned(suite, await spareNode());
    sandbox = await suite.create();
    await sandbox.ready();
  });

  afterAll(async () => sandbox?.[Symbol.asyncDispose]());

  it("comes up on one node while there is no other", async () => {
    const { workload, supervisor } = await suite.pair(sandbox, "placed Pods", isPlaced);
    expect(workload.spec?.nodeName).toBe(await gatewayNode());
    expect(supervisor.spec?.nodeName).toBe(await gatewayNode());
  }, 300_000);

  it("waits for the node of its volume, though another is free, and goes on (WaitingForVolume)", async ({ skip }) => {
    if (suite.provider.name === "kubeconfig") skip("volumes of a foreign cluster may be bound to no node");
    await sandbox.stop();
    await sandbox.until(phase("STOPPED"));
    await using taken = await cordoned(suite, await gatewayNode());
    await sandbox.start();
    const seen = await sandbox.until(reason("WaitingForVolume"));
    expect(said(seen)).toMatch(/Scheduled WaitingForVolume: no node fits the workload Pod: 0\/\d+ nodes are available/);
    expect(phase("STARTING").test(seen)).toBe(true);
    await taken[Symbol.asyncDispose]();
    await sandbox.ready();
  }, 300_000);
});

describe("pod_anti_affinity = required", () => {
  beforeAll(async () => suite.configure({ [tables.runtime]: { pod_anti_affinity: "required" } }));

  it("waits while the other node is tainted, with no agent process, and goes on when it is not any more", async () => {
    await using tainted = await taintOne();
    await using sandbox = await suite.create({
      command: ["sh", "-c", "cat /proc/uptime > /sandbox/started; exec sleep 1000"],
    });
    const waiting = await suite.pods.until(
      "one Pod of the pair to be unschedulable",
      () => suite.podsOf(sandbox).find(isUnschedulable),
      { deadlineMs: 90_000 },
    );
    expect(waiting.spec?.nodeName).toBeUndefined();
    const seen = await sandbox.until({
      what: "a phase of waiting that names scheduling",
      withinMs: 60_000,
      test: ({ status }) =>
        (status?.conditions ?? []).some(({ type, status: is }) => type === "Scheduled" && is === "False"),
    });
    expect(seen.status?.phase).toBe(1);
    const placed = suite.podsOf(sandbox).filter((pod) => pod.spec?.nodeName !== undefined);
    expect(placed.length).toBeLessThanOrEqual(1);
    // Another default for Pods that name no class is nothing that the waiting ones were made under.
    const another = { ...priorityClass(`${suite.release.name}-default`, 7, false), globalDefault: true };
    await using _another = await suite.applied(another);
    const untainted = performance.now();
    await tainted[Symbol.asyncDispose]();
    await sandbox.ready();
    const { workload, supervisor } = await suite.pair(sandbox, "placed Pods", isPlaced);
    expect(workload.spec?.nodeName).not.toBe(supervisor.spec?.nodeName);
    // By the clock of its node, the agent is younger than that is ago.
    const { stdout } = await sandbox.exec(["cat", "/sandbox/started", "/proc/uptime"]);
    const [started = Number.NaN, now = Number.NaN] = stdout.trim().split("\n").map(Number.parseFloat);
    expect(now - started).toBeGreaterThanOrEqual(0);
    expect((now - started) * 1000).toBeLessThan(performance.now() - untainted);
  }, 300_000);

  it("goes on when a second node joins, and when that one is lost with the supervisor, waits, frozen, for another", async ({
    skip,
  }) => {
    if (suite.provider.name === "kubeconfig") skip("nodes of a foreign cluster are not added or taken away");
    await using stack = new AsyncDisposableStack();
    const only = stack.use(await cordoned(suite, await spareNode()));
    const nodeSelector = { "kubernetes.io/hostname": await gatewayNode() };
    const driverConfig = { pod: { node_selector: nodeSelector } };
    const sandbox = stack.use(await CountingSandbox.create(suite, { driverConfig }));
    await suite.pods.until("the supervisor to have no node", () => suite.podsOf(sandbox).some(isUnschedulable), {
      deadlineMs: 90_000,
    });
    const joined = await suite.provider.addNode();
    let isLost = false;
    stack.defer(async () => {
      if (!isLost) await suite.provider.removeNode(joined.name);
    });
    await sandbox.until(phase("READY", 180_000));
    const { workload, supervisor } = await suite.pair(sandbox, "placed Pods", isPlaced);
    expect(supervisor.spec?.nodeName).toBe(joined.name);
    await sandbox.countsOn(0);

    await suite.provider.removeNode(joined.name);
    isLost = true;
    await sandbox.until(reason("Unschedulable", 90_000));
    const count = await sandbox.frozen();
    await only[Symbol.asyncDispose]();
    await sandbox.countsOn(count);
    const after = await suite.pair(sandbox, "placed Pods", isPlaced);
    expect(after.workload.metadata.uid).toBe(workload.metadata.uid);
    expect(after.supervisor.spec?.nodeName).not.toBe(workload.spec?.nodeName);
  }, 600_000);
});

async function gatewayNode(): Promise<string> {
  const where = ["-n", suite.release.namespace, "get", "pod", suite.gateway.podName, "-o", "jsonpath={.spec.nodeName}"];
  return suite.kubectl(where);
}

/** A node on which the gateway does not run, since its volume may be bound to its node. */
async function spareNode(): Promise<string> {
  const busy = await gatewayNode();
  const name = (await suite.provider.nodes()).map((node) => node.name).find((node) => node !== busy);
  if (name === undefined) throw new Error("placement needs two nodes");
  return name;
}

/** Keeps new Pods from a node by a taint that nobody tolerates; taken away once, however often disposed of. */
async function taintOne(): Promise<AsyncDisposable> {
  const name = await spareNode();
  const taint = "conformance.openshell.test/away";
  const undo = new AsyncDisposableStack();
  await suite.kubectl(["taint", "node", name, `${taint}=:NoSchedule`, "--overwrite"]);
  undo.defer(async () => void (await suite.kubectl(["taint", "node", name, `${taint}-`])));
  return undo;
}
