import { deadline } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { isForbidden, namespaces, serviceAccounts } from "../kube/index.ts";
import { workspaceRoleName } from "../manifests/index.ts";
import { operatorNamespacePermissions } from "../manifests/permissions.ts";
import { type AllowedNamespaces, LabelledNamespaces, NamespacesFromFile } from "./allowed-namespaces.ts";
import { PatientFollow } from "./patient-follow.ts";
import type { Reason } from "./reasons.ts";
import type { NamespaceFacts } from "./request.ts";
import { deniedRights } from "./self-review.ts";
import { factsOfNamespace, listed, type Workspaces, type WorkspacesOptions } from "./workspaces.ts";

const readyWithinMs = 20_000;
/** Refusals that a namespace may give which is not what it was when it was looked at: above all one that was deleted and made again. */
const doubtful: readonly Reason[] = [
  "PermissionDenied",
  "ServiceAccountNotFound",
  "PodSecurityRefused",
  "AdmissionRefused",
  "NamespaceTerminating",
];
/** Rights of a refusal that are named one by one; the rest is counted. */
const namedRights = 3;

/**
 * `workspace_mode = "operator"`: a workspace is the namespace of its name, if an operator has labelled or listed it. Nothing of it is made or deleted
 * here but what belongs to a sandbox, and the two NetworkPolicies.
 */
export class OperatorWorkspaces implements Workspaces {
  readonly #options: WorkspacesOptions;
  readonly #allowed: AllowedNamespaces;
  readonly #follows: PatientFollow;
  /** Where no watch shows the namespaces themselves. */
  readonly #facts = new Map<string, NamespaceFacts>();
  /** One look at a time for each namespace, whoever asks. */
  readonly #looking = new Map<string, Promise<void>>();
  /** Followed, and to be looked at again before the next sandbox is made there: no watch shows what they lack. */
  readonly #doubted = new Set<string>();

  constructor(options: WorkspacesOptions) {
    this.#options = options;
    const { settings, view, log } = options;
    this.#follows = new PatientFollow({
      attempt: (name) => this.#follow(name),
      isWanted: (name) => this.#allowed.has(name) && !view.namespaces().includes(name),
      log,
    });
    const followed = {
      ...options,
      // Sandboxes may be in it already, as when its label was put back.
      onAdded: (name: string) => {
        this.#doubted.add(name);
        void this.#follows.keep(name);
      },
      onGone: (name: string) => void view.unfollow(name),
    };
    this.#allowed =
      settings.operator_namespace_file === "" ? new LabelledNamespaces(followed) : new NamespacesFromFile(followed);
  }

  async start(signal: AbortSignal): Promise<void> {
    const { view, settings } = this.#options;
    this.#follows.start(signal);
    // Sandboxes of another mode's time live on where they are.
    await Promise.all([view.follow(settings.namespace), this.#allowed.start(signal)]);
    await Promise.all(this.#allowed.list().map((name) => this.#follows.keep(name)));
  }

  unseen(): string[] {
    const seen = this.#options.view.namespaces();
    return this.#allowed.list().filter((name) => this.#allowed.has(name) && !seen.includes(name));
  }

  refused(namespace: string, reason: Reason): void {
    if (doubtful.includes(reason) && this.#allowed.has(namespace)) this.#doubted.add(namespace);
  }

  check(workspace: string): void {
    if (this.#allowed.has(workspace)) return;
    throw new OpenShellError(
      "failed-precondition",
      this.#allowed.get(workspace) === undefined
        ? `workspace "${workspace}" has no namespace: an operator has to ${this.#allowed.remedy(workspace)}`
        : `namespace "${workspace}" of workspace "${workspace}" is being deleted`,
      { reason: "WorkspaceNotReady" },
    );
  }

  async ensure(workspace: string): Promise<string> {
    this.check(workspace);
    await this.#follow(workspace);
    return workspace;
  }

  async remove(): Promise<void> {}

  factsOf(workspace: string): NamespaceFacts {
    return this.#facts.get(workspace) ?? factsOfNamespace(this.#allowed.get(workspace));
  }

  #follow(name: string): Promise<void> {
    if (this.#options.view.namespaces().includes(name) && !this.#doubted.has(name)) return Promise.resolve();
    const known = this.#looking.get(name);
    if (known !== undefined) return known;
    const looking = this.#look(name).finally(() => this.#looking.delete(name));
    this.#looking.set(name, looking);
    return looking;
  }

  async #look(name: string): Promise<void> {
    const { client, view } = this.#options;
    const signal = deadline(readyWithinMs);
    const missing = await this.#missingIn(name, signal);
    if (missing.length > 0) {
      throw new OpenShellError(
        "failed-precondition",
        `namespace "${name}" is not ready for sandboxes; it lacks ${missing.join(", and ")}`,
        { reason: "WorkspaceNotReady" },
      );
    }
    if (this.#allowed.get(name) === undefined) {
      this.#facts.set(name, factsOfNamespace(await client.find(namespaces, undefined, name, { signal })));
    }
    await listed(view, name, signal);
    this.#doubted.delete(name);
  }

  /** Each thing that an operator has to add, in words. */
  async #missingIn(namespace: string, signal: AbortSignal): Promise<string[]> {
    const { client, gatewayId, settings } = this.#options;
    const account = settings.service_account_name;
    const [denied, found] = await Promise.all([
      deniedRights(client, operatorNamespacePermissions, gatewayId, namespace, signal),
      client.find(serviceAccounts, namespace, account, { signal }).catch((error: unknown) => {
        if (isForbidden(error)) return undefined;
        throw error;
      }),
    ]);
    const named = denied.slice(0, namedRights).join(", ");
    const more = denied.length > namedRights ? ` and ${denied.length - namedRights} more` : "";
    return [
      ...(denied.length === 0
        ? []
        : [
            `a RoleBinding of ClusterRole "${workspaceRoleName(gatewayId)}" to the gateway's ServiceAccount (it may not ${named}${more})`,
          ]),
      ...(found === undefined ? [`the ServiceAccount "${account}" (service_account_name)`] : []),
    ];
  }
}
