import type { KubernetesSettings } from "../config/index.ts";

/** Settings that shape a pair. They are kept in the generation record, so that a pair stays what it began as when an operator changes them. */
export const generationSettingNames = [
  "namespace",
  "service_account_name",
  "default_image",
  "image_pull_policy",
  "image_pull_secrets",
  "sandbox_runtime_image",
  "sandbox_runtime_image_pull_policy",
  "supervisor_image",
  "supervisor_image_pull_policy",
  "default_runtime_class_name",
  "supervisor_runtime_class_name",
  "supervisor_resources",
  "workload_resources",
  "supervisor_priority_class_name",
  "supervisor_node_selector",
  "supervisor_tolerations",
  "supervisor_affinity",
  "supervisor_labels",
  "supervisor_annotations",
  "workload_priority_class_name",
  "workload_node_selector",
  "workload_tolerations",
  "workload_affinity",
  "workload_labels",
  "workload_annotations",
  "app_armor_profile",
  "enable_user_namespaces",
  "workspace_default_storage_size",
  "workspace_storage_class",
  "sa_token_ttl_secs",
  "provisioning_timeout",
  "sandbox_runtime",
  "supervisor_replacement",
] as const satisfies readonly (keyof KubernetesSettings)[];

export type GenerationSettings = Pick<KubernetesSettings, (typeof generationSettingNames)[number]>;

export function generationSettings(settings: GenerationSettings): GenerationSettings {
  const picked = Object.fromEntries(generationSettingNames.map((name) => [name, settings[name]]));
  return picked as unknown as GenerationSettings;
}

/** What the Pods need to know of their gateway. */
export interface GatewayFacts {
  readonly id: string;
  /** `http(s)://host:port`, as supervisors reach it. */
  readonly endpoint: string;
  /** `address:port` of what a fenced workload must not reach. */
  readonly fenceTargets: readonly string[];
  readonly hasCa: boolean;
}

/** A Kubernetes toleration. */
export type Toleration = KubernetesSettings["workload_tolerations"][number];
/** A Kubernetes affinity in its own field names. */
export interface Affinity {
  readonly nodeAffinity?: Readonly<Record<string, unknown>> | undefined;
  readonly podAffinity?: Readonly<Record<string, unknown>> | undefined;
  readonly podAntiAffinity?: Readonly<Record<string, unknown>> | undefined;
}
export type ResourceQuantities = KubernetesSettings["workload_resources"];

/** What a caller asked for, checked and normalised. It holds nothing secret: it is kept on the CR. */
export interface SandboxSpec {
  readonly id: string;
  readonly name: string;
  readonly workspace: string;
  /** Empty: `default_image`. */
  readonly image: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  /** Empty: `default_runtime_class_name`. */
  readonly runtimeClassName: string;
  /** Empty: `workload_priority_class_name`. */
  readonly priorityClassName: string;
  readonly nodeSelector: Readonly<Record<string, string>>;
  readonly tolerations: readonly Toleration[];
  /** Merged key by key over `workload_resources`. */
  readonly resources: ResourceQuantities;
  /** Count by extended resource name. */
  readonly gpus: Readonly<Record<string, number>>;
  /** Absent: `enable_user_namespaces`. */
  readonly userNamespaces?: boolean;
  readonly uid: number;
  readonly gid: number;
  /**
   * User and group of the supervisor, which no agent has: the kernel counts some of what it gives by user of a node, and libuv ends a process that
   * is refused a socket's watch. Absent where an earlier gateway began the generation: `uid` and `gid`.
   */
  readonly supervisorUid?: number | undefined;
  readonly logLevel: string;
}

/** One run of a pair. */
export interface Generation {
  /** 32 lower-case hex digits. */
  readonly id: string;
  readonly session: number;
  /** The workspace volume was seeded by an earlier generation. */
  readonly seeded: boolean;
  /** Affinity that somebody else put into the CR's template; it survives a start. */
  readonly foreignAffinity: Affinity;
}

/** Everything that the manifests of a pair are made of. */
export interface PairProps {
  readonly settings: GenerationSettings;
  readonly gateway: GatewayFacts;
  readonly sandbox: SandboxSpec;
  readonly generation: Generation;
}

/** What comes out of a construct: JSON as the API server takes it. */
export interface ManifestObject {
  apiVersion: string;
  kind: string;
  metadata: {
    name: string;
    namespace?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    ownerReferences?: OwnerReference[];
  };
  [field: string]: unknown;
}

export interface OwnerReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
}
