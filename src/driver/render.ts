import type { KubernetesSettings } from "../config/index.ts";
import {
  type AgentSandboxApi,
  type GatewayFacts,
  generationSettings,
  type ManifestObject,
  type PairProps,
  renderGeneration,
} from "../manifests/index.ts";
import type { compute } from "../wire/index.ts";
import { sandboxSpecOf } from "./request.ts";
import { namespaceOf } from "./workspaces.ts";

/** A generation id that nobody takes for a real one. */
const exampleGenerationId = "0".repeat(32);

/**
 * What a sandbox would put into the cluster, without one: operators review policy with it.
 *
 * @throws invalid-argument or failed-precondition as CreateSandbox would
 */
export function renderSandbox(
  settings: KubernetesSettings,
  gateway: Pick<GatewayFacts, "id" | "endpoint"> & Partial<GatewayFacts>,
  sandbox: compute.DriverSandbox,
  api: AgentSandboxApi = "v1beta1",
): ManifestObject[] {
  const pair: PairProps = {
    settings: generationSettings({ ...settings, namespace: namespaceOf(settings, gateway.id, sandbox.workspace) }),
    gateway: { fenceTargets: [], hasCa: false, ...gateway },
    sandbox: sandboxSpecOf(sandbox, settings),
    generation: { id: exampleGenerationId, session: 1, seeded: false, foreignAffinity: {} },
  };
  return renderGeneration(pair, { api, record: "<generation record>" });
}
