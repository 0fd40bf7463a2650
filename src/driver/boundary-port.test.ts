import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { NetworkPolicy } from "../kube/index.ts";
import { FakeCluster } from "./_fake-cluster.ts";
import { testSandboxId, testSettings } from "./_testing.ts";
import { driverOn, ready, settled } from "./_testing-driver.ts";

const asked = { id: testSandboxId, name: "blue", workspace: "default", spec: { template: {} } };
const other = { ...asked, id: "4b9f0a52-7f64-4a62-9b0e-0c1f7f3c2d10", name: "red" };

const withPort = (boundary_port: number) => ({
  sandbox_runtime: { ...testSettings().sandbox_runtime, boundary_port },
});

function openPorts(cluster: FakeCluster) {
  return cluster
    .all<NetworkPolicy>("networkpolicies")
    .flatMap(({ spec }) => spec?.ingress ?? [])
    .flatMap(({ ports }) => ports?.map(({ port }) => port));
}

/** A sandbox of the former port runs under a gateway that has another; the second look of the policies' repair is over. */
async function afterChange() {
  const cluster = new FakeCluster();
  const before = await driverOn(cluster, withPort(5500));
  await before.during(before.client.createSandbox({ sandbox: asked }));
  await before.stop();
  const now = await driverOn(cluster, withPort(5600));
  await settled(cluster, () => openPorts(cluster).length === 2);
  vi.advanceTimersByTime(1_000);
  await now.quiet();
  expect(openPorts(cluster)).toEqual([5500, 5600]);
  return { cluster, ...now };
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
});

afterEach(() => {
  vi.useRealTimers();
});

test.each(["deleted", "started under the new one"])(
  "the port of a former setting is closed when its last sandbox is %s",
  async (how) => {
    const { cluster, client, during } = await afterChange();
    if (how === "deleted") await during(client.deleteSandbox({ sandboxId: testSandboxId }));
    else {
      await during(client.stopSandbox({ sandboxId: testSandboxId }));
      await during(client.startSandbox({ sandboxId: testSandboxId }));
    }
    await settled(cluster, () => openPorts(cluster).length === 1);
    expect(openPorts(cluster)).toEqual([5600]);
  },
);

test("no sandbox waits until the port of a former setting is closed", async () => {
  const { cluster, client, during, reasons } = await afterChange();
  cluster.beforeWrite = ({ resource }) => (resource === "networkpolicies" ? new Promise(() => undefined) : undefined);
  await during(client.stopSandbox({ sandboxId: testSandboxId }));
  await during(client.startSandbox({ sandboxId: testSandboxId }));
  await during(client.createSandbox({ sandbox: other }));
  expect(openPorts(cluster)).toEqual([5500, 5600]);
  expect([await reasons(), await reasons(other.id)]).toEqual([ready, ready]);
});

test("a port that somebody else opened is an open fence", async () => {
  const { cluster, client, during, reasons } = await afterChange();
  cluster.beforeWrite = ({ resource }) => (resource === "networkpolicies" ? new Promise(() => undefined) : undefined);
  const [policy] = cluster.all<NetworkPolicy>("networkpolicies").filter(({ spec }) => spec?.ingress?.length);
  const spec = structuredClone(policy?.spec);
  spec?.ingress?.[0]?.ports?.push({ protocol: "TCP", port: 22 });
  cluster.place("networkpolicies", {
    ...policy,
    metadata: { ...policy?.metadata, name: policy?.metadata.name ?? "" },
    spec,
  } as NetworkPolicy & { metadata: { name: string } });
  await during(client.createSandbox({ sandbox: other }));
  expect((await reasons(other.id))?.[0]).toBe("CreatingPods");
});
