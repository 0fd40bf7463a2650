import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type AgentSandboxVersion, agentSandboxGroup, type Live, type Pod, sandboxes } from "../../src/kube/index.ts";
import { labels } from "../../src/manifests/names.ts";
import { Conformance, type Pair, tables } from "../support/conformance.ts";
import { phase } from "../support/waits.ts";

type Mode = "off" | "preferred" | "required";

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open();
});

afterAll(async () => suite[Symbol.asyncDispose]());

/** Every step from one of the three modes to one of the three, in one walk. */
const walk: readonly Mode[] = [
  "off",
  "off",
  "preferred",
  "preferred",
  "required",
  "required",
  "off",
  "required",
  "preferred",
  "off",
];

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

/** The mode that a Pod's terms about its peer express. */
function modeOf(pod: Live<Pod>): Mode {
  const rule = pod.spec?.affinity?.podAntiAffinity;
  const isAboutPair = (term: { labelSelector?: { matchLabels?: Record<string, string> } }) =>
    term.labelSelector?.matchLabels?.[labels.pairId] === pod.metadata.labels?.[labels.pairId];
  const required = (rule?.requiredDuringSchedulingIgnoredDuringExecution ?? []).filter(isAboutPair);
  const preferred = (rule?.preferredDuringSchedulingIgnoredDuringExecution ?? []).filter((term) =>
    isAboutPair(term.podAffinityTerm),
  );
  expect(required.length + preferred.length, "terms about the peer").toBeLessThanOrEqual(1);
  if (required.length > 0) return "required";
  return preferred.length > 0 ? "preferred" : "off";
}

const preferences = (pod: Live<Pod>) =>
  pod.spec?.affinity?.nodeAffinity?.preferredDuringSchedulingIgnoredDuringExecution ?? [];

const uids = ({ workload, supervisor }: Pair) => [workload.metadata.uid, supervisor.metadata.uid];

describe("a changed pod_anti_affinity", () => {
  it("leaves running pairs alone and holds for both Pods from the next start, in all nine steps, beside everybody else's affinity", async () => {
    const [first = "off", ...steps] = walk;
    await configure(first);
    await using sandbox = await suite.create();
    await sandbox.ready();
    let pair = await suite.pair(sandbox);
    let mode = first;
    let isWritten = false;
    for (const next of steps) {
      const step = `${mode} -> ${next}`;
      expect([modeOf(pair.workload), modeOf(pair.supervisor)], step).toEqual([mode, mode]);
      await configure(next);
      const untouched = await suite.pair(sandbox);
      expect(uids(untouched), step).toEqual(uids(pair));
      expect([untouched.workload.spec?.affinity, untouched.supervisor.spec?.affinity], step).toEqual([
        pair.workload.spec?.affinity,
        pair.supervisor.spec?.affinity,
      ]);

      await sandbox.stop();
      await sandbox.until(phase("STOPPED"));
      if (!isWritten) await writeForeignAffinity(sandbox.resourceName);
      isWritten = true;
      await sandbox.start();
      await sandbox.ready();
      const earlier = uids(pair);
      pair = await suite.pair(sandbox, `new Pods (${step})`, (now) => uids(now).every((uid) => !earlier.includes(uid)));
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
      mode = next;
    }
  }, 900_000);
});

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
