import { backoffMs, deadline, sleep } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import {
  type Informer,
  isAlreadyExists,
  isConflict,
  isForbidden,
  isNotFound,
  type KubeObject,
  type Live,
  type Namespace,
  namespaces,
  type Resource,
  roleBindings,
  selfSubjectReviews,
  serviceAccounts,
} from "../kube/index.ts";
import {
  labels,
  type ManifestObject,
  managedNamespaceName,
  manifestOf,
  type Subject,
  WorkspaceNamespace,
  WorkspaceRoleBinding,
  WorkspaceServiceAccount,
} from "../manifests/index.ts";
import { ignoring } from "./_ignoring.ts";
import { requireBounds } from "./managed-bounds.ts";
import { isGone } from "./namespace-end.ts";
import { managedNamespaces } from "./namespace-list.ts";
import { PatientFollow } from "./patient-follow.ts";
import { expectedPolicies, putPolicy } from "./policies.ts";
import type { Reason } from "./reasons.ts";
import type { NamespaceFacts } from "./request.ts";
import { factsOfNamespace, listed, requireRights, type Workspaces, type WorkspacesOptions } from "./workspaces.ts";

/** A namespace that is ready has listed by then; one that a crash left half made is made ready first. */
const listedWithinMs = 5_000;
const readyWithinMs = 20_000;
const goneWithinMs = 20_000;

/**
 * `workspace_mode = "managed"`: a namespace for each workspace, made here with all that a pair needs in it, and deleted here. Its label with
 * the gateway's id says that it is ours; no other namespace is touched, and the chart's admission policy holds us to that.
 */
export class ManagedWorkspaces implements Workspaces {
  readonly #options: WorkspacesOptions;
  readonly #namespaces: Informer<Namespace>;
  readonly #preparing = new Map<string, Promise<void>>();
  /** Made whole by this process; what a former one left may lack something that no watch shows. */
  readonly #whole = new Set<string>();
  readonly #follows: PatientFollow;
  #signal: AbortSignal | undefined;
  #subject: Subject | undefined;

  constructor(options: WorkspacesOptions) {
    this.#options = options;
    const labelSelector = `${labels.gatewayId}=${options.gatewayId}`;
    this.#namespaces = options.informers.of(namespaces, { labelSelector });
    this.#namespaces.on("added", ({ metadata: { name } }) => {
      // As when its label was put back; one that is being made is followed when it is ready.
      if (!this.#preparing.has(name)) void this.#follows.keep(name);
    });
    this.#namespaces.on("deleted", async ({ metadata }) => {
      this.#whole.delete(metadata.uid);
      const { name, uid } = metadata;
      const find = (call: { readonly signal: AbortSignal }) => options.client.find(namespaces, undefined, name, call);
      if (await isGone(metadata, find, this.#signal)) return await options.view.unfollow(name);
      options.log.error(
        { uid },
        `namespace "${name}" lost the label ${labels.gatewayId}; put it back before a restart, which would take its sandboxes for deleted`,
      );
    });
    const isOurs = (name: string) => this.#ours().some(({ metadata }) => metadata.name === name);
    this.#follows = new PatientFollow({
      attempt: (name, signal, isFirst) => this.#follow(name, signal, isFirst),
      isWanted: (name) => isOurs(name) && !options.view.namespaces().includes(name),
      log: options.log,
    });
  }

  async start(signal: AbortSignal): Promise<void> {
    const { view, settings } = this.#options;
    this.#signal = signal;
    this.#follows.start(signal);
    await requireRights(this.#options, signal);
    await requireBounds(this.#options, await this.#whoWeAre(signal), signal);
    // Sandboxes of another mode's time live on where they are.
    await Promise.all([view.follow(settings.namespace), this.#namespaces.synced]);
    await Promise.all(this.#ours().map(({ metadata }) => this.#follows.keep(metadata.name)));
  }

  unseen(): string[] {
    const seen = this.#options.view.namespaces();
    return this.#ours()
      .map(({ metadata }) => metadata.name)
      .filter((name) => !seen.includes(name));
  }

  /** Somebody took away what we had put there: it is made anew, at once. */
  refused(namespace: string, reason: Reason): void {
    const found = this.#ours().find(({ metadata }) => metadata.name === namespace);
    if (found === undefined || (reason !== "ServiceAccountNotFound" && reason !== "PermissionDenied")) return;
    if (!this.#whole.delete(found.metadata.uid)) return;
    this.ensure(workspaceOf(found)).catch((error: unknown) =>
      this.#options.log.warn({ err: error }, `namespace "${namespace}" lacks something that cannot be made anew`),
    );
  }

  #ours(): Live<Namespace>[] {
    return managedNamespaces(this.#namespaces.list(), this.#options.gatewayId);
  }

  /** Lists a namespace of a former process; what it may lack is made anew when that takes long. */
  async #follow(name: string, signal: AbortSignal, isFirst: boolean): Promise<void> {
    const { view } = this.#options;
    const found = this.#namespaces.get(undefined, name);
    if (found === undefined) return;
    const end = deadline(isFirst ? listedWithinMs : readyWithinMs, signal);
    if (!isFirst) await this.#furnish(workspaceOf(found), name, end);
    await listed(view, name, end);
  }

  check(): void {}

  async ensure(workspace: string): Promise<string> {
    if (workspace === "") throw new OpenShellError("invalid-argument", "a workspace needs a name");
    const name = managedNamespaceName(this.#options.gatewayId, workspace);
    const found = this.#namespaces.get(undefined, name);
    if (found !== undefined && !isEnding(found) && this.#whole.has(found.metadata.uid)) return name;
    // Callers share it, so that none of them may end it.
    const work = this.#preparing.get(name) ?? this.#prepare(workspace, name);
    this.#preparing.set(name, work);
    await work.finally(() => this.#preparing.delete(name));
    return name;
  }

  async remove(workspace: string, signal?: AbortSignal): Promise<void> {
    const { client, gatewayId, log } = this.#options;
    const name = managedNamespaceName(gatewayId, workspace);
    const found = this.#namespaces.get(undefined, name) ?? (await client.find(namespaces, undefined, name));
    if (found === undefined) return;
    if (!isOf(found, gatewayId, workspace)) {
      log.warn(
        `namespace "${name}" is not deleted with workspace "${workspace}": it does not have this gateway's labels`,
      );
      return;
    }
    const stillThere = (why: string, cause?: unknown) =>
      new OpenShellError("unavailable", `namespace "${name}" of workspace "${workspace}" is still ${why}`, {
        retryAfterMs: 2_000,
        cause,
      });
    if (this.#namespaces.get(undefined, name) === undefined) throw stillThere("unknown to the watch");
    if (!isEnding(found)) {
      const { uid } = found.metadata;
      const deletion = client.delete(namespaces, undefined, name, { preconditions: { uid } });
      await ignoring((error) => isNotFound(error) || isConflict(error), deletion);
    }
    const isGone = () =>
      this.#namespaces.get(undefined, name)?.metadata.uid === found.metadata.uid ? undefined : true;
    try {
      await this.#namespaces.until(`the end of namespace ${name}`, isGone, {
        deadlineMs: goneWithinMs,
        ...(signal === undefined ? {} : { signal }),
      });
    } catch (error) {
      const why = this.#namespaces
        .get(undefined, name)
        ?.status?.conditions?.filter(
          ({ status, type }) => status === "True" && type !== "NamespaceDeletionDiscoveryFailure",
        )
        .map(({ message }) => message)
        .join("; ");
      throw stillThere(`being deleted${why ? `: ${why}` : ""}`, error);
    }
  }

  factsOf(workspace: string): NamespaceFacts {
    return factsOfNamespace(this.#namespaces.get(undefined, managedNamespaceName(this.#options.gatewayId, workspace)));
  }

  async #prepare(workspace: string, name: string): Promise<void> {
    const { client, gatewayId, settings, view } = this.#options;
    const manifest = manifestOf(
      (scope) =>
        new WorkspaceNamespace(scope, "namespace", { gatewayId, workspace, settings: settings.managed_namespaces }),
    );
    const made =
      this.#namespaces.get(undefined, name) ??
      (await ignoring(isAlreadyExists, client.create(namespaces, undefined, manifest as Namespace))) ??
      (await client.get(namespaces, undefined, name));
    if (!isOf(made, gatewayId, workspace)) {
      throw new OpenShellError(
        "already-exists",
        `namespace "${name}", which workspace "${workspace}" would have, ${ownerOf(made)}; name the workspace otherwise`,
        { reason: "NameTaken" },
      );
    }
    if (isEnding(made)) {
      throw new OpenShellError("unavailable", `namespace "${name}" is still being deleted`, { retryAfterMs: 2_000 });
    }
    const end = deadline(readyWithinMs);
    await this.#furnish(workspace, name, end);
    await listed(view, name, end);
    this.#whole.add(made.metadata.uid);
  }

  /** What a pair needs in its namespace. The first of it gives us the rights for the rest, which takes the API server a moment to know. */
  async #furnish(workspace: string, namespace: string, signal: AbortSignal): Promise<void> {
    const { client, gatewayId, settings } = this.#options;
    const props = { gatewayId, workspace, namespace };
    const subject = await this.#whoWeAre(signal);
    await this.#make(
      roleBindings,
      manifestOf((scope) => new WorkspaceRoleBinding(scope, "binding", { ...props, subject })),
    );
    const { service_account_name: account } = settings;
    const patiently = async (write: () => Promise<void>) => {
      for (let attempt = 0; ; attempt += 1) {
        try {
          return await write();
        } catch (error) {
          if (!isForbidden(error) || signal.aborted) throw error;
          await sleep(backoffMs(attempt, { maxMs: 1_000 }), signal).catch(() => undefined);
        }
      }
    };
    if (account !== "default") {
      const manifest = manifestOf(
        (scope) => new WorkspaceServiceAccount(scope, "account", { ...props, name: account }),
      );
      await patiently(() => this.#make(serviceAccounts, manifest));
    }
    for (const wanted of expectedPolicies(settings, namespace, gatewayId, [])) {
      await patiently(() => putPolicy(client, namespace, wanted, undefined));
    }
  }

  async #make(resource: Resource, manifest: ManifestObject): Promise<void> {
    const { namespace } = manifest.metadata;
    await ignoring(isAlreadyExists, this.#options.client.create(resource, namespace, manifest as KubeObject));
  }

  async #whoWeAre(signal: AbortSignal): Promise<Subject> {
    if (this.#subject !== undefined) return this.#subject;
    const { status } = await this.#options.client.review(selfSubjectReviews, {}, { signal });
    const user = status?.userInfo?.username ?? "";
    const [, namespace, name] = /^system:serviceaccount:([^:]+):([^:]+)$/.exec(user) ?? [];
    this.#subject =
      name === undefined || namespace === undefined
        ? { kind: "User", name: user, apiGroup: "rbac.authorization.k8s.io" }
        : { kind: "ServiceAccount", name, namespace };
    return this.#subject;
  }
}

function isEnding({ metadata }: Live<Namespace>): boolean {
  return metadata.deletionTimestamp !== undefined;
}

function workspaceOf({ metadata }: Live<Namespace>): string {
  return metadata.labels?.[labels.workspace] ?? "";
}

function isOf({ metadata }: Live<Namespace>, gatewayId: string, workspace: string): boolean {
  return metadata.labels?.[labels.gatewayId] === gatewayId && metadata.labels[labels.workspace] === workspace;
}

/** Names may be read in two ways: `openshell-a-b-c` is workspace `b-c` of gateway `a`, and workspace `c` of gateway `a-b`. */
function ownerOf({ metadata }: Live<Namespace>): string {
  const [gateway, workspace] = [metadata.labels?.[labels.gatewayId], metadata.labels?.[labels.workspace]];
  return gateway === undefined
    ? `belongs to somebody else: it has no label ${labels.gatewayId}`
    : `belongs to workspace "${workspace ?? ""}" of gateway "${gateway}" by its labels`;
}
