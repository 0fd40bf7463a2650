import { expect, test } from "vitest";
import { FakeCluster } from "./_fake-cluster.ts";
import { testSandboxId } from "./_testing.ts";
import { driverOn, ready, settled } from "./_testing-driver.ts";
import { asked, recordOf } from "./_upgraded.ts";

const byId = { sandboxId: testSandboxId };

test.each(["the generation that runs", "another one"])(
  "a start of %s after a stop that is not written yet is the last word",
  async (which) => {
    const cluster = new FakeCluster();
    const { client, during, quiet, reasons } = await driverOn(cluster, {});
    const created = await during(client.createSandbox({ sandbox: asked }));
    await settled(cluster, async () => (await reasons())?.[2] === ready[2]);
    await quiet();
    const first = recordOf(cluster).generation.id;
    const answer = Promise.withResolvers<void>();
    cluster.beforeWrite = ({ resource }) => (resource === "sandboxes" ? answer.promise : undefined);
    const stopping = client.stopSandbox(byId);
    stopping.catch(() => undefined);
    await cluster.settle();
    const start =
      which === "another one"
        ? { ...byId, generationId: "next" }
        : { ...byId, expectedRuntimeIdentity: created.runtimeIdentity };
    const starting = client.startSandbox(start);
    starting.catch(() => undefined);
    await expect(stopping).rejects.toMatchObject({ code: "aborted" });
    answer.resolve();
    const { runtimeIdentity } = await during(starting);
    await settled(cluster, async () => (await reasons())?.[2] === ready[2]);
    const { generation } = recordOf(cluster);
    expect(generation.id).not.toBe(first);
    expect(runtimeIdentity).toContain(generation.id);
    expect(await reasons()).toEqual(ready);
  },
);
