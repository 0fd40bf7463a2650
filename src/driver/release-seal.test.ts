import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Live, Pod } from "../kube/index.ts";
import { annotations } from "../manifests/index.ts";
import { FakeCluster } from "./_fake-cluster.ts";
import { testSandboxId } from "./_testing.ts";
import { driverOn } from "./_testing-driver.ts";
import { ReleaseSeal } from "./release-seal.ts";

const seal = new ReleaseSeal(new Uint8Array(32).fill(7), "openshell");
const podWith = (uid: string, annotations: Record<string, string>) =>
  ({ metadata: { name: "p", uid, resourceVersion: "1", annotations } }) as Live<Pod>;

describe("the seal of a release", () => {
  test("names the peer of the Pod that it was written for, and of no other", () => {
    fc.assert(
      fc.property(fc.uuid(), fc.uuid(), fc.uuid(), (uid, peer, other) => {
        fc.pre(uid !== other && peer !== other);
        const written = seal.write(uid, peer);
        expect(seal.peerOf(podWith(uid, written))).toBe(peer);
        expect(seal.peerOf(podWith(other, written))).toBeUndefined();
        expect(seal.peerOf(podWith(uid, { ...written, [annotations.peerUid]: other }))).toBeUndefined();
      }),
    );
  });

  test.each<[string, Record<string, string>]>([
    ["no annotation", {}],
    ["the peer's alone", { [annotations.peerUid]: "b" }],
    ["one of another length", { ...seal.write("a", "b"), [annotations.releaseSeal]: "00" }],
    ["another gateway's", new ReleaseSeal(new Uint8Array(32).fill(7), "other").write("a", "b")],
    ["one under another master secret", new ReleaseSeal(new Uint8Array(32), "openshell").write("a", "b")],
  ])("is none in %s", (_what, annotations) => {
    expect(seal.peerOf(podWith("a", annotations))).toBeUndefined();
  });
});

test("who opens a gate between the Secrets and our release ends the generation, whatever he writes with it", async () => {
  const cluster = new FakeCluster();
  const { client, during, reasons } = await driverOn(cluster, {});
  let isOpened = false;
  cluster.beforeWrite = async ({ verb, resource }) => {
    if (isOpened || verb !== "patch" || resource !== "pods") return;
    isOpened = true;
    const all = cluster.all<Pod>("pods");
    const supervisor = all.find(({ metadata }) => metadata.name.startsWith("os-supervisor"));
    const written = {
      [annotations.peerUid]: supervisor?.metadata.uid ?? "",
      "k8s.v1.cni.cncf.io/networks": "kube-system/host-bridge",
    };
    const body = { metadata: { annotations: written }, spec: { schedulingGates: [] } };
    const resourceOf = { group: "", version: "v1", kind: "Pod", plural: "pods", namespaced: true };
    await cluster.patch(resourceOf, "sandboxes", "default--blue", { type: "merge", body });
  };
  const sandbox = { id: testSandboxId, name: "blue", workspace: "default", spec: { template: {} } };
  await during(client.createSandbox({ sandbox }));
  expect(isOpened).toBe(true);
  expect(await reasons()).toEqual(["AdmissionViolation", "GenerationFailed", "GenerationFailed"]);
  expect(cluster.all("pods")).toEqual([]);
});
