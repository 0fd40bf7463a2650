import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { retry } from "../../src/common/async.ts";
import type { Live, Pod } from "../../src/kube/index.ts";
import { containers, labels } from "../../src/manifests/names.ts";
import { Conformance, type Pair, tables } from "../support/conformance.ts";
import { equipped, labelled } from "../support/node-changes.ts";
import { failed, failureOf, said } from "../support/outcome.ts";
import { priorityClass } from "../support/priority-class.ts";
import { workerRelease } from "../support/release.ts";
import { sandboxOf } from "../support/sandbox-of.ts";
import type { TestSandbox } from "../support/test-sandbox.ts";
import { phase, reason } from "../support/waits.ts";

const own = "conformance.openshell.test";
const release = workerRelease().name;
/** On nodes where supervisors may run. */
const pool = `${own}/${release}-supervisors`;
/** On the node that both Pods of a pair would rather have. */
const best = `${own}/${release}-best`;
const gpu = `${own}/gpu`;
const classes = {
  middle: `${own}-${release}-middle`,
  high: `${own}-${release}-high`,
  patient: `${own}-${release}-patient`,
};

const preferBest = {
  nodeAffinity: {
    preferredDuringSchedulingIgnoredDuringExecution: [
      { weight: 100, preference: { matchExpressions: [{ key: best, operator: "Exists" }] } },
    ],
  },
};

let suite: Conformance;
const stack = new AsyncDisposableStack();
/** Two nodes: the one that everybody prefers, and where alone supervisors may run at first; and another one. */
let first: string;
let second: string;

beforeAll(async () => {
  suite = stack.use(
    await Conformance.open({
      [tables.driver]: {
        supervisor_node_selector: { [pool]: "yes" },
        supervisor_affinity: preferBest,
        supervisor_priority_class_name: classes.middle,
        workload_affinity: preferBest,
        gpu_resource_name: gpu,
      },
      [tables.runtime]: { pod_anti_affinity: "required" },
    }),
  );
  const [a, b] = (await suite.provider.nodes()).filter(({ ready, schedulable }) => ready && schedulable);
  if (a === undefined || b === undefined) throw new Error("a pair that keeps apart needs two nodes");
  [first, second] = [a.name, b.name];
  stack.use(
    await suite.applied(
      priorityClass(classes.middle, 100),
      priorityClass(classes.high, 200),
      priorityClass(classes.patient, 200, false),
    ),
  );
  // Of a run that was cut off.
  await suite.kubectl(["label", "nodes", "--all", `${pool}-`, `${best}-`]);
  stack.use(await labelled(suite, first, pool));
  stack.use(await labelled(suite, first, best));
});

afterAll(async () => stack.disposeAsync());

const hostname = (node: string) => ({ "kubernetes.io/hostname": node });
const nodesOf = ({ workload, supervisor }: Pair) => [workload.spec?.nodeName, supervisor.spec?.nodeName];
const nodeOf = (pod: Live<Pod> | undefined) => pod?.spec?.nodeName;
const livingOf = (sandbox: TestSandbox) =>
  suite.podsOf(sandbox).filter(({ metadata }) => metadata.deletionTimestamp === undefined);
const placedOf = (sandbox: TestSandbox) => livingOf(sandbox).filter((pod) => nodeOf(pod) !== undefined);

/** A sandbox whose workload has the supervisors' PriorityClass, so that neither could preempt the other. */
const atPar = (pod: object = {}, more: object = {}) =>
  sandboxOf(suite, { kubernetes: { pod: { priority_class_name: classes.middle, ...pod }, ...more } });

/** Asks `look` at every change of a Pod. */
function noting(look: () => void): Disposable {
  return { [Symbol.dispose]: suite.pods.on("changed", look) };
}

/** Names of the Pods of a sandbox from now on, as often as one was made. */
function madeOf(): { of(sandbox: TestSandbox): Live<Pod>[]; [Symbol.dispose](): void } {
  const made: Live<Pod>[] = [];
  const stop = suite.pods.on("added", (pod) => void made.push(pod));
  return {
    of: ({ id }) => made.filter(({ metadata }) => metadata.labels?.[labels.sandboxId] === id),
    [Symbol.dispose]: stop,
  };
}

describe("a pair that keeps apart, of which one Pod fits one node only, takes no second try when that is", () => {
  it("the supervisor, by its operator: it has that node, although its workload would rather have it", async () => {
    using made = madeOf();
    await using sandbox = await sandboxOf(suite, { kubernetes: { pod: { priority_class_name: classes.patient } } });
    await sandbox.ready();
    const [workload, supervisor] = nodesOf(await suite.pair(sandbox));
    expect(supervisor).toBe(first);
    expect(workload).not.toBe(first);
    expect(made.of(sandbox)).toHaveLength(2);
  }, 240_000);

  it("the workload, by its caller: it has that node, although its supervisor would rather have it", async () => {
    using made = madeOf();
    await using _everywhere = await labelled(suite, second, pool);
    await using sandbox = await atPar({ node_selector: hostname(first) });
    await sandbox.ready();
    expect(nodesOf(await suite.pair(sandbox))).toEqual([first, second]);
    expect(made.of(sandbox)).toHaveLength(2);
  }, 240_000);
});

describe("a pair that keeps apart", () => {
  it("is placed anew, in the other order, when the Pod that went first has the only node of its peer", async () => {
    using made = madeOf();
    await using _everywhere = await labelled(suite, second, pool);
    await using _device = await equipped(suite, first, gpu, 1);
    // Nobody counts it as a GPU: the supervisor, which is bound to nodes, goes first, and prefers the only node that has one.
    const resources = { requests: { [gpu]: 1 }, limits: { [gpu]: 1 } };
    await using sandbox = await atPar({}, { containers: { agent: { resources } } });
    await sandbox.ready();
    const pair = await suite.pair(sandbox);
    expect(nodesOf(pair)).toEqual([first, second]);
    const all = made.of(sandbox);
    expect(all.map(({ metadata }) => metadata.labels?.[labels.boundaryRole]).toSorted()).toEqual([
      "supervisor",
      "supervisor",
      "workload",
    ]);
    expect(new Set(all.map(({ metadata }) => metadata.labels?.[labels.pairId])).size, "generations").toBe(1);
  }, 240_000);

  it("waits, with one Pod placed and no agent process, while both fit the same node only; by force on one it ends (PlacementViolated)", async () => {
    const pod = { priority_class_name: classes.middle, node_selector: hostname(first) };
    await using sandbox = await suite.create({ command: ["sleep", "86399"], driverConfig: { pod } });
    // Those that are ending, too, until nothing of them runs.
    const isThere = (one: Live<Pod>) =>
      nodeOf(one) !== undefined && !["Succeeded", "Failed"].includes(one.status?.phase ?? "");
    const together: string[][] = [];
    using _noted = noting(() => {
      const there = suite.podsOf(sandbox).filter(isThere);
      if (there.length > 1) together.push(there.map(({ metadata, status }) => `${metadata.name} ${status?.phase}`));
    });
    const seen = await sandbox.until(reason("Unschedulable"));
    expect(phase("PROVISIONING").test(seen)).toBe(true);
    const processes = await processesOfAgent(sandbox);
    expect(processes).toContain("runtime.mjs");
    expect(processes).not.toContain("86399");
    expect(together).toEqual([]);
    // The two take turns at the node, longer and longer: either may be the one that waits, also by the time that we put it there.
    expect(said(seen), said(seen)).toMatch(
      /Scheduled Unschedulable: no node fits the (supervisor|workload) Pod: .*anti-affinity rules/,
    );
    const ended = await retry(async () => {
      await bindBlocked(sandbox);
      return sandbox.until(failed(10_000));
    });
    expect(said(ended)).toMatch(
      new RegExp(`Scheduled PlacementViolated: workload and supervisor are both on node ${first}`),
    );
  }, 360_000);

  it("is refused where the Pod that is placed second could preempt the first (PriorityWouldPreemptPeer)", async () => {
    const refusals = await Promise.all([
      failureOf(sandboxOf(suite, { kubernetes: { pod: { priority_class_name: classes.high } } })),
      failureOf(sandboxOf(suite, { kubernetes: { pod: { node_selector: hostname(second) } } })),
    ]);
    await using stack = new AsyncDisposableStack();
    for (const { sandbox } of refusals) stack.use(sandbox);
    const [workload, supervisor] = refusals.map(({ text }) => text);
    expect(workload).toContain(
      `PriorityWouldPreemptPeer: the workload's PriorityClass ${classes.high} (200) could preempt the supervisor's ${classes.middle} (100)`,
    );
    expect(supervisor).toContain(
      `PriorityWouldPreemptPeer: the supervisor's PriorityClass ${classes.middle} (100) could preempt the workload's (none) (0)`,
    );
    for (const { sandbox } of refusals) if (sandbox !== undefined) expect(placedOf(sandbox)).toEqual([]);
  });
});

/** What runs in the workload's main container, past the gateway; the two Pods take turns, so that it may just have left. */
function processesOfAgent(sandbox: TestSandbox): Promise<string> {
  return retry(async () => {
    const { metadata } = await suite.pods.until(
      "the workload's container to run",
      () => {
        const pod = suite.podOf(sandbox, "workload");
        return pod?.status?.containerStatuses?.some(({ started }) => started) === true && pod;
      },
      { deadlineMs: 40_000 },
    );
    const ps = ["exec", metadata.name, "-c", containers.agent, "--", "ps", "-o", "args"];
    return suite.kubectl(["-n", metadata.namespace ?? "", ...ps], { timeoutMs: 10_000 });
  });
}

/** Puts the Pod of a pair that waits beside its peer, as a scheduler with rules of its own might. */
async function bindBlocked(sandbox: TestSandbox): Promise<void> {
  const [blocked, node] = await suite.pods.until(
    "one Pod of the pair to wait, and one to have its node",
    () => {
      const waits = livingOf(sandbox).find((pod) => nodeOf(pod) === undefined && !pod.spec?.schedulingGates?.length);
      const [has] = placedOf(sandbox).map(nodeOf);
      return waits !== undefined && has !== undefined && ([waits, has] as const);
    },
    { deadlineMs: 20_000 },
  );
  const { name, namespace } = blocked.metadata;
  const target = { apiVersion: "v1", kind: "Node", name: node };
  const binding = { apiVersion: "v1", kind: "Binding", metadata: { name, namespace }, target };
  const path = `/api/v1/namespaces/${namespace}/pods/${name}/binding`;
  await suite.kubectl(["create", "--raw", path, "-f", "-"], { input: JSON.stringify(binding) });
}

describe("GPUs, by the resource name that the operator says", () => {
  const asking = (gpus: number) =>
    sandboxOf(suite, { gpus, kubernetes: { pod: { priority_class_name: classes.middle } } });

  it("are refused in words while no node has as many", async () => {
    await expect(asking(0)).rejects.toMatchObject({
      code: "failed-precondition",
      message: expect.stringContaining(`no node has 1 ${gpu}; the most that one node has is 0`),
    });
    await using _device = await equipped(suite, second, gpu, 1);
    await expect(asking(2)).rejects.toMatchObject({
      message: expect.stringContaining(`no node has 2 ${gpu}; the most that one node has is 1`),
    });
  });

  it("are the agent's own, on a node that has one; who comes second waits for it, with no Pod placed, and goes on when the first leaves", async () => {
    await using _device = await equipped(suite, second, gpu, 1);
    await using stack = new AsyncDisposableStack();
    const holder = await asking(0);
    stack.defer(() => holder[Symbol.asyncDispose]());
    await holder.ready();
    const { workload, supervisor } = await suite.pair(holder);
    expect(nodesOf({ workload, supervisor })).toEqual([second, first]);
    const amounts = [workload.spec?.containers, workload.spec?.initContainers, supervisor.spec?.containers].map(
      (list) => (list ?? []).map(({ resources }) => resources?.limits?.[gpu]),
    );
    expect(amounts).toEqual([["1"], [undefined, undefined], [undefined]]);

    await using waiting = await asking(1);
    const seen = await waiting.until(reason("Unschedulable"));
    expect(said(seen)).toMatch(new RegExp(`no node fits the workload Pod: .*Insufficient ${gpu}`));
    expect(phase("PROVISIONING").test(seen)).toBe(true);
    expect(placedOf(waiting)).toEqual([]);
    await holder[Symbol.asyncDispose]();
    await waiting.ready();
    expect(nodesOf(await suite.pair(waiting))).toEqual([second, first]);
  }, 420_000);
});
