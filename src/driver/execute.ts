import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import {
  type AgentSandboxVersion,
  isConflict,
  isNotFound,
  type KubeObject,
  kubeStatusOf,
  type Live,
  type Pod,
  pods,
  type Resource,
  type Service,
  sandboxes,
  services,
} from "../kube/index.ts";
import {
  annotations,
  BoundaryService,
  bootstrapGate,
  labels,
  manifestOf,
  type OwnerReference,
  runMode,
  SandboxResource,
  SupervisorPod,
  sandboxOwner,
  sandboxResourceName,
  workloadPodTemplate,
} from "../manifests/index.ts";
import { ignoring } from "./_ignoring.ts";
import type { Action, Rendered } from "./action.ts";
import { classMade, classRules } from "./class-made.ts";
import type { LeadingClient } from "./leading-client.ts";
import { makeObject } from "./made-object.ts";
import type { Observed } from "./observed.ts";
import type { WriteOverlay } from "./overlay.ts";
import { type Failure, type GenerationRecord, pairOf } from "./record.ts";
import type { RecordSeal } from "./record-seal.ts";
import { insisting, writeFailure } from "./refusal.ts";
import type { ReleaseSeal } from "./release-seal.ts";
import { SecretWriter } from "./secret-writer.ts";
import { violationFailure, violationsOf } from "./verify-pods.ts";

export interface ExecutorOptions {
  readonly client: LeadingClient;
  readonly gatewayId: string;
  readonly gatewayCaPem: (() => string) | undefined;
  readonly masterSecret: Uint8Array;
  readonly masterKid: string;
  readonly seal: RecordSeal;
  readonly releases: ReleaseSeal;
  readonly overlay: WriteOverlay;
  readonly log: Logger;
}

/** The one place where a sandbox's objects are written. Each action may be repeated; what comes back is a reason to end the generation. */
export class Executor {
  readonly #options: ExecutorOptions;
  readonly #secrets: SecretWriter;

  constructor(options: ExecutorOptions) {
    this.#options = options;
    this.#secrets = new SecretWriter(options);
  }

  /** Makes the CR, suspended: from here on the record says what is wanted, whatever happens to us. */
  async createResource(record: GenerationRecord, api: AgentSandboxVersion): Promise<void> {
    const pair = pairOf(record, this.#options.gatewayId);
    const text = this.#options.seal.write(record);
    const manifest = manifestOf(
      (scope) => new SandboxResource(scope, "sandbox", { pair, api, running: false, record: text }),
    );
    await insisting(() => makeObject(this.#options, sandboxes(api), record, manifest));
  }

  /** Background deletion: what the CR owns goes after it. */
  async deleteResource(observed: Observed): Promise<void> {
    const { resource, api } = observed;
    if (resource === undefined || api === undefined) return;
    await this.#delete(sandboxes(api), resource.metadata);
  }

  /** Looks for the CRs of a sandbox that no watch shows, such as one that a former process made a moment ago; they count as shown then. */
  async findResources(sandboxId: string, namespaces: readonly string[], api: AgentSandboxVersion): Promise<void> {
    const { client, gatewayId, overlay } = this.#options;
    const labelSelector = `${labels.gatewayId}=${gatewayId},${labels.sandboxId}=${sandboxId}`;
    const lists = await Promise.all(
      namespaces.map((namespace) => client.list(sandboxes(api), namespace, { labelSelector })),
    );
    for (const resource of lists.flatMap(({ items }) => items)) overlay.put(sandboxId, "sandboxes", resource);
  }

  /** @returns why the generation has to end; undefined when the write was accepted, or was not needed any more */
  async perform(
    action: Action,
    observed: Observed,
    memory: { readonly writtenSecrets: Set<string>; rendered: Rendered },
  ): Promise<Failure | undefined> {
    if ("why" in action && action.why !== undefined) {
      this.#options.log.info(
        { sandbox: observed.sandboxId, why: action.why },
        "what an earlier process made is made anew",
      );
    }
    switch (action.do) {
      case "create-service":
        return await this.#refusable("the boundary Service", async () => {
          await this.#createOwned(
            services,
            action.record,
            observed,
            (scope, owner) => new BoundaryService(scope, "boundary", { pair: this.#pair(action.record), owner }),
          );
          return undefined;
        });
      case "create-supervisor":
        return await this.#refusable("the supervisor Pod", async () => {
          const isNew = await this.#createOwned(
            pods,
            action.record,
            observed,
            (scope, owner) => new SupervisorPod(scope, "supervisor", { pair: this.#pair(action.record), owner }),
          );
          if (isNew) memory.rendered = { ...memory.rendered, supervisor: action.record.generation.id };
          return undefined;
        });
      case "point-service":
        return await this.#pointService(action.record, observed);
      case "run":
        return await this.#refusable("the Sandbox", async () => {
          await this.#run(action.record, action.newTemplate, observed);
          if (action.newTemplate) memory.rendered = { ...memory.rendered, workload: action.record.generation.id };
          return undefined;
        });
      case "write-secret":
        return await this.#refusable(`the ${action.role} Secret`, () =>
          this.#secrets.write(action, memory.writtenSecrets),
        );
      case "release":
        return await this.#refusable(`the release of the ${action.role} Pod`, () => this.#release(action, observed));
      case "record":
        await this.#patchResource(observed, { metadata: this.#recordAnnotation(observed, action.record) });
        // The next one is this process's to answer for, also where somebody is quicker and puts his own there again and again.
        if (action.record.outdated !== undefined) {
          memory.rendered = { ...memory.rendered, supervisor: action.record.generation.id };
        }
        return undefined;
      case "nudge":
        await this.#patchResource(observed, {
          metadata: { annotations: { [annotations.nudge]: observed.now.toISOString() } },
        });
        return undefined;
      case "suspend":
        await this.#suspend(action.record, observed);
        return undefined;
      case "restore-labels":
        await this.#restoreLabels(action, observed);
        return undefined;
      case "delete-pod":
        await this.deletePod(action.pod);
        return undefined;
    }
  }

  async deletePod(pod: Live<Pod>): Promise<void> {
    await this.#delete(pods, pod.metadata);
  }

  async deleteService(service: Live<Service>): Promise<void> {
    await this.#delete(services, service.metadata);
  }

  /** Marked before it is asked for: the watch may be faster than the answer. */
  async #delete(resource: Resource, { namespace, name, uid }: Live<KubeObject>["metadata"]): Promise<void> {
    const { client, overlay } = this.#options;
    overlay.markDeleted(uid);
    try {
      const deletion = client.delete(resource, namespace, name, { preconditions: { uid } });
      await ignoring(isConflict, deletion);
    } catch (error) {
      // An earlier one was accepted, and its answer lost: a watch may have told of the end since, as of something that nobody deleted.
      if (isNotFound(error)) return overlay.notFound(uid);
      overlay.unmarkDeleted(uid);
      throw error;
    }
  }

  #pair(record: GenerationRecord) {
    return pairOf(record, this.#options.gatewayId);
  }

  /** @returns whether this call made it; another may have before */
  async #createOwned(
    resource: typeof pods | typeof services,
    record: GenerationRecord,
    observed: Observed,
    make: (
      scope: Parameters<Parameters<typeof manifestOf>[0]>[0],
      owner: OwnerReference,
    ) => ReturnType<Parameters<typeof manifestOf>[0]>,
  ): Promise<boolean> {
    const owner = ownerOf(observed, record);
    if (owner === undefined) return false;
    return await makeObject(
      this.#options,
      resource,
      record,
      manifestOf((scope) => make(scope, owner)),
    );
  }

  async #pointService(record: GenerationRecord, observed: Observed): Promise<undefined> {
    const { client, overlay } = this.#options;
    const owner = ownerOf(observed, record);
    const { service } = observed;
    if (owner === undefined || service === undefined) return undefined;
    const { spec } = manifestOf((scope) => new BoundaryService(scope, "boundary", { pair: this.#pair(record), owner }));
    const { selector, ports, publishNotReadyAddresses } = spec as Record<string, unknown>;
    const patched = await client.patch(services, service.metadata.namespace, service.metadata.name, {
      type: "json",
      body: [
        { op: "add", path: "/spec/selector", value: selector },
        { op: "add", path: "/spec/ports", value: ports },
        { op: "add", path: "/spec/publishNotReadyAddresses", value: publishNotReadyAddresses },
      ],
    });
    overlay.put(record.sandbox.id, services.plural, patched);
    return undefined;
  }

  async #run(record: GenerationRecord, newTemplate: boolean, observed: Observed): Promise<undefined> {
    const { resource, api } = observed;
    if (resource === undefined || api === undefined) return undefined;
    const mode = runMode(api, true);
    if (!newTemplate) {
      await this.#patchResource(observed, { metadata: this.#recordAnnotation(observed, record), spec: mode });
      return undefined;
    }
    // A merge would keep what the former template had and this one has not.
    const replaced = { podTemplate: workloadPodTemplate(this.#pair(record)), ...mode };
    const patched = await this.#options.client.patch(
      sandboxes(api),
      resource.metadata.namespace,
      resource.metadata.name,
      {
        type: "json",
        body: [
          { op: "replace", path: "/metadata/resourceVersion", value: resource.metadata.resourceVersion },
          ...Object.entries(replaced).map(([field, value]) => ({ op: "add" as const, path: `/spec/${field}`, value })),
          {
            op: "add",
            path: `/metadata/annotations/${pointer(annotations.generation)}`,
            value: this.#recordOf(resource, record),
          },
        ],
      },
    );
    this.#options.overlay.put(record.sandbox.id, "sandboxes", patched);
    return undefined;
  }

  async #suspend(record: GenerationRecord | undefined, observed: Observed): Promise<void> {
    if (observed.api === undefined) return;
    const metadata = record && this.#recordAnnotation(observed, record);
    await this.#patchResource(observed, { ...(metadata && { metadata }), spec: runMode(observed.api, false) });
  }

  #recordAnnotation({ resource }: Observed, record: GenerationRecord): object {
    return { annotations: { [annotations.generation]: this.#recordOf(resource, record) } };
  }

  #recordOf(resource: Observed["resource"], record: GenerationRecord): string {
    return this.#options.seal.write({ ...record, resourceUid: resource?.metadata.uid });
  }

  async #patchResource(observed: Observed, body: object): Promise<void> {
    const { resource, api, sandboxId } = observed;
    if (resource === undefined || api === undefined) return;
    const { namespace, name } = resource.metadata;
    const patched = await ignoring(
      isNotFound,
      this.#options.client.patch(sandboxes(api), namespace, name, { type: "merge", body }),
    );
    if (patched !== undefined) this.#options.overlay.put(sandboxId, "sandboxes", patched);
  }

  /** Opens our gate of exactly the Pod that was verified, and verifies what the API server made of that. */
  async #release(
    { role, pod, peerUid, record }: Extract<Action, { do: "release" }>,
    observed: Observed,
  ): Promise<Failure | undefined> {
    const { client, gatewayId, overlay, log, releases } = this.#options;
    const { namespace, name, resourceVersion } = pod.metadata;
    const remaining = (pod.spec?.schedulingGates ?? []).filter((gate) => gate.name !== bootstrapGate);
    const body = {
      metadata: { resourceVersion, annotations: releases.write(pod.metadata.uid, peerUid) },
      spec: { schedulingGates: remaining },
    };
    let released: Live<Pod>;
    try {
      released = await client.patch(pods, namespace, name, { type: "merge", body });
    } catch (error) {
      if (isNotFound(error)) return undefined;
      // Somebody changed the Pod after we looked: the watch shows it, and it is verified again.
      if (isConflict(error))
        throw new OpenShellError("aborted", `Pod ${name} changed while it was released`, { cause: error });
      throw error;
    }
    overlay.put(record.sandbox.id, pods.plural, released);
    // What was released was verified, if under other classes than today's.
    const rules = classRules(classMade(pod));
    const violations = violationsOf(role, released, record, gatewayId, observed.cluster, rules);
    if (violations.length === 0) return undefined;
    log.warn({ sandbox: record.sandbox.id, pod: name, violations }, "admission changed a Pod in its release");
    await this.deletePod(released);
    return violationFailure(role, violations, observed, record);
  }

  /** By name and UID, so that one that no watch shows is found, too; what is not there, or is another by now, is known to be gone. */
  async #restoreLabels(
    { kind, metadata: { namespace, name, uid }, labels: wanted }: Extract<Action, { do: "restore-labels" }>,
    { sandboxId, api }: Observed,
  ): Promise<void> {
    const { client, overlay, log } = this.#options;
    if (api === undefined) return;
    const resource = kind === "Pod" ? pods : sandboxes(api);
    const patch = client.patch<KubeObject>(resource, namespace, name, {
      type: "merge",
      body: { metadata: { uid, labels: wanted } },
    });
    const restored = await ignoring((error) => isNotFound(error) || isOfAnother(error), patch);
    if (restored === undefined) {
      overlay.gone(uid);
      return;
    }
    log.warn({ sandbox: sandboxId, kind, name, labels: Object.keys(wanted) }, "LabelsTampered: labels were put back");
    overlay.put(sandboxId, resource.plural, restored);
  }

  /** A refusal by admission, quota or RBAC is a failure; anything else may pass and is tried again. */
  async #refusable(what: string, write: () => Promise<Failure | undefined>): Promise<Failure | undefined> {
    try {
      return await insisting(write);
    } catch (error) {
      const failure = writeFailure(what, error);
      if (failure === undefined) throw error;
      // Which has the API server's own words.
      this.#options.log.warn({ reason: failure.reason }, failure.message);
      return failure;
    }
  }
}

/** The API server's answer to a patch that names the UID of an object that was replaced by another of its name (measured: 422). */
function isOfAnother(error: unknown): boolean {
  return isConflict(error) || (kubeStatusOf(error)?.causes.some(({ field }) => field === "metadata.uid") ?? false);
}

function ownerOf({ resource, api }: Observed, record: GenerationRecord): OwnerReference | undefined {
  if (resource === undefined || api === undefined) return undefined;
  return sandboxOwner(api, sandboxResourceName(record.sandbox.workspace, record.sandbox.name), resource.metadata.uid);
}

/** RFC 6901. */
function pointer(key: string): string {
  return key.replaceAll("~", "~0").replaceAll("/", "~1");
}
