import type {
  AgentSandbox,
  KubeObject,
  Live,
  ObjectMeta,
  PersistentVolumeClaim,
  Pod,
  Service,
} from "../../../src/kube/index.ts";
import {
  createdByLabel,
  isReserved,
  nameHash,
  nameHashLabel,
  normalizedCreator,
  propagatedAnnotationsAnnotation,
  propagatedLabelsAnnotation,
} from "./names.ts";

type Strings = Record<string, string>;
type OwnerReference = NonNullable<ObjectMeta["ownerReferences"]>[number];
type ClaimTemplate = NonNullable<AgentSandbox["spec"]["volumeClaimTemplates"]>[number];

/** True when the sandbox is to have a Pod, in either version's words. */
export function wantsPod({ spec }: AgentSandbox): boolean {
  return spec.operatingMode !== "Suspended" && spec.replicas !== 0;
}

export function ownerReference(sandbox: Live<AgentSandbox>): OwnerReference {
  return {
    apiVersion: sandbox.apiVersion ?? "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    name: sandbox.metadata.name,
    uid: sandbox.metadata.uid,
    controller: true,
    blockOwnerDeletion: true,
  };
}

export function controllerOf(object: KubeObject): OwnerReference | undefined {
  return object.metadata?.ownerReferences?.find((owner) => owner.controller);
}

export function podFor(sandbox: Live<AgentSandbox>): Pod {
  const { name, namespace } = sandbox.metadata;
  const template = templateMetadata(sandbox);
  const creator = sandbox.metadata.labels?.[createdByLabel];
  return {
    metadata: {
      name,
      namespace: namespace ?? "",
      labels: {
        ...template.labels,
        ...(creator === undefined ? {} : { [createdByLabel]: normalizedCreator(creator) }),
        [nameHashLabel]: nameHash(name),
      },
      annotations: {
        ...template.annotations,
        ...keyList(propagatedLabelsAnnotation, template.labels),
        ...keyList(propagatedAnnotationsAnnotation, template.annotations),
      },
      ownerReferences: [ownerReference(sandbox)],
    },
    spec: { ...sandbox.spec.podTemplate.spec, ...volumesFor(sandbox) },
  };
}

export function claimName(template: ClaimTemplate, sandbox: Live<AgentSandbox>): string {
  return `${template.metadata?.name ?? ""}-${sandbox.metadata.name}`;
}

export function claimFor(template: ClaimTemplate, sandbox: Live<AgentSandbox>): PersistentVolumeClaim {
  return {
    metadata: {
      name: claimName(template, sandbox),
      namespace: sandbox.metadata.namespace ?? "",
      labels: { ...template.metadata?.labels, [nameHashLabel]: nameHash(sandbox.metadata.name) },
      annotations: { ...template.metadata?.annotations },
      ownerReferences: [ownerReference(sandbox)],
    },
    spec: template.spec,
  };
}

export function serviceFor(sandbox: Live<AgentSandbox>): Service {
  const { name, namespace } = sandbox.metadata;
  const ports = sandbox.spec.podTemplate.spec.containers.flatMap((container) => container.ports ?? []);
  const hash = { [nameHashLabel]: nameHash(name) };
  return {
    metadata: { name, namespace: namespace ?? "", labels: hash, ownerReferences: [ownerReference(sandbox)] },
    spec: {
      clusterIP: "None",
      selector: hash,
      ports: ports.map(({ name, containerPort, protocol = "TCP" }) => ({
        name: name ?? `p-${containerPort}-${protocol.toLowerCase()}`,
        port: containerPort,
        protocol,
      })),
    },
  };
}

/**
 * The merge patch that brings a live Pod's labels and annotations to the template's: keys that the template had and has
 * no more go, hand edits of its keys are undone, everybody else's keys stay.
 *
 * @returns undefined when there is nothing to change
 */
export function metadataPatch(sandbox: Live<AgentSandbox>, pod: Live<Pod>): object | undefined {
  const template = templateMetadata(sandbox);
  const annotations = pod.metadata.annotations ?? {};
  const labels = difference(template.labels, pod.metadata.labels ?? {}, annotations[propagatedLabelsAnnotation]);
  const changed = {
    ...difference(template.annotations, annotations, annotations[propagatedAnnotationsAnnotation]),
    ...listDifference(propagatedLabelsAnnotation, template.labels, annotations),
    ...listDifference(propagatedAnnotationsAnnotation, template.annotations, annotations),
  };
  if (isEmpty(labels) && isEmpty(changed)) return undefined;
  return { ...(isEmpty(labels) ? {} : { labels }), ...(isEmpty(changed) ? {} : { annotations: changed }) };
}

function templateMetadata({ spec }: AgentSandbox): { labels: Strings; annotations: Strings } {
  const { labels = {}, annotations = {} } = spec.podTemplate.metadata ?? {};
  return { labels: withoutReserved(labels), annotations: withoutReserved(annotations) };
}

function volumesFor(sandbox: Live<AgentSandbox>) {
  const templates = sandbox.spec.volumeClaimTemplates ?? [];
  if (templates.length === 0) return {};
  const claimed = templates.map((template) => ({
    name: template.metadata?.name ?? "",
    persistentVolumeClaim: { claimName: claimName(template, sandbox) },
  }));
  const names = new Set(claimed.map((volume) => volume.name));
  const others = sandbox.spec.podTemplate.spec.volumes?.filter((volume) => !names.has(volume.name)) ?? [];
  return { volumes: [...others, ...claimed] };
}

function difference(wanted: Strings, present: Strings, formerKeys: string | undefined): Record<string, string | null> {
  const changes: Record<string, string | null> = {};
  for (const key of formerKeys?.split(",") ?? []) if (key in present && !(key in wanted)) changes[key] = null;
  for (const [key, value] of Object.entries(wanted)) if (present[key] !== value) changes[key] = value;
  return changes;
}

/** The list of keys is absent while there never were any, and empty once there were. */
function listDifference(annotation: string, wanted: Strings, present: Strings): Strings {
  const list = sortedKeys(wanted);
  return (present[annotation] ?? "") === list ? {} : { [annotation]: list };
}

function keyList(annotation: string, values: Strings): Strings {
  return isEmpty(values) ? {} : { [annotation]: sortedKeys(values) };
}

function sortedKeys(values: Strings): string {
  return Object.keys(values).sort().join(",");
}

function withoutReserved(values: Strings): Strings {
  return Object.fromEntries(Object.entries(values).filter(([key]) => !isReserved(key)));
}

function isEmpty(value: object): boolean {
  return Object.keys(value).length === 0;
}
