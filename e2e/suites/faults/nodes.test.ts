import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { referenceOf } from "../../../images/references.ts";
import type { Live, Pod } from "../../../src/kube/index.ts";
import type { ClusterFaults } from "../../cluster/faults.ts";
import { Conformance, type NewSandbox, type Pair, tables } from "../../support/conformance.ts";
import { CountingSandbox } from "../../support/counting-sandbox.ts";
import { canBreak } from "../../support/fault-suite.ts";
import { scrapeGateway } from "../../support/gateway-metrics.ts";
import { kubeRequests } from "../../support/kube-requests.ts";
import { cordoned } from "../../support/node-changes.ts";
import { failed, leftOf, said } from "../../support/outcome.ts";
import { phase, reason } from "../../support/waits.ts";

let suite: Conformance;
let faults: ClusterFaults;
/** The gateway's node, which stays whole, and the other one. */
let home: string;
let other: string;

const on = (node: string): Pick<NewSandbox, "driverConfig"> => ({
  driverConfig: { pod: { node_selector: { "kubernetes.io/hostname": node } } },
});

/** One whose workload is bound to a node. */
const counting = (node: string) => CountingSandbox.running(suite, on(node));

const uid = ({ supervisor }: Pair) => supervisor.metadata.uid;

/** Its pair, once the supervisor is on `node`. Apart is only preferred: a node with much to do may have got neither. */
async function supervisedFrom(node: string, sandbox: CountingSandbox): Promise<Pair> {
  const pair = await suite.pair(sandbox);
  const { nodeName = "" } = pair.supervisor.spec ?? {};
  if (nodeName === node) return pair;
  const count = await sandbox.count();
  await using _elsewhere = await cordoned(suite, nodeName);
  const { name, namespace = "" } = pair.supervisor.metadata;
  await suite.kubectl(["-n", namespace, "delete", "pod", name]);
  const moved = await suite.pair(sandbox, "a supervisor elsewhere", (now) => now.supervisor.spec?.nodeName === node);
  await sandbox.countsOn(count);
  return moved;
}

/** Its UID and what its container says of its restarts. */
async function gatewayPod(): Promise<string> {
  const pod = ["-n", suite.release.namespace, "get", "pod", suite.gateway.podName];
  return suite.kubectl([...pod, "-o", "jsonpath={.metadata.uid} {.status.containerStatuses[*].restartCount}"]);
}

/** Name of the PersistentVolume of a workload. */
async function volumeOf(workload: Live<Pod>): Promise<string> {
  const [claim = ""] = (workload.spec?.volumes ?? []).flatMap((one) => one.persistentVolumeClaim?.claimName ?? []);
  const where = ["-n", suite.release.sandboxNamespace, "get", "pvc", claim];
  return suite.kubectl([...where, "-o", "jsonpath={.spec.volumeName}"]);
}

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
    const first = await supervisedFrom(other, sandbox);
    const late = uid(first);
    const count = await sandbox.count();
    await using _cordoned = await cordoned(suite, other);
    {
      // Its node does not hear that it was deleted: to the process itself no time passes.
      using _kubelet = await faults.stallKubelet(other);
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
    const asked = kubeRequests(await scrapeGateway(suite.kube, suite.release));
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
    // A create and a stop are some ten; whoever waits for a kubelet has nothing to ask.
    expect(kubeRequests(await scrapeGateway(suite.kube, suite.release)) - asked).toBeLessThan(40);
  }, 420_000);

  it("a supervisor whose process is killed is replaced, and the workload stays", async () => {
    await using sandbox = await counting(home);
    const before = await suite.pair(sandbox);
    const count = await sandbox.count();
    expect(await faults.signalPod(uid(before), "SIGKILL")).toBeGreaterThan(0);
    await suite.pair(sandbox, "another supervisor", (pair) => uid(pair) !== uid(before));
    await sandbox.countsOn(count);
    const after = await suite.pair(sandbox);
    expect(after.workload.metadata.uid).toBe(before.workload.metadata.uid);
    expect(after.workload.status?.containerStatuses?.[0]?.restartCount).toBe(0);
  }, 240_000);

  it("the gateway whose own kubelet stops goes on: a supervisor is replaced meanwhile, and the agent runs on when clients come back", async () => {
    await using sandbox = await (async () => {
      await using _only = await cordoned(suite, home);
      return counting(other);
    })();
    const before = await supervisedFrom(other, sandbox);
    const count = await sandbox.count();
    const gateway = await gatewayPod();
    {
      using _kubelet = await faults.stallKubelet(home);
      await suite.kubectl(["wait", `node/${home}`, "--for=condition=Ready=Unknown", "--timeout=110s"]);
      const { name, namespace = "" } = before.supervisor.metadata;
      await suite.kubectl(["-n", namespace, "delete", "pod", name]);
      await suite.pair(sandbox, "another supervisor", (pair) => uid(pair) !== uid(before));
    }
    await suite.kubectl(["wait", `node/${home}`, "--for=condition=Ready", "--timeout=60s"]);
    await suite.gateway.reconnect();
    await sandbox.until(phase("READY"));
    await sandbox.countsOn(count);
    expect(await gatewayPod()).toBe(gateway);
    expect((await suite.pair(sandbox)).workload.metadata.uid).toBe(before.workload.metadata.uid);
  }, 300_000);

  describe("that joins", () => {
    let joined: string;

    beforeAll(async () => {
      joined = (await suite.provider.addNode()).name;
    });

    afterAll(async () => {
      if (joined !== undefined) await suite.provider.removeNode(joined);
    });

    /** What a node's Pods leave behind there: a pair whose supervisor alone is on the node, and one whose workload is. */
    async function inhabited(stack: AsyncDisposableStack) {
      const supervised = await (async () => {
        await using _only = await cordoned(suite, other);
        return stack.use(await counting(home));
      })();
      const pair = await suite.pair(supervised);
      expect(pair.supervisor.spec?.nodeName).toBe(joined);
      // It obeys a TERM, and ends well by it.
      const command = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"];
      const bound = stack.use(await suite.create({ ...on(joined), command }));
      await bound.ready();
      return { supervised, pair, count: await supervised.count(), bound };
    }

    /** Waits until the supervisor is replaced on another node, and asserts that its agent is the same one. */
    async function isReplaced({ supervised, pair, count }: Awaited<ReturnType<typeof inhabited>>): Promise<void> {
      const another = (now: Pair) => uid(now) !== uid(pair);
      const after = await suite.pair(supervised, "another supervisor", another, 150_000);
      await supervised.countsOn(count);
      expect(after.workload.metadata.uid).toBe(pair.workload.metadata.uid);
      const placed = await suite.pair(
        supervised,
        "a node for it",
        ({ supervisor }) => supervisor.spec?.nodeName !== undefined,
      );
      expect(placed.supervisor.spec?.nodeName).not.toBe(joined);
    }

    it("and whose Pods a NoExecute taint drives away loses them: a supervisor is replaced elsewhere, a workload is over and says so", async () => {
      await using stack = new AsyncDisposableStack();
      const inhabitants = await inhabited(stack);
      const taint = "conformance.openshell.test/away";
      await suite.kubectl(["taint", "node", joined, `${taint}=:NoExecute`]);
      stack.defer(async () => void (await suite.kubectl(["taint", "node", joined, `${taint}-`])));
      expect(said(await inhabitants.bound.until(failed()))).toMatch(/WorkloadReady NodeLost: .*was tainted.*taint/i);
      await isReplaced(inhabitants);
    }, 300_000);

    it("and whose memory is used up evicts: a supervisor is replaced elsewhere, a workload is over and says so", async () => {
      await using stack = new AsyncDisposableStack();
      const inhabitants = await inhabited(stack);
      const disruptions = new Map<string, string>();
      const unsubscribe = suite.pods.on("changed", ({ metadata, status }) => {
        const condition = status?.conditions?.find(({ type }) => type === "DisruptionTarget");
        if (condition !== undefined) disruptions.set(metadata.uid, `${condition.reason}: ${condition.message}`);
      });
      stack.defer(unsubscribe);
      const pressure = stack.use(await faults.pressMemory(joined));
      const over = await inhabitants.bound.until(failed(150_000));
      expect(said(over)).toMatch(/WorkloadReady Evicted: .*low on resource: memory/);
      await isReplaced(inhabitants);
      expect(disruptions.get(uid(inhabitants.pair))).toMatch(
        /^TerminationByKubelet: The node was low on resource: memory/,
      );
      // Until its node takes Pods again, the one that is bound to it waits.
      await inhabitants.bound.start();
      await inhabitants.bound.until(reason("Unschedulable"));
      await pressure[Symbol.asyncDispose]();
      await inhabitants.bound.until(phase("READY", 150_000));
    }, 600_000);

    it("and whose kubelet makes room for a critical Pod loses them (Preempted): a supervisor is replaced elsewhere, a workload is over and says so", async () => {
      await using stack = new AsyncDisposableStack();
      const inhabitants = await inhabited(stack);
      const allocatable = ["get", "node", joined, "-o", "jsonpath={.status.allocatable.cpu}"];
      // Placed by hand, as a static Pod is: nobody has asked the scheduler whether it fits.
      const critical = {
        apiVersion: "v1",
        kind: "Pod",
        metadata: { name: "conformance-critical", namespace: "kube-system" },
        spec: {
          nodeName: joined,
          priorityClassName: "system-node-critical",
          terminationGracePeriodSeconds: 0,
          containers: [
            {
              name: "whole-node",
              image: referenceOf("noshell"),
              imagePullPolicy: "IfNotPresent",
              resources: { requests: { cpu: await suite.kubectl(allocatable) } },
            },
          ],
        },
      };
      stack.use(await suite.applied(critical));
      expect(said(await inhabitants.bound.until(failed()))).toMatch(/WorkloadReady Preempted: .*for a critical one/);
      await isReplaced(inhabitants);
      const { values } = await scrapeGateway(suite.kube, suite.release);
      expect(values.get('openshell_supervisor_replacements_total{cause="preempted"}')).toBeGreaterThan(0);
    }, 300_000);

    // The last one: the node does not come back.
    it("and that is gone takes its workload with it (NodeLost), whose next start waits for its volume (WaitingForVolume)", async () => {
      let volume: string | undefined;
      await using stack = new AsyncDisposableStack();
      // After the sandbox: whoever made it cannot clean it up on a node that is gone.
      stack.defer(async () => {
        if (volume !== undefined) await suite.kubectl(["delete", "pv", volume, "--ignore-not-found", "--timeout=60s"]);
      });
      const bound = await (async () => {
        await using _home = await cordoned(suite, home);
        await using _other = await cordoned(suite, other);
        const sandbox = stack.use(await suite.create());
        await sandbox.ready();
        return sandbox;
      })();
      const { workload } = await suite.pair(bound);
      expect(workload.spec?.nodeName).toBe(joined);
      volume = await volumeOf(workload);
      stack.use(await faults.stallKubelet(joined));
      await suite.kubectl(["delete", "node", joined, "--timeout=20s"]);
      // Nobody but the cluster may end Pods that no kubelet vouches for; it waits 40 s and looks every 20 s (1.34: podgc/gc_controller.go).
      expect(said(await bound.until(failed(150_000)))).toMatch(/WorkloadReady NodeLost: .*is gone with its node/);
      // The end is written down: what is shown before that is only seen.
      await bound.until(reason("GenerationFailed"));
      await bound.start();
      const seen = await bound.until(reason("WaitingForVolume"));
      expect(phase("STARTING").test(seen)).toBe(true);
    }, 480_000);
  });
});
