import { ApiObject } from "cdk8s";
import type { Construct } from "constructs";
import type { PairProps } from "./generation.ts";
import { labelsOf } from "./labels.ts";
import { annotations, sandboxResourceName, volumes } from "./names.ts";
import { workloadPodTemplate } from "./workload-pod.ts";

export type AgentSandboxApi = "v1beta1" | "v1alpha1";

export interface SandboxResourceProps {
  readonly pair: PairProps;
  /** Served version of agents.x-k8s.io to write. */
  readonly api: AgentSandboxApi;
  readonly running: boolean;
  /** The generation record, as text. */
  readonly record: string;
}

/** The custom resource from which the Agent Sandbox controller makes the workload Pod and its volume. */
export class SandboxResource extends ApiObject {
  constructor(scope: Construct, id: string, { pair, api, running, record }: SandboxResourceProps) {
    const { settings, sandbox } = pair;
    super(scope, id, {
      apiVersion: `agents.x-k8s.io/${api}`,
      kind: "Sandbox",
      metadata: {
        name: sandboxResourceName(sandbox.workspace, sandbox.name),
        namespace: settings.namespace,
        labels: labelsOf("sandbox", pair),
        annotations: { [annotations.generation]: record },
      },
      spec: {
        ...runMode(api, running),
        // Its Service would select by a hash that collides (measured); ours selects by the pair id.
        service: false,
        podTemplate: workloadPodTemplate(pair),
        volumeClaimTemplates: [workspaceClaim(pair)],
      },
    });
  }
}

/** Running or suspended, as each version says it. */
export function runMode(api: AgentSandboxApi, running: boolean): Record<string, unknown> {
  return api === "v1beta1" ? { operatingMode: running ? "Running" : "Suspended" } : { replicas: running ? 1 : 0 };
}

function workspaceClaim(pair: PairProps): Record<string, unknown> {
  const { workspace_default_storage_size, workspace_storage_class } = pair.settings;
  return {
    metadata: { name: volumes.workspace, labels: labelsOf("workspaceClaim", pair) },
    spec: {
      accessModes: ["ReadWriteOnce"],
      resources: { requests: { storage: workspace_default_storage_size } },
      ...(workspace_storage_class !== "" && { storageClassName: workspace_storage_class }),
    },
  };
}
