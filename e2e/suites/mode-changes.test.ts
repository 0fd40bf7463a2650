import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type AgentSandboxVersion, agentSandboxGroup, type Live, type Pod, sandboxes } from "../../src/kube/index.ts";
import { labels } from "../../src/manifests/names.ts";
import { Conformance, type Pair, tables } from "../support/conformance.ts";
import type { TestSandbox } from "../support/test-sandbox.ts";
import { phase } from "../support/waits.ts";

type Mode = "off" | "preferred" | "required";

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open();
});

afterAll(async () => suite[Symbol.asyncDispose]());

/**
 * Settings one after the other, and which sandboxes are stopped and started under each, in waves: since not all take part in all, two
 * sandboxes and four upgrades make every one of the nine steps from a mode to a mode. Before that one of them may lose its supervisor.
 */
const walk: readonly {
  readonly mode: Mode;
  readonly waves: readonly (readonly ("a" | "b")[])[];
  readonly loses?: "a" | "b";
}[] = [
  { mode: "off", waves: [["a"]] },
  { mode: "preferred", waves: [["a"], ["a"]] },
  { mode: "required", waves: [["a", "b"], ["a"]] },
  { mode: "preferred", waves: [["b"]], loses: "b" },
  { mode: "off", waves: [["a", "b"]] },
];
const modes: readonly Mode[] = ["off", "preferred", "required"];

const preference = (key: string) => ({
  weight: 7,
  preference: { matchExpressions: [{ key: `conformance.openshell.test/${key}`, operator: "DoesNotExist" }] },
});
/** What an operator sets, for each Pod, and what somebody else writes into the CR's template. */
const operators = { workload: preference("workload"), supervisor: preference("supervisor") };
const foreign = preference("somebody");
const foreignTerm = {
  weight: 3,
  podAffinityTerm: {
    topologyKey: "kubernetes.io/hostname",
    labelSelector: { matchLabels: { "conformance.openshell.test/noisy": "yes" } },
  },
};

async function configure(mode: Mode): Promise<void> {
  const nodeAffinity = (term: object) => ({
    nodeAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [term] },
  });
  await suite.configure({
    [tables.driver]: {
      workload_affinity: nodeAffinity(operators.workload),
      supervisor_affinity: nodeAffinity(operators.supervisor),
    },
    [tables.runtime]: { pod_anti_affinity: mode },
  });
}

type Role = "workload" | "supervisor";

/** The mode that a Pod's term about its peer expresses; the term selects nobody else, and only on the same host. */
function modeOf(pod: Live<Pod>): Mode {
  const rule = pod.spec?.affinity?.podAntiAffinity;
  const pairId = pod.metadata.labels?.[labels.pairId];
  const isAboutPair = (term: { labelSelector?: { matchLabels?: Record<string, string> } }) =>
    term.labelSelector?.matchLabels?.[labels.pairId] === pairId;
  const required = (rule?.requiredDuringSchedulingIgnoredDuringExecution ?? []).filter(isAboutPair);
  const preferred = (rule?.preferredDuringSchedulingIgnoredDuringExecution ?? []).filter((term) =>
    isAboutPair(term.podAffinityTerm),
  );
  expect(required.length + preferred.length, "terms about the peer").toBeLessThanOrEqual(1);
  const [term] = [...required, ...preferred.map(({ podAffinityTerm }) => podAffinityTerm)];
  if (term === undefined) return "off";
  const peer: Role = pod.metadata.labels?.[labels.boundaryRole] === "workload" ? "supervisor" : "workload";
  expect(term).toMatchObject({
    topologyKey: "kubernetes.io/hostname",
    labelSelector: { matchLabels: { [labels.pairId]: pairId, [labels.boundaryRole]: peer } },
  });
  expect(term.namespaces ?? term.namespaceSelector, "other namespaces").toBeUndefined();
  if (required.length > 0) return "required";
  expect(preferred[0]?.weight).toBe(100);
  return "preferred";
}

const preferences = (pod: Live<Pod>) =>
  pod.spec?.affinity?.nodeAffinity?.preferredDuringSchedulingIgnoredDuringExecution ?? [];

const uids = ({ workload, supervisor }: Pair) => [workload.metadata.uid, supervisor.metadata.uid];

describe("pod_anti_affinity", () => {
  it("holds for what is created, and, when it changes, for both Pods from the next start, in all nine steps, beside everybody else's affinity; running pairs are left alone, and who replaces a lost supervisor has the rules of the pair", async () => {
    await configure("off");
    await using a = await ModeWalker.start("off");
    await using b = await ModeWalker.start("off");
    const walkers = { a, b };
    const steps: string[] = [];
    for (const [index, { mode, waves, loses }] of walk.entries()) {
      if (index > 0) await configure(mode);
      for (const walker of [a, b]) await walker.untouched(`the upgrade to ${mode}`);
      if (loses !== undefined) await walkers[loses].loseSupervisor();
      const isMet = walk.slice(0, index).some((earlier) => earlier.mode === mode);
      const restarted = async () => {
        for (const wave of waves) {
          steps.push(...(await Promise.all(wave.map((name) => walkers[name].restart(mode)))));
        }
      };
      await Promise.all([restarted(), isMet || mode === "off" ? undefined : createdUnder(mode)]);
    }
    expect(steps.toSorted()).toEqual(modes.flatMap((from) => modes.map((to) => `${from} -> ${to}`)).toSorted());
  }, 900_000);
});

async function createdUnder(mode: Mode): Promise<void> {
  await using _walker = await ModeWalker.start(mode);
}

/** A sandbox, the mode that its pair has, and the pair. */
class ModeWalker implements AsyncDisposable {
  readonly #sandbox: TestSandbox;
  #mode: Mode;
  #pair: Pair;
  #hasForeign = false;

  private constructor(sandbox: TestSandbox, mode: Mode, pair: Pair) {
    this.#sandbox = sandbox;
    this.#mode = mode;
    this.#pair = pair;
  }

  static async start(mode: Mode): Promise<ModeWalker> {
    await using undo = new AsyncDisposableStack();
    const sandbox = undo.use(await suite.create());
    await sandbox.ready();
    const pair = await suite.pair(sandbox);
    expect([modeOf(pair.workload), modeOf(pair.supervisor)]).toEqual([mode, mode]);
    // While there are two free nodes, nothing else weighs as much for the scheduler.
    if (mode === "off")
      for (const { spec } of [pair.workload, pair.supervisor])
        expect(spec?.affinity).not.toHaveProperty("podAntiAffinity");
    else expect(pair.workload.spec?.nodeName).not.toBe(pair.supervisor.spec?.nodeName);
    undo.move();
    return new ModeWalker(sandbox, mode, pair);
  }

  /** The pair that runs is the one that ran, with the rules that it had. */
  async untouched(by: string): Promise<void> {
    const now = await suite.pair(this.#sandbox);
    expect(uids(now), by).toEqual(uids(this.#pair));
    expect([now.workload.spec?.affinity, now.supervisor.spec?.affinity], by).toEqual([
      this.#pair.workload.spec?.affinity,
      this.#pair.supervisor.spec?.affinity,
    ]);
  }

  /** Takes its supervisor away. The next one is made as the generation began, whatever is configured by now. */
  async loseSupervisor(): Promise<void> {
    const { supervisor, workload } = this.#pair;
    const { namespace = "", name, uid } = supervisor.metadata;
    await suite.kubectl(["-n", namespace, "delete", "--wait=false", "pod", name]);
    const now = await suite.pair(
      this.#sandbox,
      "another supervisor, which runs,",
      (pair) => pair.supervisor.metadata.uid !== uid && pair.supervisor.status?.phase === "Running",
    );
    expect(modeOf(now.supervisor)).toBe(this.#mode);
    expect(now.supervisor.spec?.affinity).toEqual(supervisor.spec?.affinity);
    expect(now.workload.metadata.uid).toBe(workload.metadata.uid);
    if (this.#mode === "required") expect(now.supervisor.spec?.nodeName).not.toBe(workload.spec?.nodeName);
    this.#pair = now;
    await this.#sandbox.ready();
  }

  /** Stops and starts it under `next`; gives the step. */
  async restart(next: Mode): Promise<string> {
    const sandbox = this.#sandbox;
    const step = `${this.#mode} -> ${next}`;
    await sandbox.stop();
    await sandbox.until(phase("STOPPED"));
    if (!this.#hasForeign) await writeForeignAffinity(sandbox.resourceName);
    this.#hasForeign = true;
    await sandbox.start();
    await sandbox.ready();
    const earlier = uids(this.#pair);
    const isNew = (now: Pair) => uids(now).every((uid) => !earlier.includes(uid));
    const pair = await suite.pair(sandbox, `new Pods (${step})`, isNew);
    expect([modeOf(pair.workload), modeOf(pair.supervisor)], step).toEqual([next, next]);
    // Each once: a start appends nothing a second time.
    expect(preferences(pair.workload), step).toHaveLength(2);
    expect(preferences(pair.workload), step).toEqual(
      expect.arrayContaining([expect.objectContaining(operators.workload), expect.objectContaining(foreign)]),
    );
    expect(preferences(pair.supervisor), step).toEqual([operators.supervisor]);
    const others = pair.workload.spec?.affinity?.podAntiAffinity?.preferredDuringSchedulingIgnoredDuringExecution;
    expect(others, step).toContainEqual(expect.objectContaining({ weight: foreignTerm.weight }));
    if (next === "required") expect(pair.workload.spec?.nodeName, step).not.toBe(pair.supervisor.spec?.nodeName);
    this.#mode = next;
    this.#pair = pair;
    return step;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#sandbox[Symbol.asyncDispose]();
  }
}

/** As a policy engine or another operator of the cluster does. */
async function writeForeignAffinity(name: string): Promise<void> {
  const [version] = await suite.kube.apiVersionsOf(agentSandboxGroup);
  const resource = sandboxes((version ?? "v1beta1") as AgentSandboxVersion);
  const { spec } = await suite.kube.get(resource, suite.release.sandboxNamespace, name);
  const affinity = (spec.podTemplate.spec.affinity ?? {}) as NonNullable<NonNullable<Pod["spec"]>["affinity"]>;
  const { nodeAffinity = {}, podAntiAffinity = {} } = affinity;
  const list = "preferredDuringSchedulingIgnoredDuringExecution";
  const value = {
    ...affinity,
    nodeAffinity: { ...nodeAffinity, [list]: [...(nodeAffinity[list] ?? []), foreign] },
    podAntiAffinity: { ...podAntiAffinity, [list]: [...(podAntiAffinity[list] ?? []), foreignTerm] },
  };
  const patch = JSON.stringify([{ op: "add", path: "/spec/podTemplate/spec/affinity", value }]);
  const what = ["-n", suite.release.sandboxNamespace, "sandboxes.agents.x-k8s.io", name];
  await suite.kubectl(["patch", ...what, "--type=json", "-p", patch]);
}
