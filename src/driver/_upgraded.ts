import { expect } from "vitest";
import type { KubernetesSettings } from "../config/index.ts";
import { type AgentSandbox, type Live, type Pod, pods, sandboxes } from "../kube/index.ts";
import { annotations } from "../manifests/index.ts";
import { FakeCluster } from "./_fake-cluster.ts";
import { type Death, mortalClient } from "./_mortal-client.ts";
import { testSandboxId, testSettings } from "./_testing.ts";
import { driverOn, ready, settled } from "./_testing-driver.ts";
import type { GenerationRecord } from "./record.ts";

export type Begun = Awaited<ReturnType<typeof driverOn>>;

export const asked = { id: testSandboxId, name: "blue", workspace: "default", spec: { template: {} } };

/** A second loss of a supervisor ends a generation under these. */
export const settingsOf = (pod_anti_affinity: "off" | "required"): Partial<KubernetesSettings> => ({
  supervisor_replacement: { ...testSettings().supervisor_replacement, max_per_hour: 1 },
  sandbox_runtime: { ...testSettings().sandbox_runtime, pod_anti_affinity },
});
export const required = settingsOf("required");

export const isSupervisor = ({ metadata }: Pick<Live<Pod>, "metadata">) => metadata.name.startsWith("os-supervisor");
export const isGated = ({ spec }: Pod) => (spec?.schedulingGates?.length ?? 0) > 0;
export const podsOf = (cluster: FakeCluster) => cluster.all<Pod>("pods");
export const releasedIn = (cluster: FakeCluster) =>
  podsOf(cluster)
    .filter((pod) => !isGated(pod))
    .map(({ metadata }) => metadata.uid);

export function recordOf(cluster: FakeCluster): GenerationRecord {
  const [resource] = cluster.all<AgentSandbox>("sandboxes");
  return JSON.parse(resource?.metadata.annotations?.[annotations.generation] ?? "{}");
}

const variable = "OPENSHELL_RELEASE";

/** What is stored, as a release would have left it that gave each container one more variable. */
export async function renderedBy(release: string, cluster: FakeCluster): Promise<void> {
  const add = (path: string, value: unknown) => ({ op: "add", path, value }) as const;
  const withMark = (spec: Pod["spec"]) => {
    const env = spec?.containers[0]?.env?.filter(({ name }) => name !== variable) ?? [];
    return [...env, { name: variable, value: release }];
  };
  for (const { metadata, spec } of podsOf(cluster)) {
    const body = [add("/spec/containers/0/env", withMark(spec))];
    await cluster.patch(pods, metadata.namespace, metadata.name, { type: "json", body });
  }
  for (const { metadata, spec } of cluster.all<AgentSandbox>("sandboxes")) {
    const body = [
      add("/spec/podTemplate/spec/containers/0/env", withMark(spec.podTemplate.spec as Pod["spec"])),
      // It was written with the rest; this cluster counts one more for the change.
      add("/metadata/generation", (metadata.generation ?? 1) - 1),
    ];
    await cluster.patch(sandboxes("v1beta1"), metadata.namespace, metadata.name, { type: "json", body });
  }
  cluster.calls.length = 0;
}

/**
 * Runs a driver, with what is done to it meanwhile, until it dies or has nothing left to do.
 *
 * @returns whether it died
 */
export async function runUntil(
  death: Death | undefined,
  cluster: FakeCluster,
  settings: Partial<KubernetesSettings>,
  work: (begun: Begun) => Promise<unknown> = async () => undefined,
): Promise<boolean> {
  const client = death && mortalClient(cluster, death);
  const isDead = () => client?.isDead() === true;
  const begun = await driverOn(cluster, settings, client && { client });
  let isOver = false;
  const over = work(begun)
    // Whoever waits for one that dies is told so.
    .catch((error: unknown) => {
      if (!isDead()) throw error;
    })
    .finally(() => {
      isOver = true;
    });
  await settled(cluster, () => isDead() || isOver);
  if (!isDead()) await settled(cluster, () => isDead() || begun.driver.depth() === 0);
  const died = isDead();
  await begun.stop();
  await over;
  return died;
}

const creates = ({ client }: Begun) => client.createSandbox({ sandbox: asked });

/** A pair whose process died at a write of its create, or did not. */
export async function created(death: Death | undefined, settings = required, cluster = new FakeCluster()) {
  expect(await runUntil(death, cluster, settings, creates)).toBe(death !== undefined);
  await cluster.settle();
  return cluster;
}

/** A pair of which no Pod is released yet, since its process died before it wrote a Secret. */
export async function bothGated(cluster = new FakeCluster()): Promise<FakeCluster> {
  await created({ at: 5, when: "before it is sent" }, required, cluster);
  expect(podsOf(cluster).map(isGated)).toEqual([true, true]);
  return cluster;
}

/** A pair that waits for a node for its workload, with the supervisor behind its gate. */
export async function supervisorGated(): Promise<FakeCluster> {
  const cluster = new FakeCluster();
  cluster.fits = isSupervisor;
  await created(undefined, required, cluster);
  expect(podsOf(cluster).filter(isGated).map(isSupervisor)).toEqual([true]);
  return cluster;
}

/** A pair that waits for a node for its supervisor, which is tied to nodes, with the workload behind its gate. */
export async function workloadGated(): Promise<FakeCluster> {
  const cluster = new FakeCluster();
  cluster.fits = (pod) => !isSupervisor(pod);
  await created(undefined, { ...required, supervisor_node_selector: { zone: "a" } }, cluster);
  expect(podsOf(cluster).filter(isGated).map(isSupervisor)).toEqual([false]);
  return cluster;
}

/** An agent that runs and has lost its supervisor; the next one is made and not released. */
export async function nextGated(): Promise<FakeCluster> {
  const cluster = await created(undefined);
  cluster.forget("pods", podsOf(cluster).find(isSupervisor) as Live<Pod>);
  // The lost one is looked for; then come Pod, record, Secret, and the release.
  await runUntil({ at: 5, when: "before it is sent" }, cluster, required, ({ quiet }) => quiet());
  expect(podsOf(cluster).filter(isGated).map(isSupervisor)).toEqual([true]);
  expect([recordOf(cluster).generation.session, recordOf(cluster).replacedAt?.length]).toEqual([2, 1]);
  return cluster;
}

/**
 * Waits until the sandbox runs, in the generation that it was in. No Pod is another release's, but for those that it had released.
 *
 * @param released UIDs
 */
export async function expectReady(cluster: FakeCluster, begun: Begun, generation: string, released: readonly string[]) {
  cluster.fits = () => true;
  await settled(cluster, async () => (await begun.reasons())?.join() === ready.join());
  await begun.quiet();
  expect(recordOf(cluster)).toMatchObject({ intent: "running", generation: { id: generation } });
  const isForeign = ({ spec }: Pod) => spec?.containers[0]?.env?.some(({ name }) => name === variable);
  const foreign = podsOf(cluster).filter(isForeign);
  expect(foreign.map(({ metadata }) => metadata.uid).filter((uid) => !released.includes(uid))).toEqual([]);
  expect(podsOf(cluster).map(isSupervisor).sort()).toEqual([false, true]);
}
