import { referenceOf } from "../../images/references.ts";
import {
  type AgentSandbox,
  type KubeClient,
  type Live,
  type PersistentVolumeClaim,
  type Pod,
  type Resource,
  type Secret,
  type Service,
  secrets,
  services,
} from "../../src/kube/index.ts";
import { labels } from "../../src/manifests/names.ts";
import { TestSandbox } from "../support/test-sandbox.ts";

/** Of what a bare client makes: which item it belongs to. */
export const benchLabel = "bench.openshell.test/leg";

export type CreateSandbox = (name: string) => Promise<TestSandbox>;

/** How a bench asks for a sandbox: the smallest image and nothing else. */
export function sandboxesOf(gateway: Parameters<typeof TestSandbox.create>[0]): CreateSandbox {
  return (name) => TestSandbox.create(gateway, name, { template: { image: referenceOf("busybox") } });
}

/** What the driver makes for one sandbox, for those who imitate it. */
export interface Specimen {
  /** Both Pods as the cluster has them. */
  readonly pair: readonly Live<Pod>[];
  readonly resource: Live<AgentSandbox>;
  readonly service: Live<Service>;
  readonly secrets: readonly Live<Secret>[];
}

/** Reads what belongs to a sandbox whose Pods are there. */
export async function specimenOf(
  kube: KubeClient,
  sandboxResource: Resource<AgentSandbox>,
  namespace: string,
  sandbox: TestSandbox,
  pair: readonly Live<Pod>[],
): Promise<Specimen> {
  const labelSelector = `${labels.sandboxId}=${sandbox.id}`;
  const [resource, listed, [service]] = await Promise.all([
    kube.get(sandboxResource, namespace, sandbox.resourceName),
    kube.list(secrets, namespace, { labelSelector }),
    kube.list(services, namespace, { labelSelector }).then(({ items }) => items),
  ]);
  if (service === undefined) throw new Error(`sandbox ${sandbox.name} has no Service`);
  return { pair, resource, service, secrets: listed.items };
}

export interface BarePodOptions {
  /** The item it belongs to; also its name's beginning, and the claim's name. */
  readonly leg: string;
  /** Which of the pair. */
  readonly index: number;
  /** The name that stands for a Secret of the specimen's. */
  readonly secretName: (original: string) => string;
  /** Without: the workspace is a folder that goes with the Pod. @default true */
  readonly withClaim?: boolean;
}

/** The same Pod with nothing to wait for: no gate, no owner, Secrets that are there, a claim of its own. */
export function barePod(
  { spec, metadata }: Live<Pod>,
  { leg, index, secretName, withClaim = true }: BarePodOptions,
): Pod {
  const { nodeName: _node, schedulingGates: _gates, ...rest } = spec ?? { containers: [] };
  const volumes = (rest.volumes ?? [])
    .filter(({ name }) => !name.startsWith("kube-api-access"))
    .map((volume) => {
      if (volume.persistentVolumeClaim) {
        return withClaim
          ? { ...volume, persistentVolumeClaim: { claimName: leg } }
          : { name: volume.name, emptyDir: {} };
      }
      if (volume.secret)
        return { ...volume, secret: { ...volume.secret, secretName: secretName(volume.secret.secretName ?? "") } };
      return volume;
    });
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: `${leg}-${index}`, labels: { [benchLabel]: leg }, annotations: metadata.annotations ?? {} },
    spec: { ...rest, volumes },
  };
}

/** The workspace's claim under another name. */
export function bareClaim({ resource }: Specimen, name: string): PersistentVolumeClaim {
  const [claim] = resource.spec.volumeClaimTemplates ?? [];
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: { name, labels: { [benchLabel]: name } },
    spec: claim?.spec ?? {},
  };
}
