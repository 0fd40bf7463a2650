import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { labels } from "../../src/manifests/names.ts";
import { Conformance } from "../support/conformance.ts";
import type { TestSandbox } from "../support/test-sandbox.ts";

let suite: Conformance;
let sandbox: TestSandbox;

beforeAll(async () => {
  suite = await Conformance.open();
  sandbox = await suite.create();
  await sandbox.ready();
});

afterAll(async () => {
  await sandbox?.[Symbol.asyncDispose]();
  await suite[Symbol.asyncDispose]();
});

const identity = [labels.gatewayId, labels.sandboxId, labels.pairId, labels.boundaryRole] as const;
const cases = (["workload", "supervisor"] as const).flatMap((role) => identity.map((label) => [role, label] as const));

describe("a label that somebody takes from a Pod that runs", () => {
  it.each(cases)("(%s, %s) is put back within 5 s, and the pair goes on", async (role, label) => {
    const before = await suite.pair(sandbox);
    const { name, labels: whole = {} } = before[role].metadata;
    await suite.kubectl(["label", "pod", "-n", suite.release.sandboxNamespace, name, `${label}-`]);
    await suite.pods.until(
      `${label} on Pod ${name}`,
      () => {
        const pod = suite.pods.get(suite.release.sandboxNamespace, name);
        return pod !== undefined &&
          pod.metadata.resourceVersion !== before[role].metadata.resourceVersion &&
          pod.metadata.labels?.[label] === whole[label]
          ? pod
          : undefined;
      },
      { deadlineMs: 5_000 },
    );
    const after = await suite.pair(sandbox);
    expect(after.workload.metadata.uid).toBe(before.workload.metadata.uid);
    expect(after.supervisor.metadata.uid).toBe(before.supervisor.metadata.uid);
    await sandbox.ready();
    expect(await sandbox.exec(["echo", "still here"])).toMatchObject({ exitCode: 0 });
  });
});
