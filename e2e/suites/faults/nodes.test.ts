import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { ClusterFaults } from "../../cluster/faults.ts";
import { Conformance, type NewSandbox, type Pair, tables } from "../../support/conformance.ts";
import { CountingSandbox } from "../../support/counting-sandbox.ts";
import { canBreak } from "../../support/fault-suite.ts";
import { failed, leftOf, said } from "../../support/outcome.ts";
import { phase } from "../../support/waits.ts";

let suite: Conformance;
let faults: ClusterFaults;
/** The gateway's node, which stays whole, and the other one. */
let home: string;
let other: string;

const on = (node: string): Pick<NewSandbox, "driverConfig"> => ({
  driverConfig: { pod: { node_selector: { "kubernetes.io/hostname": node } } },
});

async function cordoned(node: string): Promise<AsyncDisposable> {
  await suite.kubectl(["cordon", node]);
  return { [Symbol.asyncDispose]: async () => void (await suite.kubectl(["uncordon", node])) };
}

/** One whose workload is bound to a node. */
async function counting(node: string): Promise<CountingSandbox> {
  const sandbox = await CountingSandbox.create(suite, on(node));
  await sandbox.until(phase("READY"));
  await sandbox.countsOn(0);
  return sandbox;
}

const uid = ({ supervisor }: Pair) => supervisor.metadata.uid;

describe("on a node", { skip: !canBreak }, () => {
  beforeAll(async () => {
    suite = await Conformance.open({ [tables.runtime]: { pod_anti_affinity: "preferred" } });
    faults = suite.provider.faults ?? expect.fail("this provider can break nothing");
    const pod = ["-n", suite.release.namespace, "get", "pod", suite.gateway.podName];
    home = await suite.kubectl([...pod, "-o", "jsonpath={.spec.nodeName}"]);
    other = (await suite.provider.nodes()).find(({ name }) => name !== home)?.name ?? expect.fail("needs two nodes");
  });

  afterAll(async () => suite?.[Symbol.asyncDispose]());

  it("a supervisor that was paused and comes back after it was replaced is refused, and the workload stays with the new one", async () => {
    await using sandbox = await counting(home);
    const first = await suite.pair(sandbox);
    const late = uid(first);
    const itsNode = first.supervisor.spec?.nodeName ?? "";
    const count = await sandbox.count();
    await using _cordoned = await cordoned(itsNode);
    {
      // Its node does not hear that it was deleted: to the process itself no time passes.
      using _kubelet = await faults.stallKubelet(itsNode);
      expect(await faults.signalPod(late, "SIGSTOP")).toBeGreaterThan(0);
      const { name, namespace = "" } = first.supervisor.metadata;
      await suite.kubectl(["-n", namespace, "delete", "pod", name, "--force", "--grace-period=0"]);
      const second = await suite.pair(sandbox, "another supervisor", (pair) => uid(pair) !== late);
      await sandbox.countsOn(count);

      const between = await sandbox.count();
      expect(await faults.signalPod(late, "SIGCONT")).toBeGreaterThan(0);
      // Nobody but the runtime and the gateway can tell it that it is over: it ends by itself.
      await expect.poll(() => faults.signalPod(late, "SIGCONT"), { timeout: 60_000, interval: 500 }).toBe(0);
      await sandbox.countsOn(between + 10);
      const after = await suite.pair(sandbox);
      expect(uid(after)).toBe(uid(second));
      expect(after.workload.metadata.uid).toBe(first.workload.metadata.uid);
      expect(after.workload.status?.containerStatuses?.[0]?.restartCount).toBe(0);
    }
  }, 300_000);

  it("a kubelet that stops for more than a minute holds a create and a stop up, and an agent that runs there goes on", async () => {
    await using running = await counting(other);
    await using stopping = await suite.create(on(other));
    await stopping.ready();
    const pair = await suite.pair(running);
    const count = await running.count();
    await using stack = new AsyncDisposableStack();
    {
      using _kubelet = await faults.stallKubelet(other);
      const creating = stack.use(await suite.create(on(other)));
      await stopping.stop();
      const since = performance.now();
      await suite.kubectl(["wait", `node/${other}`, "--for=condition=Ready=Unknown", "--timeout=110s"]);
      await sleep(Math.max(0, 65_000 - (performance.now() - since)));
      expect((await creating.get()).status?.phase).toBe(1);
      // Nobody can say of what is there how it is.
      expect(said(await running.sandbox.get())).toMatch(/node \S+ does not answer/);
    }
    await suite.kubectl(["wait", `node/${other}`, "--for=condition=Ready", "--timeout=60s"]);
    await stopping.until(phase("STOPPED"));
    const left = async () => (await leftOf(suite, stopping)).filter((object) => !object.startsWith("service/"));
    await expect.poll(left, { timeout: 60_000 }).toEqual([]);
    await running.until(phase("READY"));
    await running.countsOn(count + 300);
    const after = await suite.pair(running);
    expect(after.workload.metadata.uid).toBe(pair.workload.metadata.uid);
    expect(after.workload.status?.containerStatuses?.[0]?.restartCount).toBe(0);
  }, 420_000);

  it("whose memory is used up the kubelet evicts: a supervisor is replaced elsewhere, a workload is over and says so", async () => {
    const joined = (await suite.provider.addNode()).name;
    await using stack = new AsyncDisposableStack();
    stack.defer(() => suite.provider.removeNode(joined));
    const supervised = await (async () => {
      await using _only = await cordoned(other);
      return stack.use(await counting(home));
    })();
    const before = await suite.pair(supervised);
    expect(before.supervisor.spec?.nodeName).toBe(joined);
    const count = await supervised.count();
    const evicted = stack.use(await suite.create(on(joined)));
    await evicted.ready();

    const reasons = new Map<string, string | undefined>();
    const unsubscribe = suite.pods.on("changed", ({ metadata, status }) => {
      if (status?.reason !== undefined) reasons.set(metadata.uid, `${status.reason}: ${status.message}`);
    });
    stack.defer(unsubscribe);
    {
      await using _pressure = await faults.pressMemory(joined);
      // Its container ends with 0 at the kubelet's word, and may be seen to have ended before the kubelet says why.
      expect(said(await evicted.until(failed(150_000)))).toMatch(/Evicted.*low on resource: memory|WorkloadExited/);
      const after = await suite.pair(supervised, "another supervisor", (pair) => uid(pair) !== uid(before), 150_000);
      expect(reasons.get(uid(before))).toMatch(/^Evicted: The node was low on resource: memory/);
      await supervised.countsOn(count);
      expect(after.workload.metadata.uid).toBe(before.workload.metadata.uid);
      expect(after.supervisor.spec?.nodeName).not.toBe(joined);
    }
  }, 480_000);
});
