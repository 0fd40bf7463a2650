import { describe, expect, test } from "vitest";
import type { KubeObject, Live, Pod } from "../kube/index.ts";
import { FakeCluster } from "./_fake-cluster.ts";
import { driverOn, settled } from "./_testing-driver.ts";
import {
  asked,
  type Begun,
  bothGated,
  isSupervisor,
  podsOf,
  releasedIn,
  renderedBy,
  required,
  supervisorGated,
} from "./_upgraded.ts";

type Role = "workload" | "supervisor";
const roles = ["workload", "supervisor"] as const;

const inHostNetwork = <T extends KubeObject>(pod: T): T => ({
  ...pod,
  spec: { ...(pod as Pod).spec, hostNetwork: true },
});

/** Has admission change one of a pair. */
function tamper(cluster: FakeCluster, role: Role): void {
  cluster.admitPod = (pod) => (isSupervisor(pod as Live<Pod>) === (role === "supervisor") ? inHostNetwork(pod) : pod);
}

/** UIDs of Pods that are released from now on. */
function releases(cluster: FakeCluster): Set<string> {
  const uids = new Set<string>();
  cluster.afterWrite = () => {
    for (const uid of releasedIn(cluster)) uids.add(uid);
  };
  return uids;
}

/** Waits for the end of the generation. @returns how many Pods and Sandboxes were written until then */
async function ended(cluster: FakeCluster, { reasons, quiet }: Begun) {
  await settled(cluster, async () => (await reasons())?.[0] === "AdmissionViolation" && podsOf(cluster).length === 0);
  await quiet();
  const count = (write: string) => cluster.writes().filter((one) => one === write).length;
  return { made: count("create pods"), patched: count("patch sandboxes") };
}

describe("a webhook that changes Pods", () => {
  test.each(roles)("ends a new generation at once: its %s", async (role) => {
    const cluster = new FakeCluster();
    tamper(cluster, role);
    const released = releases(cluster);
    const begun = await driverOn(cluster, required);
    await begun.during(begun.client.createSandbox({ sandbox: asked }));
    expect(await ended(cluster, begun)).toEqual({ made: 1, patched: 2 });
    expect(released.size).toBe(0);
  });

  const cases = roles.flatMap((role) => [[role, "an upgrade"] as const, [role, "a plain restart"] as const]);
  test.each(cases)("ends one that was begun before after one try more: its %s, with %s", async (role, how) => {
    const cluster = new FakeCluster();
    if (how === "a plain restart") tamper(cluster, role);
    await bothGated(cluster);
    if (how === "an upgrade") await renderedBy("former", cluster);
    cluster.calls.length = 0;
    tamper(cluster, role);
    const released = releases(cluster);
    expect(await ended(cluster, await driverOn(cluster, required))).toEqual({ made: 1, patched: 3 });
    expect(released.size).toBe(0);
  });
});

test("somebody who puts a supervisor of his own in the place of each ends the generation", async () => {
  const cluster = await supervisorGated();
  await renderedBy("former", cluster);
  const before = releasedIn(cluster);
  const released = releases(cluster);
  cluster.beforeWrite = ({ verb, resource }, body) => {
    if (verb !== "create" || resource !== "pods" || body === undefined) return;
    const metadata = { ...body.metadata, name: body.metadata?.name ?? "", namespace: "sandboxes" };
    const isTaken = podsOf(cluster).some((pod) => pod.metadata.name === metadata.name);
    if (!isTaken) cluster.place("pods", { ...inHostNetwork(body), metadata });
  };
  // Given up, the next one's record, and the end.
  expect(await ended(cluster, await driverOn(cluster, required))).toEqual({ made: 1, patched: 3 });
  expect([...released].filter((uid) => !before.includes(uid))).toEqual([]);
});
