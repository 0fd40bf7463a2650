import {
  type AgentSandbox,
  type AgentSandboxVersion,
  events,
  type Informer,
  type Informers,
  type KubeEvent,
  type NetworkPolicy,
  networkPolicies,
  type Pod,
  pods,
  type Service,
  sandboxes,
  services,
} from "../kube/index.ts";
import { labels } from "../manifests/index.ts";

/** The watches of one namespace: one for each kind, for all sandboxes in it. */
export class NamespaceView {
  readonly name: string;
  readonly pods: Informer<Pod>;
  readonly services: Informer<Service>;
  readonly policies: Informer<NetworkPolicy>;
  readonly events: Informer<KubeEvent>;
  readonly #informers: Informers;
  readonly #ours: { readonly namespace: string; readonly labelSelector: string };
  readonly #apis = new Set<AgentSandboxVersion>();
  #sandboxes: { readonly api: AgentSandboxVersion; readonly informer: Informer<AgentSandbox> } | undefined;

  constructor(informers: Informers, name: string, gatewayId: string) {
    this.name = name;
    this.#informers = informers;
    this.#ours = { namespace: name, labelSelector: `${labels.gatewayId}=${gatewayId}` };
    this.pods = informers.of(pods, this.#ours);
    this.services = informers.of(services, this.#ours);
    this.policies = informers.of(networkPolicies, { namespace: name });
    this.events = informers.of(events, { namespace: name });
  }

  get api(): AgentSandboxVersion | undefined {
    return this.#sandboxes?.api;
  }

  get sandboxes(): Informer<AgentSandbox> | undefined {
    return this.#sandboxes?.informer;
  }

  /** The resource version up to which the watch of a kind has come. */
  progressOf(plural: string): string | undefined {
    return [this.pods, this.services, this.sandboxes].find((informer) => informer?.resource.plural === plural)
      ?.resourceVersion;
  }

  /** A watch of the Sandboxes in a served version; it takes the former one's place by `adopt`. */
  sandboxesIn(api: AgentSandboxVersion): Informer<AgentSandbox> {
    this.#apis.add(api);
    return this.#informers.of(sandboxes(api), this.#ours);
  }

  /** Only one that has listed may be adopted: until then every Sandbox would look gone. */
  async adopt(api: AgentSandboxVersion): Promise<void> {
    const before = this.#sandboxes;
    if (before?.api === api) return;
    this.#sandboxes = { api, informer: this.sandboxesIn(api) };
    if (before === undefined) return;
    this.#apis.delete(before.api);
    await this.#informers.stop(sandboxes(before.api), this.#ours);
  }

  /** Resolves when everything but the Sandboxes has had its first list. */
  async synced(): Promise<void> {
    await Promise.all([this.pods, this.services, this.policies, this.events].map(({ synced }) => synced));
  }

  async stop(): Promise<void> {
    const { name: namespace } = this;
    await Promise.all([
      this.#informers.stop(pods, this.#ours),
      this.#informers.stop(services, this.#ours),
      this.#informers.stop(networkPolicies, { namespace }),
      this.#informers.stop(events, { namespace }),
      ...[...this.#apis].map((api) => this.#informers.stop(sandboxes(api), this.#ours)),
    ]);
  }
}
