import type { AgentSandbox, Live, Pod } from "../../../src/kube/index.ts";
import { nameHashLabel, podNameAnnotation } from "./names.ts";
import { podFor } from "./objects.ts";
import type { Observed } from "./plan.ts";

export const now = new Date("2026-01-01T12:00:00Z");

/** A sandbox as the API server returns it; parts of the spec and metadata may be given. */
export function sandbox(
  spec: Partial<AgentSandbox["spec"]> = {},
  metadata: Partial<Live<AgentSandbox>["metadata"]> = {},
  status?: AgentSandbox["status"],
): Live<AgentSandbox> {
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name: "plain", namespace: "ns", uid: "cr-uid", resourceVersion: "1", generation: 3, ...metadata },
    spec: {
      podTemplate: { metadata: { labels: { app: "x" } }, spec: { containers: [{ name: "c", image: "i" }] } },
      operatingMode: "Running",
      ...spec,
    },
    ...(status && { status }),
  };
}

/** The Pod that the controller makes for a sandbox, as the API server returns it. */
export function podOf(
  owner: Live<AgentSandbox>,
  status: NonNullable<Pod["status"]> = { phase: "Pending" },
  metadata: Partial<Live<Pod>["metadata"]> = {},
): Live<Pod> {
  const pod = podFor(owner);
  return {
    ...pod,
    metadata: { name: owner.metadata.name, ...pod.metadata, uid: "pod-uid", resourceVersion: "2", ...metadata },
    status,
  };
}

/** A sandbox whose annotation names its Pod, with that Pod. */
export function settled(status?: NonNullable<Pod["status"]>, spec: Partial<AgentSandbox["spec"]> = {}): Observed {
  const cr = sandbox(spec, { annotations: { [podNameAnnotation]: "plain" } });
  return observed(cr, { pods: [podOf(cr, status)] });
}

export function observed(cr: Live<AgentSandbox>, rest: Partial<Observed> = {}): Observed {
  return { sandbox: cr, pods: [], claims: [], service: undefined, now, ...rest };
}

/** A Pod of the sandbox's name that nobody controls. */
export function unownedPod(labels: Record<string, string>): Live<Pod> {
  return { metadata: { name: "plain", namespace: "ns", uid: "other", resourceVersion: "9", labels } };
}

export const tracked = { [nameHashLabel]: "d3be3f67" };
