import { OpenShellError } from "../../../src/common/errors.ts";
import type { Logger } from "../../../src/common/log.ts";
import {
  type AgentSandbox,
  type AgentSandboxVersion,
  Informer,
  isNotFound,
  type KubeClient,
  type KubeObject,
  kubeStatusOf,
  type Live,
  persistentVolumeClaims,
  pods,
  type Resource,
  sandboxes,
  services,
  WorkQueue,
} from "../../../src/kube/index.ts";
import { forgetAfterMs, Known } from "./known.ts";
import { nameHashLabel, podNameAnnotation } from "./names.ts";
import { claimName, controllerOf } from "./objects.ts";
import { perform } from "./perform.ts";
import { type Action, type Observed, plan } from "./plan.ts";
import { differs, statusOf } from "./status.ts";

export interface ControllerOptions {
  readonly client: KubeClient;
  readonly version: AgentSandboxVersion;
  readonly log: Logger;
}

/** Passes over one sandbox before it is left to the watch: a create, what follows from it, and one to see the end. */
const maxPasses = 4;
/** An armed expiry does not fire sooner than this. */
const minExpiryMs = 2_000;

/** Brings every Sandbox of the cluster to its Pod, its claims, its Service and its status. */
export class AgentSandboxController implements AsyncDisposable {
  /** Resolves when the controller knows the cluster and works. */
  readonly ready: Promise<void>;
  readonly #client: KubeClient;
  readonly #log: Logger;
  readonly #resource: Resource<AgentSandbox>;
  readonly #sandboxes;
  readonly #pods;
  readonly #claims;
  readonly #services;
  readonly #queue: WorkQueue;
  readonly #stop = new AbortController();

  constructor({ client, version, log }: ControllerOptions) {
    this.#client = client;
    this.#log = log;
    this.#resource = sandboxes(version);
    this.#queue = new WorkQueue({
      reconcile: (key) => this.#reconcile(key),
      concurrency: 8,
      // As published: 5 ms doubling to 1000 s, and not woken when the cause goes.
      backoff: { initialMs: 5, maxMs: 1_000_000, random: () => 1 },
      onError: (key, error, failures) =>
        log[failures === 1 ? "warn" : "debug"]({ sandbox: key, failures, err: error }, "will be tried again"),
      signal: this.#stop.signal,
    });
    const inform = <T extends KubeObject>(resource: Resource<T>): Informer<T> =>
      new Informer({
        client,
        resource,
        signal: this.#stop.signal,
        onError: (error) => log.warn({ err: error, resource: resource.plural }, "watch failed"),
      });
    this.#sandboxes = new Known(inform(this.#resource));
    this.#pods = new Known(inform(pods));
    this.#pods.informer.addIndex("owner", (pod) => [`${pod.metadata.namespace}/${controllerOf(pod)?.uid}`]);
    this.#claims = new Known(inform(persistentVolumeClaims));
    this.#services = new Known(inform(services));
    this.ready = this.#start();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#queue.stop();
    await Promise.all(
      [this.#sandboxes.informer, this.#pods.informer, this.#claims.informer, this.#services.informer].map((i) =>
        i.stop(),
      ),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #start(): Promise<void> {
    const informers = [this.#sandboxes.informer, this.#pods.informer, this.#claims.informer, this.#services.informer];
    await Promise.all(informers.map((informer) => informer.synced));
    for (const { metadata } of this.#sandboxes.informer.list())
      this.#queue.add(`${metadata.namespace}/${metadata.name}`);
    this.#sandboxes.informer.on("changed", ({ metadata }) => this.#queue.add(`${metadata.namespace}/${metadata.name}`));
    this.#pods.informer.on("changed", (pod, previous) => this.#wake(pod, previous));
    this.#services.informer.on("changed", (service, previous) => this.#wake(service, previous));
  }

  /** Wakes the sandbox an object belongs to. Without the tracking label the published controller is blind to it, too. */
  #wake(object: Live<KubeObject>, previous: Live<KubeObject> | undefined): void {
    for (const { metadata } of previous ? [object, previous] : [object]) {
      if (metadata.labels?.[nameHashLabel] === undefined) return;
      const owner = metadata.ownerReferences?.find((each) => each.controller);
      if (owner === undefined || owner.kind === "Sandbox") {
        this.#queue.add(`${metadata.namespace}/${owner?.name ?? metadata.name}`);
      }
    }
    // A sandbox whose Pod's name is taken waits for that name.
    if (this.#sandboxes.informer.get(object.metadata.namespace, object.metadata.name)) {
      this.#queue.add(`${object.metadata.namespace}/${object.metadata.name}`);
    }
  }

  async #reconcile(key: string): Promise<number | undefined> {
    const [namespace = "", name = ""] = key.split("/");
    // What is gone for the watch is gone, though the answer to a late write of ours still says otherwise.
    const sandbox = this.#sandboxes.informer.get(namespace, name) && this.#sandboxes.get(namespace, name);
    if (!sandbox || sandbox.metadata.deletionTimestamp) return undefined;
    let observed = this.#observe(sandbox);
    let errors: string[] = [];
    let hasCreated = false;
    for (let pass = 0; pass < maxPasses; pass += 1) {
      const { actions, errors: obstacles } = plan(observed);
      errors = [...obstacles];
      if (actions.length === 0) break;
      for (const action of actions) {
        try {
          observed = await this.#perform(observed, action);
          hasCreated ||= action.do.startsWith("create");
        } catch (error) {
          // The sandbox itself is gone: nothing is left to say it to.
          if (isNotFound(error) && action.do === "set pod name") return undefined;
          errors.push(kubeStatusOf(error)?.message ?? String(error));
        }
      }
      // The MultiplePods warning changes nothing that another pass would see.
      if (errors.length > 0 || actions.every((action) => action.do === "warn")) break;
    }
    await this.#writeStatus(observed, errors);
    // The condition has the text by now; this makes the queue try again later.
    if (errors.length > 0) throw new OpenShellError("failed-precondition", errors.join("; "));
    return nextPass(observed, hasCreated);
  }

  #observe(sandbox: Live<AgentSandbox>): Observed {
    const { namespace = "", name, uid, annotations = {} } = sandbox.metadata;
    const owned = this.#pods.by("owner", `${namespace}/${uid}`, (pod) => controllerOf(pod)?.uid === uid);
    const named = [annotations[podNameAnnotation], name].flatMap((each) =>
      each ? (this.#pods.get(namespace, each) ?? []) : [],
    );
    const templates = sandbox.spec.volumeClaimTemplates ?? [];
    return {
      sandbox,
      pods: [...new Map([...owned, ...named].map((pod) => [pod.metadata.uid, pod])).values()],
      claims: templates.flatMap((template) => this.#claims.get(namespace, claimName(template, sandbox)) ?? []),
      service: this.#services.get(namespace, name),
      now: new Date(),
    };
  }

  async #perform(observed: Observed, action: Action): Promise<Observed> {
    const after = await perform(this.#client, this.#resource, observed, action);
    const name = observed.sandbox.metadata.name;
    this.#log.debug({ sandbox: `${observed.sandbox.metadata.namespace}/${name}`, action: action.do }, "done");
    // What a write answered is known before the watch tells of it. A deletion is not a write of the object.
    if (action.do === "delete") return after;
    for (const pod of after.pods) if (!observed.pods.includes(pod)) this.#pods.wrote(pod);
    for (const claim of after.claims) if (!observed.claims.includes(claim)) this.#claims.wrote(claim);
    if (after.service && after.service !== observed.service) this.#services.wrote(after.service);
    if (after.sandbox !== observed.sandbox) this.#sandboxes.wrote(after.sandbox);
    return after;
  }

  async #writeStatus(observed: Observed, errors: readonly string[]): Promise<void> {
    const { sandbox } = observed;
    const status = statusOf(observed, errors);
    if (status === undefined || !differs(sandbox, status)) return;
    const absent = { podIPs: null, nodeName: null, selector: null, service: null, serviceFQDN: null };
    const body = { status: { ...absent, ...status } };
    const { namespace, name } = sandbox.metadata;
    const options = { subresource: "status", fieldManager: "agent-sandbox-controller" };
    try {
      this.#sandboxes.wrote(
        await this.#client.patch(this.#resource, namespace, name, { type: "merge", body }, options),
      );
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }
}

/** Milliseconds until the sandbox has to be looked at without anything having happened. */
function nextPass({ sandbox, now }: Observed, hasCreated: boolean): number | undefined {
  const { shutdownTime } = sandbox.spec;
  const untilExpiry = shutdownTime === undefined ? Number.NaN : Date.parse(shutdownTime) - now.getTime();
  const waits = [
    ...(untilExpiry > 0 ? [Math.max(untilExpiry, minExpiryMs)] : []),
    // In case that what was made went again before the watch had told of it.
    ...(hasCreated ? [forgetAfterMs + 1_000] : []),
  ];
  return waits.length === 0 ? undefined : Math.min(...waits);
}
