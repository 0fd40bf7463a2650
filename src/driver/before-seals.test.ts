import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import type { Live, Pod } from "../kube/index.ts";
import { annotations } from "../manifests/index.ts";
import { testGatewayId, testObserved } from "./_testing.ts";
import type { GenerationRecord } from "./record.ts";
import { unsealedViolation } from "./verify-pods.ts";

/** As the last gateway before seals rendered a pair, from its own record, and released it. Never to be made anew. */
const former = JSON.parse(await readFile(new URL("_before-seals.json", import.meta.url), "utf8")) as {
  readonly record: GenerationRecord;
  readonly workload: Live<Pod>;
  readonly supervisor: Live<Pod>;
};

const env = (pod: Live<Pod>) => pod.spec?.containers[0]?.env ?? [];

function found(change: (pods: Readonly<Record<"workload" | "supervisor", Live<Pod>>>) => void) {
  const { record, ...pods } = structuredClone(former);
  change(pods);
  return unsealedViolation(testObserved(record), record, testGatewayId, pods);
}

test("a pair that the last gateway before seals released runs on under this one: who changes a template adds a rule", () => {
  for (const pod of [former.workload, former.supervisor]) {
    expect(pod.metadata.annotations).toHaveProperty([annotations.peerUid]);
    expect(pod.metadata.annotations).not.toHaveProperty([annotations.releaseSeal]);
  }
  expect(former.record).not.toHaveProperty("bindsUids");
  expect(found(() => undefined)).toBeUndefined();
});

test.each(["workload", "supervisor"] as const)("and its %s is still held to what it was asked for", (role) => {
  const message = (change: (pod: Live<Pod>) => void) => found((pods) => change(pods[role]))?.message;
  expect(message((pod) => env(pod).push({ name: "NODE_DEBUG", value: "*" }))).toContain("env[NODE_DEBUG]");
  expect(message((pod) => env(pod).pop())).toContain(".env");
  expect(message((pod) => Object.assign(pod.spec ?? {}, { hostNetwork: true }))).toContain("spec.hostNetwork");
});
