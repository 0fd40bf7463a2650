import { k8s } from "cdk8s-plus-28";

/**
 * Fields of the Pod API that are newer than the types of cdk8s-plus-28. Its serializer drops what it does not know, so they are put back
 * after it has run.
 */
export interface AppArmorProfile {
  readonly type: "Unconfined" | "RuntimeDefault" | "Localhost";
  readonly localhostProfile?: string;
}

export interface ImageVolumeSource {
  readonly reference: string;
  readonly pullPolicy?: string;
}

export interface PodSpecProps extends Omit<k8s.PodSpec, "containers" | "initContainers" | "volumes"> {
  readonly initContainers?: readonly ContainerProps[];
  readonly containers: readonly ContainerProps[];
  readonly volumes: readonly VolumeProps[];
}

export interface ContainerProps extends k8s.Container {
  /** Since Kubernetes 1.30. */
  readonly appArmorProfile?: AppArmorProfile;
}

export interface VolumeProps extends k8s.Volume {
  /** Since Kubernetes 1.31, on by default since 1.35. */
  readonly image?: ImageVolumeSource;
}

type Json = Record<string, unknown>;

/** The spec as JSON, with the newer fields. */
export function podSpecJson(props: PodSpecProps): Json {
  const base = k8s.toJson_PodSpec(props as k8s.PodSpec) as Json;
  return {
    ...base,
    ...(base.initContainers === undefined
      ? {}
      : { initContainers: containersJson(base.initContainers, props.initContainers) }),
    containers: containersJson(base.containers, props.containers),
    volumes: (base.volumes as Json[]).map((volume, index) => {
      const image = props.volumes[index]?.image;
      return image === undefined ? volume : { ...volume, image };
    }),
  };
}

function containersJson(base: unknown, props: readonly ContainerProps[] = []): Json[] {
  return (base as Json[]).map((container, index) => {
    const appArmorProfile = props[index]?.appArmorProfile;
    if (appArmorProfile === undefined) return container;
    return { ...container, securityContext: { ...(container.securityContext as Json), appArmorProfile } };
  });
}

/** `Unconfined`, `RuntimeDefault` or `Localhost/<profile>` as the API has it; empty is absent. */
export function appArmorProfileOf(setting: string): AppArmorProfile | undefined {
  if (setting === "") return undefined;
  const prefix = "Localhost/";
  if (setting.startsWith(prefix)) return { type: "Localhost", localhostProfile: setting.slice(prefix.length) };
  return { type: setting as "Unconfined" | "RuntimeDefault" };
}

export function resourcesOf(quantities: {
  readonly requests: Readonly<Record<string, string>>;
  readonly limits: Readonly<Record<string, string>>;
}): k8s.ResourceRequirements {
  return { ...quantitiesOf("requests", quantities.requests), ...quantitiesOf("limits", quantities.limits) };
}

function quantitiesOf(key: "requests" | "limits", values: Readonly<Record<string, string>>): k8s.ResourceRequirements {
  const entries = Object.entries(values).map(([name, value]) => [name, k8s.Quantity.fromString(value)] as const);
  return entries.length === 0 ? {} : { [key]: Object.fromEntries(entries) };
}

export function envOf(values: Readonly<Record<string, string>>): k8s.EnvVar[] {
  return Object.entries(values).map(([name, value]) => ({ name, value }));
}
