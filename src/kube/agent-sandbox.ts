import type { V1Condition, V1PersistentVolumeClaimSpec, V1PodSpec } from "@kubernetes/client-node";
import type { KubeObject, Resource, Wire } from "./types.ts";

/** API group of the Agent Sandbox project (https://github.com/kubernetes-sigs/agent-sandbox). */
export const agentSandboxGroup = "agents.x-k8s.io";

/** Versions this code speaks, the better one first. */
export const agentSandboxVersions = ["v1beta1", "v1alpha1"] as const;
export type AgentSandboxVersion = (typeof agentSandboxVersions)[number];

export type Condition = Wire<V1Condition>;

/** The Agent Sandbox custom resource. `operatingMode` exists in v1beta1 only, `replicas` in v1alpha1 only. */
export interface AgentSandbox extends KubeObject {
  spec: {
    podTemplate: {
      metadata?: { labels?: Record<string, string>; annotations?: Record<string, string> };
      spec: Wire<V1PodSpec>;
    };
    operatingMode?: "Running" | "Suspended";
    replicas?: 0 | 1;
    /** RFC 3339; from then on the sandbox is expired. */
    shutdownTime?: string;
    shutdownPolicy?: "Retain" | "Delete";
    service?: boolean;
    volumeClaimTemplates?: {
      metadata?: { name?: string; labels?: Record<string, string>; annotations?: Record<string, string> };
      spec: Wire<V1PersistentVolumeClaimSpec>;
    }[];
  };
  status?: {
    conditions?: Condition[];
    podIPs?: string[];
    nodeName?: string;
    selector?: string;
    service?: string;
    serviceFQDN?: string;
    replicas?: number;
  };
}

/** The Sandbox resource of one served version. */
export function sandboxes(version: AgentSandboxVersion): Resource<AgentSandbox> {
  return { group: agentSandboxGroup, version, kind: "Sandbox", plural: "sandboxes", namespaced: true };
}
