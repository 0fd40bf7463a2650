import { type ApiObject, App, Chart } from "cdk8s";
import { BoundaryService } from "./boundary-service.ts";
import type { ManifestObject, OwnerReference, PairProps } from "./generation.ts";
import { sandboxResourceName, supervisorPodName, supervisorSecretFiles, workloadSecretFiles } from "./names.ts";
import { SupervisorNetworkPolicy, WorkloadNetworkPolicy } from "./network-policies.ts";
import { type AgentSandboxApi, SandboxResource } from "./sandbox-resource.ts";
import { SupervisorSecret, type SupervisorSecretFiles, WorkloadSecret, type WorkloadSecretFiles } from "./secrets.ts";
import { SupervisorPod } from "./supervisor-pod.ts";

/** The JSON of one construct. */
export function manifestOf(make: (scope: Chart) => ApiObject): ManifestObject {
  const chart = new Chart(new App(), "manifest", { disableResourceNameHashes: true });
  return make(chart).toJson() as ManifestObject;
}

/** Stands in for UIDs and contents that exist only once there is a cluster. */
export const unknownUntilCreated = "<known when created>";
export const redacted = "<redacted>";

export interface RenderOptions {
  readonly api: AgentSandboxApi;
  readonly record: string;
}

/**
 * Everything a generation puts into the cluster, in the order in which it is applied, for people to read: UIDs are unknown and Secrets are
 * redacted. The driver makes the same objects from the same constructs, one at a time.
 */
export function renderGeneration(pair: PairProps, options: RenderOptions): ManifestObject[] {
  const { settings, gateway, sandbox, generation } = pair;
  const fence = {
    namespace: settings.namespace,
    gatewayId: gateway.id,
    boundaryPorts: [settings.sandbox_runtime.boundary_port],
  };
  const resource = sandboxResourceName(sandbox.workspace, sandbox.name);
  const bySandbox = sandboxOwner(options.api, resource, unknownUntilCreated);
  const workloadFiles = redactedFiles(Object.values(workloadSecretFiles)) as WorkloadSecretFiles;
  const supervisorFiles = redactedFiles(
    Object.values(supervisorSecretFiles).filter((file) => gateway.hasCa || file !== supervisorSecretFiles.gatewayCa),
  ) as SupervisorSecretFiles;
  return [
    manifestOf((scope) => new WorkloadNetworkPolicy(scope, "workload-fence", fence)),
    manifestOf((scope) => new SupervisorNetworkPolicy(scope, "supervisor-fence", fence)),
    manifestOf((scope) => new SandboxResource(scope, "sandbox", { pair, running: false, ...options })),
    manifestOf((scope) => new BoundaryService(scope, "boundary", { pair, owner: bySandbox })),
    manifestOf((scope) => new SupervisorPod(scope, "supervisor", { pair, owner: bySandbox })),
    manifestOf(
      (scope) =>
        new WorkloadSecret(scope, "workload-secret", {
          pair,
          owner: podOwner(resource, unknownUntilCreated),
          files: workloadFiles,
        }),
    ),
    manifestOf(
      (scope) =>
        new SupervisorSecret(scope, "supervisor-secret", {
          pair,
          owner: podOwner(supervisorPodName(sandbox.id, generation.session), unknownUntilCreated),
          files: supervisorFiles,
        }),
    ),
  ];
}

export function sandboxOwner(api: AgentSandboxApi, name: string, uid: string): OwnerReference {
  return { apiVersion: `agents.x-k8s.io/${api}`, kind: "Sandbox", name, uid };
}

export function podOwner(name: string, uid: string): OwnerReference {
  return { apiVersion: "v1", kind: "Pod", name, uid };
}

function redactedFiles(names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.map((name) => [name, redacted]));
}
