import {
  type AgentSandbox,
  events,
  isNotFound,
  type KubeClient,
  type KubeObject,
  type Live,
  type PersistentVolumeClaim,
  type Pod,
  persistentVolumeClaims,
  pods,
  type Resource,
  type Service,
  services,
} from "../../../src/kube/index.ts";
import { podNameAnnotation } from "./names.ts";
import type { Action, Observed } from "./plan.ts";

const creator = { fieldManager: "sandbox-controller" };
const patcher = { fieldManager: "agent-sandbox-controller" };

/** Does one action, and gives what is observed after it. The only place that writes objects of a sandbox. */
export async function perform(
  client: KubeClient,
  resource: Resource<AgentSandbox>,
  observed: Observed,
  action: Action,
): Promise<Observed> {
  const { sandbox } = observed;
  const { namespace, name } = sandbox.metadata;
  switch (action.do) {
    case "create pod":
      return { ...observed, pods: [...observed.pods, await client.create(pods, namespace, action.pod, creator)] };
    case "create claim": {
      const claim = await client.create(persistentVolumeClaims, namespace, action.claim, creator);
      return { ...observed, claims: [...observed.claims, claim] };
    }
    case "create service":
      return { ...observed, service: await client.create(services, namespace, action.service, creator) };
    case "patch":
      return await patchMetadata(client, observed, action);
    case "delete": {
      const what: Resource = { pod: pods, service: services, sandbox: resource }[action.what];
      await goneOr(client.delete(what, namespace, action.name, { preconditions: { uid: action.uid } }));
      return withoutDeleted(observed, action.uid);
    }
    case "set pod name": {
      const body = { metadata: { annotations: { [podNameAnnotation]: action.value } } };
      const patched = await client.patch(resource, namespace, name, { type: "merge", body }, patcher);
      return { ...observed, sandbox: patched };
    }
    case "warn":
      await warn(client, sandbox, action.reason, action.message);
      return observed;
  }
}

async function patchMetadata(
  client: KubeClient,
  observed: Observed,
  { what, name, metadata }: Extract<Action, { do: "patch" }>,
): Promise<Observed> {
  const { namespace } = observed.sandbox.metadata;
  const patch = { type: "merge", body: { metadata } } as const;
  switch (what) {
    case "pod": {
      const pod: Live<Pod> = await client.patch(pods, namespace, name, patch, patcher);
      return { ...observed, pods: replaced(observed.pods, pod) };
    }
    case "claim": {
      const claim: Live<PersistentVolumeClaim> = await client.patch(
        persistentVolumeClaims,
        namespace,
        name,
        patch,
        patcher,
      );
      return { ...observed, claims: replaced(observed.claims, claim) };
    }
    case "service": {
      const service: Live<Service> = await client.patch(services, namespace, name, patch, patcher);
      return { ...observed, service };
    }
  }
}

/** A deleted Pod may live on for its grace: until the watch says more, it is one that is being deleted. */
function withoutDeleted(observed: Observed, uid: string): Observed {
  const deletionTimestamp = observed.now.toISOString();
  const mark = <T extends KubeObject>(object: Live<T>): Live<T> =>
    object.metadata.uid === uid ? { ...object, metadata: { ...object.metadata, deletionTimestamp } } : object;
  return {
    ...observed,
    sandbox: mark(observed.sandbox),
    pods: observed.pods.map(mark),
    service: observed.service?.metadata.uid === uid ? undefined : observed.service,
  };
}

async function warn(client: KubeClient, sandbox: Live<AgentSandbox>, reason: string, message: string): Promise<void> {
  const { namespace, name, uid, resourceVersion } = sandbox.metadata;
  const time = new Date().toISOString();
  await client.create(events, namespace, {
    metadata: { generateName: `${name.slice(0, 200)}.` },
    type: "Warning",
    reason,
    message,
    source: { component: "sandbox-controller" },
    involvedObject: {
      apiVersion: sandbox.apiVersion ?? "",
      kind: "Sandbox",
      namespace: namespace ?? "",
      name,
      uid,
      resourceVersion,
    },
    firstTimestamp: time,
    lastTimestamp: time,
    count: 1,
  });
}

async function goneOr(call: Promise<void>): Promise<void> {
  try {
    await call;
  } catch (error) {
    if (!isNotFound(error)) throw error;
  }
}

function replaced<T extends KubeObject>(objects: readonly Live<T>[], by: Live<T>): Live<T>[] {
  return objects.map((object) => (object.metadata.uid === by.metadata.uid ? by : object));
}
