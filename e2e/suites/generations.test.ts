import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Live, type Pod, persistentVolumeClaims, services } from "../../src/kube/index.ts";
import {
  boundaryServiceName,
  labels,
  pvcName,
  supervisorSecretName,
  workloadSecretName,
} from "../../src/manifests/names.ts";
import { Conformance } from "../support/conformance.ts";
import { eventOf } from "../support/event-of.ts";
import { leftOf } from "../support/outcome.ts";
import type { TestSandbox } from "../support/test-sandbox.ts";
import { phase } from "../support/waits.ts";

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open();
});

afterAll(async () => suite[Symbol.asyncDispose]());

/** Pair ids of a sandbox's Pods: one, unless two generations overlap. */
const generationsOf = (sandbox: TestSandbox) => [
  ...new Set(suite.podsOf(sandbox).map((pod) => pod.metadata.labels?.[labels.pairId])),
];

async function noPods(sandbox: TestSandbox): Promise<void> {
  await suite.pods.until("its Pods to be gone", () => suite.podsOf(sandbox).length === 0, { deadlineMs: 60_000 });
}

describe("a generation", () => {
  it("that is stopped while it is made ends as STOPPED, without Pods and Secrets, and starts again", async () => {
    await using sandbox = await suite.create();
    await sandbox.stop();
    await sandbox.until(phase("STOPPED"));
    await noPods(sandbox);
    // A Secret is its Pod's, so it is collected after it.
    const left = async () => (await leftOf(suite, sandbox)).filter((object) => !object.startsWith("service/"));
    await expect.poll(left, { timeout: 30_000 }).toEqual([]);
    await sandbox.start();
    await sandbox.ready();
    expect(generationsOf(sandbox)).toHaveLength(1);
  });

  it("that is deleted while it stops leaves nothing, its volume neither", async () => {
    await using sandbox = await suite.create();
    await sandbox.ready();
    await Promise.all([sandbox.stop(), sandbox.delete()]);
    await sandbox.gone();
    await noPods(sandbox);
    await expect.poll(() => leftOf(suite, sandbox), { timeout: 30_000 }).toEqual([]);
    const claim = pvcName(sandbox.resourceName);
    const claims = async () =>
      (await suite.kube.list(persistentVolumeClaims, suite.release.sandboxNamespace)).items.filter(
        ({ metadata }) => metadata.name === claim,
      );
    await expect.poll(claims, { timeout: 30_000 }).toEqual([]);
  });

  it("is one, however many ask for it: twice in a row, and ten times at once", async () => {
    await using sandbox = await suite.create();
    await sandbox.ready();
    const first = await suite.pair(sandbox);
    await sandbox.start();
    expect((await suite.pair(sandbox)).workload.metadata.uid).toBe(first.workload.metadata.uid);
    await sandbox.exec(["sh", "-c", "echo kept > /sandbox/kept.txt"]);
    await sandbox.stop();
    await sandbox.until(phase("STOPPED"));

    const made = new Map<string, string>();
    const unsubscribe = suite.pods.on("added", ({ metadata }) => {
      if (metadata.labels?.[labels.sandboxId] === sandbox.id) made.set(metadata.uid, metadata.name);
    });
    const starts = await Promise.allSettled(Array.from({ length: 10 }, () => sandbox.start()));
    expect(starts.filter(({ status }) => status === "fulfilled").length).toBeGreaterThan(0);
    await sandbox.ready();
    unsubscribe();
    expect(generationsOf(sandbox)).toHaveLength(1);
    expect([...made.values()].sort()).toEqual([sandbox.resourceName, expect.stringMatching(/^os-supervisor-.*-s2$/)]);
    const second = await suite.pair(sandbox);
    expect(second.workload.metadata.labels?.[labels.pairId]).not.toBe(first.workload.metadata.labels?.[labels.pairId]);
    expect(await sandbox.exec(["cat", "/sandbox/kept.txt"])).toMatchObject({ stdout: "kept\n" });
  });

  it("outlives late Pods of an earlier one, which get no Secret and no way in", async () => {
    await using sandbox = await suite.create();
    await sandbox.ready();
    const former = await suite.pair(sandbox);
    await sandbox.stop();
    await sandbox.until(phase("STOPPED"));
    await sandbox.start();
    await sandbox.ready();
    const now = await suite.pair(sandbox);
    const late = [lateCopyOf(former.supervisor), lateCopyOf(former.workload)] as const;
    await using _late = await suite.applied(...late);
    // Their nodes have them, and would have run them by then.
    await Promise.all(
      late.map(({ metadata }) => eventOf(suite, metadata.name, "FailedMount", /secret "[^"]+" not found/)),
    );
    for (const { metadata } of late) {
      const containers = await suite.pods.until(
        `the containers of ${metadata.name}`,
        () => {
          const { status } = suite.pods.get(metadata.namespace, metadata.name) ?? {};
          const all = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])];
          return all.length > 0 ? all : undefined;
        },
        { deadlineMs: 30_000 },
      );
      expect(containers.filter(({ state }) => state?.running ?? state?.terminated)).toEqual([]);
    }
    expect(await sandbox.exec(["echo", "still here"])).toMatchObject({ stdout: "still here\n" });
    const after = await suite.pair(sandbox);
    expect([after.workload, after.supervisor].map(uidOf)).toEqual([now.workload, now.supervisor].map(uidOf));

    const generation = now.workload.metadata.labels?.[labels.pairId] ?? "";
    const secrets = (await leftOf(suite, sandbox)).filter((object) => object.startsWith("secret/"));
    expect(secrets.toSorted()).toEqual(
      [supervisorSecretName(generation, 2), workloadSecretName(generation)].map((name) => `secret/${name}`),
    );
    const { spec } = await suite.kube.get(services, suite.release.sandboxNamespace, boundaryServiceName(sandbox.id));
    const leadsTo = ({ metadata }: { readonly metadata: { readonly labels?: Readonly<Record<string, string>> } }) =>
      Object.entries(spec?.selector ?? expect.fail("no selector")).every(
        ([key, value]) => metadata.labels?.[key] === value,
      );
    expect([now.workload, now.supervisor, ...late].map(leadsTo)).toEqual([true, false, false, false]);
  });
});

/** A Pod once more, as a controller or a restored backup might bring it back. */
function lateCopyOf({ metadata, spec }: Live<Pod>) {
  const { nodeName: _, ...rest } = spec ?? {};
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: `late-${randomBytes(3).toString("hex")}`,
      namespace: suite.release.sandboxNamespace,
      labels: metadata.labels ?? {},
    },
    spec: { ...rest, terminationGracePeriodSeconds: 1 },
  };
}

const uidOf = ({ metadata }: Live<Pod>) => metadata.uid;
