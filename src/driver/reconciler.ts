import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type ErrorCode, OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { type Live, type Pod, WorkQueue } from "../kube/index.ts";
import { labels, sandboxResourceName } from "../manifests/index.ts";
import { compute } from "../wire/index.ts";
import type { Action } from "./action.ts";
import { classMade } from "./class-made.ts";
import type { ClusterView } from "./cluster-view.ts";
import type { Executor } from "./execute.ts";
import type { Hub } from "./hub.ts";
import { leadsNoMore } from "./leading-client.ts";
import { keepToLivingPods, type Memory, newMemory } from "./memory.ts";
import { currentWorkload, isGoing, isRunning, type Observed, supervisorOf } from "./observed.ts";
import { plan } from "./plan.ts";
import { type NodeRefusal, type StartTrouble, warningOf } from "./platform-events.ts";
import { disruptionOf, troubleOf } from "./pod-trouble.ts";
import type { Reason } from "./reasons.ts";
import type { Failure, GenerationRecord } from "./record.ts";
import { isRefusal, writeFailure } from "./refusal.ts";
import { lossOf, type SupervisorLoss } from "./replacement.ts";
import { mostRestorations } from "./restore-labels.ts";
import { lostBefore, waitingSession } from "./session-of.ts";
import { type Condition, conditionsOf } from "./status.ts";

export interface ReconcilerOptions {
  readonly view: ClusterView;
  readonly executor: Executor;
  readonly hub: Hub;
  readonly gatewayId: string;
  readonly log: Logger;
  readonly now: () => Date;
  /** The cluster refused an object of a sandbox in a namespace. */
  readonly onRefused?: (namespace: string, reason: Reason) => void;
  /** For metrics: the next supervisor of a workload that runs was made. */
  readonly onReplacement?: (cause: SupervisorLoss) => void;
  /** For metrics: a reconcile of a sandbox is over, well or not. */
  readonly onReconciled?: (seconds: number) => void;
  /** For tests: one round of writes of a sandbox. */
  readonly onRound?: (sandboxId: string, actions: readonly Action[]) => void;
}

/**
 * Sandboxes worked on at a time. Nearly all of that is waiting for answers, so that fewer would make a slow API server (2 s for an answer,
 * measured) the measure of how many sandboxes come up; it is as many as the client has connections.
 */
const concurrency = 64;

/** Writes that follow from each other are made in one pass; more rounds than this are a plan that never ends. */
const maxRounds = 12;

/** Brings every sandbox to what its record, or a caller's request, says. One sandbox is worked on by one pass at a time. */
export class Reconciler {
  readonly #options: ReconcilerOptions;
  readonly #memory = new Map<string, Memory>();
  #queue: WorkQueue | undefined;

  constructor(options: ReconcilerOptions) {
    this.#options = options;
  }

  /** Begins to write. Others may have written meanwhile, if it did before. */
  start(signal: AbortSignal): void {
    for (const memory of this.#memory.values()) {
      memory.rendered = {};
      memory.lastSupervisor = undefined;
    }
    this.#queue = new WorkQueue({
      reconcile: (id, lost) => this.#timedReconcile(id, lost),
      concurrency,
      signal,
      onError: (sandbox, error, failures) => {
        this.#options.log.warn({ sandbox, err: error, failures }, "reconcile failed; trying again");
      },
    });
    for (const id of this.#options.view.sandboxIds()) this.#queue.add(id);
  }

  /** Ends writing. Nobody is left waiting for what only a writer can do: the callers may ask again. */
  async stop(): Promise<void> {
    const queue = this.#queue;
    this.#queue = undefined;
    await queue?.stop();
    const error = leadsNoMore();
    for (const memory of this.#memory.values()) {
      memory.creating?.reject(error);
      memory.request?.done.reject(error);
      memory.creating = undefined;
      memory.request = undefined;
    }
  }

  get depth(): number {
    return this.#queue?.depth ?? 0;
  }

  /** Something about the sandbox changed. */
  wake(sandboxId: string): void {
    if (this.#queue === undefined) this.publish(sandboxId);
    else this.#queue.add(sandboxId);
  }

  /** Resolves when the CR, Service and supervisor of a new sandbox are accepted and the CR runs. A second call meanwhile joins the first. */
  async create(record: GenerationRecord, makeResource: () => Promise<void>): Promise<GenerationRecord> {
    const memory = this.#memoryOf(record.sandbox.id);
    if (memory.creating !== undefined) return await memory.creating.promise;
    const creating: NonNullable<Memory["creating"]> = Promise.withResolvers<GenerationRecord>();
    creating.promise.catch(() => undefined);
    memory.creating = creating;
    // No other process makes a generation of this id.
    memory.rendered = { workload: record.generation.id };
    try {
      await makeResource();
      creating.isMade = true;
      this.wake(record.sandbox.id);
    } catch (error) {
      if (memory.creating === creating) memory.creating = undefined;
      const refused = writeFailure("the Sandbox", error);
      if (refused !== undefined) this.#options.onRefused?.(record.settings.namespace, refused.reason);
      creating.reject(refused === undefined ? error : errorOf(refused));
      // Of what was never made nothing is remembered.
      this.publish(record.sandbox.id);
    }
    return await creating.promise;
  }

  /** Resolves when the new generation's CR runs. A second call meanwhile joins the first. */
  async startGeneration(record: GenerationRecord): Promise<GenerationRecord> {
    const memory = this.#memoryOf(record.sandbox.id);
    const { request } = memory;
    if (request?.kind === "start") return await request.done.promise;
    request?.done.reject(new OpenShellError("aborted", "a start came after this stop"));
    const done = Promise.withResolvers<GenerationRecord>();
    done.promise.catch(() => undefined);
    memory.request = { kind: "start", record, done };
    this.wake(record.sandbox.id);
    return await done.promise;
  }

  /** A stop was asked for, and its CR is not known to be suspended yet. */
  isStopping(sandboxId: string): boolean {
    return this.#memory.get(sandboxId)?.request?.kind === "stop";
  }

  /** Resolves when the CR is suspended. */
  async stopGeneration(sandboxId: string): Promise<void> {
    const memory = this.#memoryOf(sandboxId);
    if (memory.request?.kind === "stop") {
      await memory.request.done.promise;
      return;
    }
    memory.request?.done.reject(new OpenShellError("aborted", "a stop came after this start"));
    const done = Promise.withResolvers<void>();
    done.promise.catch(() => undefined);
    memory.request = { kind: "stop", done };
    this.wake(sandboxId);
    await done.promise;
  }

  /** A node says so of a Pod. Whether it is still true is not known: an event is shown for an hour. */
  secretIsMissing(sandboxId: string, podUid: string): void {
    this.#memoryOf(sandboxId).missingSecrets.add(podUid);
    this.wake(sandboxId);
  }

  /** A node says so of a Pod, which has no other one to go to. */
  nodeRefuses(sandboxId: string, { podUid, what }: NodeRefusal): void {
    this.#memoryOf(sandboxId).nodeRefusals.set(podUid, what);
    this.wake(sandboxId);
  }

  /** Said of a Pod, which may still be started. Events come in no order: the latest counts. */
  cannotStartYet(sandboxId: string, trouble: StartTrouble): void {
    const { startTroubles } = this.#memoryOf(sandboxId);
    if ((startTroubles.get(trouble.podUid)?.atMs ?? 0) > trouble.atMs) return;
    startTroubles.set(trouble.podUid, trouble);
    this.wake(sandboxId);
  }

  /** Nothing is left of a Pod, which was last seen like this. What follows from it is done later, and is told with why it ended. */
  podIsGone(sandboxId: string, pod: Live<Pod>): void {
    const memory = this.#memory.get(sandboxId);
    if (memory !== undefined && lossOf(pod) !== "deleted") memory.troubled = [pod, ...memory.troubled].slice(0, 4);
  }

  /** Tells watchers how the sandbox stands. */
  publish(sandboxId: string): void {
    const { hub, view } = this.#options;
    if (view.api === undefined) return;
    const observed = view.observe(sandboxId);
    const isGone = observed.resource === undefined && observed.workloads.length + observed.supervisors.length === 0;
    if (!isGone) {
      hub.publish(this.#sandboxOf(observed));
      return;
    }
    const memory = this.#memory.get(sandboxId);
    // It is not there yet.
    if (memory?.creating !== undefined && !memory.creating.isMade) return;
    hub.remove(sandboxId);
    view.forget(sandboxId);
    const gone = new OpenShellError("not-found", `sandbox ${sandboxId} was deleted`);
    memory?.creating?.reject(gone);
    memory?.request?.done.reject(gone);
    this.#memory.delete(sandboxId);
  }

  async #timedReconcile(sandboxId: string, lost: AbortSignal): Promise<number | undefined> {
    const begin = performance.now();
    try {
      return await this.#reconcile(sandboxId, lost);
    } finally {
      this.#options.onReconciled?.((performance.now() - begin) / 1000);
    }
  }

  /** @param lost aborts when another driver may write */
  async #reconcile(sandboxId: string, lost: AbortSignal): Promise<number | undefined> {
    this.publish(sandboxId);
    const { view, executor, gatewayId, onRound, onRefused } = this.#options;
    for (let round = 0; round < maxRounds; round += 1) {
      if (lost.aborted) return undefined;
      const memory = this.#memoryOf(sandboxId);
      const observed = view.observe(sandboxId);
      this.#settle(observed, memory);
      keepToLivingPods(memory, observed);
      const { actions, againAfterMs } = plan(observed, { gatewayId, ...memory });
      if (actions.length === 0) {
        this.publish(sandboxId);
        return againAfterMs;
      }
      // Once it is asked for, what was seen before says nothing of it any more.
      if (actions.some((action) => action.do === "release" && action.role === "supervisor")) {
        memory.lastSupervisor = undefined;
      }
      onRound?.(sandboxId, actions);
      const outcomes = await Promise.allSettled(actions.map((action) => executor.perform(action, observed, memory)));
      const failures = outcomes.map((outcome) => (outcome.status === "fulfilled" ? outcome.value : undefined));
      actions.forEach((action, index) => {
        const isDone = outcomes[index]?.status === "fulfilled" && failures[index] === undefined;
        if (isDone) this.#tellReplacement(action, observed, memory);
        if (isDone && action.do === "restore-labels" && !view.overlay.isGone(action.metadata.uid)) {
          const { uid } = action.metadata;
          const times = [...(memory.restored.get(uid) ?? []), this.#options.now().getTime()];
          memory.restored.set(uid, times.slice(-mostRestorations));
          this.#tellTampering(sandboxId, action);
        }
        if (isDone && action.do === "write-secret") {
          const { metadata } = action.pod;
          memory.missingSecrets.delete(metadata.uid);
          // A Secret is written behind our gate when the Pod is what was asked for; of a released one it says nothing.
          if (action.ifMissing === undefined) memory.verified.set(metadata.uid, classMade(action.pod));
        }
        if (isDone && waitingSession(action, observed) !== undefined) memory.refusedReplacement = undefined;
      });
      const failure = failures.find(
        (one, index) => one !== undefined && !this.#waits(actions[index], one, observed, memory),
      );
      for (const refused of failures) {
        if (refused !== undefined) onRefused?.(observed.resource?.metadata.namespace ?? "", refused.reason);
      }
      if (failure !== undefined && !lost.aborted) await this.#fail(view.observe(sandboxId), memory, failure);
      const broken = outcomes.find((outcome) => outcome.status === "rejected");
      if (failure === undefined && broken !== undefined) throw broken.reason;
    }
    throw new OpenShellError(
      "internal",
      `the plan of sandbox ${sandboxId} did not come to an end in ${maxRounds} rounds`,
    );
  }

  /** Labels decide which policies select a Pod, so that somebody changed them is worth more than a line in our log. */
  #tellTampering(
    sandboxId: string,
    { kind, metadata, labels: wanted }: Extract<Action, { do: "restore-labels" }>,
  ): void {
    this.#options.hub.platformEvent(
      sandboxId,
      warningOf({
        at: this.#options.now(),
        reason: "LabelsTampered",
        message: `somebody changed ${Object.keys(wanted).join(", ")} of ${kind} ${metadata.name}; put back`,
        kind,
        name: metadata.name,
      }),
    );
  }

  /**
   * Takes note of a refusal that ends nothing: that of a supervisor whose workload runs, of its Secret, or of its release. The plan asks
   * again within the window.
   */
  #waits(action: Action | undefined, failure: Failure, observed: Observed, memory: Memory): boolean {
    const of = action && waitingSession(action, observed);
    if (of === undefined) return false;
    // What admission makes of a Pod in its release it would make of the next one.
    if (action?.do === "release" && !isRefusal(failure)) return false;
    const at = this.#options.now().getTime();
    const since = memory.refusedReplacement?.of === of ? memory.refusedReplacement.since : at;
    memory.refusedReplacement = { of, since, at, failure };
    return true;
  }

  #tellReplacement(action: Action, observed: Observed, { troubled }: Memory): void {
    const former = lostBefore(action, observed);
    if (former === undefined) return;
    const lost = supervisorOf({ ...observed, supervisors: [...observed.supervisors, ...troubled] }, former);
    const cause = lossOf(lost);
    this.#options.onReplacement?.(cause);
    // Its Pod goes, and with it all that else says why.
    const why = lost && (disruptionOf(lost) ?? troubleOf(lost))?.message;
    this.#options.log.info({ sandbox: observed.sandboxId, cause, why }, "a supervisor was lost and is replaced");
  }

  /** A refusal before the CR ran leaves nothing behind and is the caller's answer; a later one is the generation's end. */
  async #fail(observed: Observed, memory: Memory, failure: Failure): Promise<void> {
    const { executor } = this.#options;
    const { creating, request } = memory;
    if (creating !== undefined && observed.resource !== undefined && !isRunning(observed.resource)) {
      await executor.deleteResource(observed);
      memory.creating = undefined;
      creating.reject(errorOf(failure));
      return;
    }
    if (request?.kind === "start") {
      memory.request = undefined;
      request.done.reject(errorOf(failure));
      return;
    }
    if (observed.record?.ok !== true) return;
    const ended: GenerationRecord = { ...observed.record.record, intent: "failed", failure, supervisorUid: undefined };
    await executor.perform({ do: "suspend", record: ended }, observed, memory);
  }

  /** Answers callers whose wish has come true. */
  #settle(observed: Observed, memory: Memory): void {
    const { resource, record } = observed;
    if (resource === undefined || observed.departed.has(resource.metadata.uid)) return;
    const { creating, request } = memory;
    const isStopped = record?.ok !== true || record.record.intent === "stopped";
    if (request?.kind === "stop" && isStopped && !isRunning(resource)) {
      memory.request = undefined;
      request.done.resolve();
    }
    if (record?.ok !== true) return;
    if (creating !== undefined && (isRunning(resource) || record.record.intent !== "running")) {
      memory.creating = undefined;
      if (record.record.failure === undefined) creating.resolve(record.record);
      else creating.reject(errorOf(record.record.failure));
    }
    if (
      request?.kind === "start" &&
      isRunning(resource) &&
      record.record.generation.id === request.record.generation.id
    ) {
      memory.request = undefined;
      request.done.resolve(record.record);
    }
  }

  #sandboxOf(observed: Observed): compute.DriverSandbox {
    const { sandboxId, resource, workloads, supervisors, now } = observed;
    const record = observed.record?.ok === true ? observed.record.record : undefined;
    const known = this.#options.hub.get(sandboxId);
    const any = resource ?? workloads[0] ?? supervisors[0];
    const workload = record && currentWorkload(observed, record);
    return create(compute.DriverSandboxSchema, {
      id: sandboxId,
      name: record?.sandbox.name ?? known?.name ?? "",
      namespace: any?.metadata.namespace ?? "",
      workspace: record?.sandbox.workspace ?? any?.metadata.labels?.[labels.workspace] ?? "",
      status: {
        name: record ? sandboxResourceName(record.sandbox.workspace, record.sandbox.name) : (known?.status?.name ?? ""),
        instanceId: workload?.metadata.uid ?? "",
        conditions: this.#timed(sandboxId, conditionsOf(observed, this.#memory.get(sandboxId)), now),
        deleting: isGoing(observed),
        ...(record && { resolvedIdentity: { uid: record.sandbox.uid, gid: record.sandbox.gid, source: "driver" } }),
      },
    });
  }

  /** The time at which a condition came to say what it says. */
  #timed(sandboxId: string, conditions: readonly Condition[], now: Date) {
    const { changedAt } = this.#memoryOf(sandboxId);
    return conditions.map((condition) => {
      const text = JSON.stringify(condition);
      const before = changedAt.get(condition.type);
      const at = before?.text === text ? before.at : now;
      changedAt.set(condition.type, { text, at });
      return { ...condition, transitionTime: timestampFromDate(at) };
    });
  }

  #memoryOf(sandboxId: string): Memory {
    const known = this.#memory.get(sandboxId);
    if (known !== undefined) return known;
    const memory = newMemory();
    this.#memory.set(sandboxId, memory);
    return memory;
  }
}

const codes: Partial<Record<Reason, ErrorCode>> = {
  QuotaExceeded: "resource-exhausted",
  LimitRangeRefused: "failed-precondition",
  NameTaken: "already-exists",
  InvalidPod: "invalid-argument",
};

function errorOf({ reason, message }: Failure): OpenShellError {
  return new OpenShellError(codes[reason] ?? "failed-precondition", message, { reason });
}
