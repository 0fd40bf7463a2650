import { expect, test } from "vitest";
import { labels } from "../../src/manifests/names.ts";
import { nodeMarks, nodeRepairs, ownObjects, workspaceSelectors } from "./leftovers.ts";
import { workerReleases } from "./release.ts";
import { modesGatewayId, operatorLabel } from "./workspace-mode.ts";

interface Given {
  readonly unschedulable?: boolean;
  readonly taints?: readonly string[];
  readonly labels?: Record<string, string>;
  readonly capacity?: Record<string, string>;
}

const node = (name: string, { unschedulable = false, taints = [], labels = {}, capacity = {} }: Given = {}) => ({
  metadata: { name, labels },
  spec: { unschedulable, taints: taints.map((key) => ({ key })) },
  status: { capacity },
});

test("a node is cordoned again, or not any more, where the suite did the opposite, and nobody else", () => {
  const nodes = [
    node("kept"),
    node("ours", { unschedulable: true, labels: { [nodeMarks.cordoned]: "yes" } }),
    node("theirs", { unschedulable: true }),
    node("lent", { labels: { [nodeMarks.lent]: "yes" } }),
  ];
  expect(nodeRepairs(nodes)).toEqual([
    ["uncordon", "ours"],
    ["label", "node", "ours", `${nodeMarks.cordoned}-`],
    ["cordon", "lent"],
    ["label", "node", "lent", `${nodeMarks.lent}-`],
  ]);
});

test("of a node's taints, labels and resources those of the suite are taken away, and no others", () => {
  const given = {
    taints: ["conformance.openshell.test/away", "conformance.openshell.test/away", "node.kubernetes.io/not-ready"],
    labels: { "kubernetes.io/hostname": "a", "conformance.openshell.test/openshell-2-best": "yes" },
    capacity: { cpu: "2", "conformance.openshell.test/gpu": "1" },
  };
  const none = { "conformance.openshell.test/gpu": null };
  const patch = JSON.stringify({ status: { capacity: none, allocatable: none } });
  expect(nodeRepairs([node("a", given)])).toEqual([
    ["taint", "node", "a", "conformance.openshell.test/away-"],
    ["label", "node", "a", "conformance.openshell.test/openshell-2-best-"],
    ["patch", "node", "a", "--subresource=status", "--type=merge", "-p", patch],
  ]);
});

test("workspaces' namespaces are found by their labels, in whichever mode the run was", () => {
  const ids = workerReleases.map((release) => modesGatewayId(release));
  expect(workspaceSelectors).toEqual([operatorLabel, `${labels.gatewayId} in (${ids.join(", ")})`]);
});

test("of what is the cluster's only what has a name of the suite is its own", () => {
  const own = [
    "mutatingadmissionpolicy.admissionregistration.k8s.io/conformance-0a1b2c3d",
    "namespace/conformance-deadbeef",
    "runtimeclass.node.k8s.io/conformance-a",
    "runtimeclass.node.k8s.io/conformance-openshell-2-supervisors",
    "priorityclass.scheduling.k8s.io/conformance.openshell.test-openshell-high",
  ];
  const foreign = ["namespace/conformance", "namespace/conformance-tests", "namespace/gateway-conformance-infra"];
  expect(ownObjects([...own, ...foreign, ""].join("\n"))).toEqual(own);
});
