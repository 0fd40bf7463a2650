import { OpenShellError } from "../common/errors.ts";
import { parseQuantity } from "../config/index.ts";
import { agentSandboxGroup, agentSandboxVersions, nodes } from "../kube/index.ts";
import { type GatewayFacts, generationSettings, type SandboxSpec, sandboxResourceName } from "../manifests/index.ts";
import type { compute, Implementation } from "../wire/index.ts";
import { claimedHolder, isHolder, refused, reviewToken } from "./authenticate.ts";
import { capabilitiesOf, checkGateway } from "./capabilities.ts";
import type { Hub } from "./hub.ts";
import { masterKidOf } from "./identity.ts";
import { isEnding, isGoing, isReleased, isTerminal, type Observed, sandboxIdOf } from "./observed.ts";
import { reasonClass } from "./reasons.ts";
import { type GenerationRecord, generationIdFor, requireRoom } from "./record.ts";
import { checkStillAllowed, sandboxSpecOf, withSupervisorUid } from "./request.ts";
import { conditionsOf, remedyWithoutRecord } from "./status.ts";
import type { DriverOptions, Running } from "./types.ts";

export interface ServiceOptions {
  readonly options: DriverOptions;
  /** The cluster's clock. */
  readonly now: () => Date;
  readonly hub: Hub;
  readonly gateway: GatewayFacts;
  readonly running: () => Running;
  /** @throws unavailable where this driver may not write now */
  readonly requireLead: () => void;
  /** @throws unavailable until every sandbox of the cluster is known */
  readonly requireComplete: () => void;
}

/** The twelve calls of ComputeDriver. */
export function computeDriver({
  options,
  now,
  hub,
  gateway,
  running,
  requireLead,
  requireComplete,
}: ServiceOptions): Implementation<typeof compute.ComputeDriver> {
  const { settings } = options;
  const identityOf = (record: GenerationRecord) =>
    `kubernetes://${record.settings.namespace}/${sandboxResourceName(record.sandbox.workspace, record.sandbox.name)}/${record.generation.id}`;

  /** @throws invalid-argument when it says too much */
  const newRecord = (
    sandbox: SandboxSpec,
    namespace: string,
    generation: Omit<GenerationRecord["generation"], "foreignAffinity">,
  ): GenerationRecord => {
    const record: GenerationRecord = {
      version: 1,
      intent: "running",
      sandbox,
      settings: generationSettings({ ...settings, namespace }),
      gateway: { endpoint: gateway.endpoint, fenceTargets: gateway.fenceTargets, hasCa: gateway.hasCa },
      // What others put there is looked for when a Sandbox that is there is written.
      generation: { ...generation, foreignAffinity: {} },
      firstSession: generation.session,
      masterKid: masterKidOf(options.masterSecret),
      startedAt: now().toISOString(),
      seeded: generation.seeded,
      bindsUids: true,
    };
    requireRoom(record);
    return record;
  };

  /** A sandbox that is not seen does not exist, unless there is a place where nobody can look. */
  const unknown = (sandboxId: string): OpenShellError => {
    const unseen = running().workspaces.unseen();
    if (unseen.length === 0) {
      return new OpenShellError("not-found", `sandbox ${sandboxId} does not exist in the cluster`);
    }
    return new OpenShellError(
      "unavailable",
      `sandbox ${sandboxId} is not seen, and the sandboxes of namespace ${unseen.map((name) => `"${name}"`).join(", ")} cannot be listed now`,
      { retryAfterMs: 5_000 },
    );
  };

  /** What is not shown is not there only where somebody looks. @throws unavailable */
  const requireSeen = (namespace: string): void => {
    requireComplete();
    if (!running().workspaces.unseen().includes(namespace)) return;
    throw new OpenShellError("unavailable", `the Pods of namespace "${namespace}" cannot be listed now`, {
      retryAfterMs: 5_000,
    });
  };

  /** The sandbox, whatever its record says. @throws not-found */
  const existing = (sandboxId: string): Observed => {
    requireComplete();
    const observed = running().view.observe(sandboxId);
    if (isGoing(observed)) throw unknown(sandboxId);
    return observed;
  };

  /** The sandbox with a readable record, or the error that its caller gets. */
  const require = (request: { readonly sandboxId: string }): Observed & { readonly known: GenerationRecord } => {
    const observed = existing(request.sandboxId);
    if (observed.record?.ok !== true) {
      throw new OpenShellError(
        "failed-precondition",
        `${observed.record?.problem ?? "the sandbox has no generation record"}; ${remedyWithoutRecord}`,
        {
          reason: "RecordUnreadable",
        },
      );
    }
    return { ...observed, known: observed.record.record };
  };

  return {
    async getCapabilities({ gateway: peer }) {
      checkGateway(peer);
      return capabilitiesOf(settings, options.gateway.version);
    },

    async authenticateSandbox({ credential }, { signal }) {
      const { client, view } = running();
      // Before the API server is asked: whoever reaches the gateway's port may show made-up tokens, as many as they like.
      const claimed = claimedHolder(credential);
      const named = claimed === undefined ? undefined : view.podNamed(claimed.namespace, claimed.podName);
      if (claimed !== undefined && named === undefined) requireSeen(claimed.namespace);
      if (named === undefined || claimed === undefined || !isHolder(named, claimed)) throw refused();
      const holder = await reviewToken(
        client,
        credential,
        { gatewayId: gateway.id, namespaces: view.namespaces(), serviceAccount: settings.service_account_name },
        signal,
      );
      const pod = view.podNamed(holder.namespace, holder.podName);
      if (pod === undefined || !isHolder(pod, holder)) throw refused();
      const observed = view.observe(sandboxIdOf(pod) ?? "");
      if (observed.resource === undefined) requireSeen(holder.namespace);
      const record = observed.record?.ok === true ? observed.record.record : undefined;
      const isCurrent =
        record?.intent === "running" &&
        record.supervisorUid === holder.podUid &&
        observed.resource?.metadata.namespace === holder.namespace &&
        !isGoing(observed);
      const { cluster } = observed;
      if (!isCurrent || !isReleased(pod, record, cluster) || isTerminal(pod) || isEnding(pod, cluster)) throw refused();
      return { sandboxId: record.sandbox.id, runtimeIdentity: identityOf(record) };
    },

    async validateSandboxCreate({ sandbox }) {
      await checkGpus(checkedSpec(sandbox, options, running()), running());
      return {};
    },

    async getSandbox({ sandboxId }) {
      requireComplete();
      const sandbox = hub.get(sandboxId);
      if (sandbox === undefined) throw unknown(sandboxId);
      return { sandbox };
    },

    async listSandboxes() {
      requireComplete();
      return { sandboxes: hub.list() };
    },

    async createSandbox({ sandbox }) {
      requireLead();
      const { view, executor, reconciler, workspaces } = running();
      const first = checkedSpec(sandbox, options, running());
      const existing = view.observe(first.id);
      if (existing.record?.ok === true && !isGoing(existing))
        return { runtimeIdentity: identityOf(existing.record.record) };
      const api = view.api;
      if (api === undefined) throw noAgentSandboxApi();
      await checkGpus(first, running());
      const namespace = await workspaces.ensure(first.workspace);
      // What is known of a namespace only now that it is there.
      const spec = checkedSpec(sandbox, options, running());
      const id = generationIdFor(spec.id, "");
      const record = newRecord(spec, namespace, { id, session: 1, seeded: false });
      const created = await reconciler.create(record, () => executor.createResource(record, api));
      return { runtimeIdentity: identityOf(created) };
    },

    async startSandbox(request) {
      requireLead();
      const { reconciler, workspaces } = running();
      const { known, ...observed } = require(request);
      // One that is said to have failed, or is to stop, is over, though its record may say so only in a moment.
      const hasFailed = conditionsOf(observed).some(({ reason }) => reasonClass(reason) === "failed");
      const isOver = hasFailed || reconciler.isStopping(known.sandbox.id);
      const id = generationIdFor(known.sandbox.id, request.generationId);
      // One that runs is gone on with where the caller asked for it, now or before; any other was put there by somebody else.
      const { expectedRuntimeIdentity: expected } = request;
      const isAsked = id === known.generation.id || expected === "" || expected === identityOf(known);
      if (known.intent === "running" && !isOver && isAsked) return { runtimeIdentity: identityOf(known) };
      // A retry of a start that failed after the CR ran is a new generation all the same: Secrets and Pods of an id are made once.
      const generationId = id === known.generation.id ? generationIdFor(known.sandbox.id, "") : id;
      checkStillAllowed(known.sandbox, options.settings);
      checkClasses(known.sandbox, options, running());
      const sandbox = withSupervisorUid(known.sandbox, settings, workspaces.factsOf(known.sandbox.workspace));
      const started = await reconciler.startGeneration(
        newRecord(sandbox, known.settings.namespace, {
          id: generationId,
          session: known.generation.session + 1,
          seeded: known.seeded,
        }),
      );
      return { runtimeIdentity: identityOf(started) };
    },

    async stopSandbox(request) {
      requireLead();
      // Also one whose record cannot be read: what nobody can vouch for can be ended all the same.
      existing(request.sandboxId);
      await running().reconciler.stopGeneration(request.sandboxId);
      return {};
    },

    async deleteSandbox({ sandboxId }) {
      requireLead();
      requireComplete();
      const { view, executor, reconciler, workspaces } = running();
      let observed = view.observe(sandboxId);
      if (observed.resource === undefined) {
        if (observed.workloads.length + observed.supervisors.length > 0) return { deleted: true };
        if (workspaces.unseen().length > 0) throw unknown(sandboxId);
        // Whoever hears that there is nothing forgets it: a watch that is late must not show it afterwards.
        if (view.api !== undefined) await executor.findResources(sandboxId, view.namespaces(), view.api);
        observed = view.observe(sandboxId);
        if (observed.resource === undefined) return { deleted: false };
      }
      await executor.deleteResource(observed);
      reconciler.wake(sandboxId);
      return { deleted: true };
    },

    async *watchSandboxes(_request, { signal }) {
      requireComplete();
      yield* hub.watch(signal);
    },

    async ensureWorkspace({ workspace }) {
      requireLead();
      await running().workspaces.ensure(workspace);
      return {};
    },

    async deleteWorkspace({ workspace }, { signal }) {
      requireLead();
      requireComplete();
      const left = hub.list().filter((sandbox) => sandbox.workspace === workspace);
      if (left.length > 0) {
        throw new OpenShellError(
          "failed-precondition",
          `workspace "${workspace}" still has ${left.length} sandboxes; delete them first`,
        );
      }
      await running().workspaces.remove(workspace, signal);
      return {};
    },
  };
}

/** Everything that can be said before anything is made, and without a read. */
function checkedSpec(
  sandbox: compute.DriverSandbox | undefined,
  options: DriverOptions,
  running: Running,
): SandboxSpec {
  if (sandbox === undefined) throw new OpenShellError("invalid-argument", "sandbox is missing");
  const spec = sandboxSpecOf(sandbox, options.settings, running.workspaces.factsOf(sandbox.workspace));
  running.workspaces.check(spec.workspace);
  if (running.view.api === undefined) throw noAgentSandboxApi();
  checkClasses(spec, options, running);
  return spec;
}

function checkClasses(spec: SandboxSpec, { settings }: DriverOptions, { view }: Running): void {
  const facts = view.facts();
  const runtimeClasses = [
    spec.runtimeClassName || settings.default_runtime_class_name,
    settings.supervisor_runtime_class_name,
  ];
  for (const name of runtimeClasses) {
    if (name === "" || facts.runtimeClass(name) !== undefined) continue;
    throw new OpenShellError("failed-precondition", `RuntimeClass "${name}" does not exist in the cluster`, {
      reason: "RuntimeClassNotFound",
    });
  }
  const priorityClasses = [
    spec.priorityClassName || settings.workload_priority_class_name,
    settings.supervisor_priority_class_name,
  ];
  for (const name of priorityClasses) {
    if (name === "" || facts.priorityClass(name) !== undefined) continue;
    throw new OpenShellError("failed-precondition", `PriorityClass "${name}" does not exist in the cluster`, {
      reason: "PriorityClassNotFound",
    });
  }
}

/** Only a sandbox that asks for GPUs costs a read. */
async function checkGpus(spec: SandboxSpec, { client }: Running): Promise<void> {
  const gpus = Object.entries(spec.gpus);
  if (gpus.length === 0) return;
  const { items } = await client.list(nodes, undefined);
  for (const [name, asked] of gpus) {
    // 1000 is written "1k".
    const counts = items.map((node) => parseQuantity(node.status?.allocatable?.[name] ?? "0") / parseQuantity("1"));
    const most = Math.max(0, ...counts.map(Number));
    if (most >= asked) continue;
    throw new OpenShellError(
      "failed-precondition",
      `no node has ${asked} ${name}; the most that one node has is ${most}`,
      { reason: "NoGpu" },
    );
  }
}

export function noAgentSandboxApi(): OpenShellError {
  const served = agentSandboxVersions.map((version) => `sandboxes.${agentSandboxGroup}/${version}`).join(" or ");
  return new OpenShellError(
    "unavailable",
    `the cluster does not serve ${served}; install Agent Sandbox (its CRDs and its controller). The driver looks again by itself`,
    { reason: "AgentSandboxUnavailable", retryAfterMs: 5_000 },
  );
}
