import { defaultSettings, type KubernetesSettings } from "../config/index.ts";
import { type Generation, generationSettings, type PairProps, type SandboxSpec } from "./generation.ts";

export const generationId = "0123456789abcdef0123456789abcdef";

/** A pair of the default settings; tests change what they are about. */
export function pairWith(
  change: {
    readonly settings?: Partial<KubernetesSettings>;
    readonly sandbox?: Partial<SandboxSpec>;
    readonly generation?: Partial<Generation>;
    readonly runtime?: Partial<KubernetesSettings["sandbox_runtime"]>;
  } = {},
): PairProps {
  const defaults = defaultSettings().kubernetes;
  const settings: KubernetesSettings = {
    ...defaults,
    default_image: "registry.test/agents/base:1",
    ...change.settings,
    sandbox_runtime: { ...defaults.sandbox_runtime, ...change.runtime },
  };
  return {
    settings: generationSettings(settings),
    gateway: {
      id: settings.gateway_id,
      endpoint: "https://gateway.test:8080",
      fenceTargets: ["10.96.0.1:443"],
      hasCa: true,
    },
    sandbox: {
      id: "3b9f0a52-7f64-4a62-9b0e-0c1f7f3c2d10",
      name: "blue",
      workspace: "default",
      image: "",
      labels: {},
      annotations: {},
      runtimeClassName: "",
      priorityClassName: "",
      nodeSelector: {},
      tolerations: [],
      resources: { requests: {}, limits: {} },
      gpus: {},
      uid: 10001,
      gid: 10001,
      supervisorUid: 10002,
      logLevel: "info",
      ...change.sandbox,
    },
    generation: { id: generationId, session: 1, seeded: false, foreignAffinity: {}, ...change.generation },
  };
}
