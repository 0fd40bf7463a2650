import { create, equals } from "@bufbuild/protobuf";
import { OpenShellError } from "../../common/errors.ts";
import { type compute, openshell } from "../../wire/index.ts";
import { noSession, type SessionView } from "../sessions/view.ts";
import type { SandboxRecord } from "../store/sandboxes.ts";
import type { Store } from "../store/store.ts";
import { type ClassifyReason, driverView } from "./driver-state.ts";
import { SandboxHub } from "./hub.ts";
import {
  created,
  failed,
  failedInDriver,
  found,
  hasBegunToServe,
  hasServed,
  isStarted,
  type Lifecycle,
  vanished,
} from "./lifecycle.ts";
import { type DerivedStatus, deriveStatus } from "./status.ts";

export interface SandboxesOptions {
  readonly store: Store;
  readonly classify: ClassifyReason;
  /** Milliseconds since 1970. @default Date.now */
  readonly now?: () => number;
}

/**
 * All sandboxes: the stored record joined with what the driver and the supervisor say. Every change goes through here, so that status,
 * resource version and watchers never disagree.
 */
export class Sandboxes {
  readonly hub = new SandboxHub();
  readonly #store: Store;
  readonly #classify: ClassifyReason;
  readonly #now: () => number;
  readonly #driver = new Map<string, compute.DriverSandboxStatus | "gone">();
  readonly #sessions = new Map<string, SessionView>();
  readonly #beingCreated = new Set<string>();
  #onChange: (record: SandboxRecord) => void = () => {};
  #onRemoved: (id: string) => void = () => {};

  constructor(options: SandboxesOptions) {
    this.#store = options.store;
    this.#classify = options.classify;
    this.#now = options.now ?? Date.now;
    // Releases that did not write down which run has served left its status alone.
    const unmarked: SandboxRecord[] = [];
    for (const record of this.all()) {
      if (!hasServed(record.lifecycle) && serves(record.object.status)) unmarked.push(record);
    }
    for (const record of unmarked) {
      this.#store.sandboxes.update(record, record.object, hasBegunToServe(record.lifecycle));
    }
  }

  /** Who brings the driver closer to what is wanted; told after every change of a record. */
  onChange(listener: (record: SandboxRecord) => void): void {
    this.#onChange = listener;
  }

  /** Who holds something for a sandbox; told when it is gone. */
  onRemoved(listener: (id: string) => void): void {
    this.#onRemoved = listener;
  }

  /** @throws not-found */
  require(workspace: string, name: string): SandboxRecord {
    const found = this.#store.sandboxes.byName(workspace, name);
    if (found === undefined) {
      throw new OpenShellError("not-found", `sandbox ${name} not found in workspace ${workspace}`, {
        reason: "SandboxNotFound",
      });
    }
    return found;
  }

  find(workspace: string, name: string): SandboxRecord | undefined {
    return this.#store.sandboxes.byName(workspace, name);
  }

  /** Undefined when it is gone, and for whoever comes late to a gateway that is shutting down. */
  byId(id: string): SandboxRecord | undefined {
    return this.#store.isOpen ? this.#store.sandboxes.byId(id) : undefined;
  }

  /** Every sandbox, one by one; nothing is to be changed in between. */
  all(): Iterable<SandboxRecord> {
    return this.#store.sandboxes.list(undefined);
  }

  session(id: string): SessionView {
    return this.#sessions.get(id) ?? noSession;
  }

  /**
   * @param along see SandboxTable
   * @throws already-exists
   */
  create(object: openshell.Sandbox, along?: (record: SandboxRecord) => void): SandboxRecord {
    const lifecycle = created();
    const { status } = this.#derive("", lifecycle, undefined);
    const record = this.#store.sandboxes.insert({ ...object, status }, lifecycle, along);
    this.#onChange(record);
    return record;
  }

  /** Applies a transition of lifecycle.ts. Undefined when the sandbox is gone. */
  change(id: string, transition: (before: Lifecycle) => Lifecycle): SandboxRecord | undefined {
    const record = this.byId(id);
    return record === undefined ? undefined : this.#settle(record, transition(record.lifecycle));
  }

  /** While the driver is asked to create it nobody knows whether it has it; until what is returned is disposed. */
  beingCreated(id: string): Disposable {
    this.#beingCreated.add(id);
    return {
      [Symbol.dispose]: () => {
        this.#beingCreated.delete(id);
        this.change(id, (life) => life);
      },
    };
  }

  /** What the driver reports of a sandbox. */
  observe(id: string, status: compute.DriverSandboxStatus): void {
    this.#driver.set(id, status);
    const isRunning = driverView(status, this.#classify).state === "running";
    this.change(id, (life) => (status.deleting ? life : found(life, isRunning)));
  }

  /** The driver has no such sandbox (any more). A wanted one failed, an unwanted one is removed. */
  missing(id: string): void {
    const record = this.byId(id);
    if (record === undefined) return;
    if (record.lifecycle.desired === "deleted") {
      this.remove(id);
    } else if (record.lifecycle.applied.state !== "absent") {
      this.#driver.set(id, "gone");
      this.#settle(record, vanished(record.lifecycle));
    }
  }

  /** What the supervisor's session tells; nothing is kept for a sandbox that is gone. */
  setSession(id: string, change: (before: SessionView) => SessionView): void {
    if (this.byId(id) === undefined) return;
    this.#sessions.set(id, change(this.session(id)));
    this.change(id, (life) => life);
  }

  remove(id: string): void {
    this.#driver.delete(id);
    this.#sessions.delete(id);
    if (!this.#store.sandboxes.delete(id)) return;
    this.hub.gone(id);
    this.#onRemoved(id);
  }

  /** Which row of the phase table a sandbox is in now. */
  derive(record: SandboxRecord): DerivedStatus {
    return this.#derive(record.id, record.lifecycle, record.object.status);
  }

  #settle(record: SandboxRecord, wanted: Lifecycle): SandboxRecord {
    const restarted = wanted.generationId !== record.lifecycle.generationId;
    if (restarted) {
      this.#driver.delete(record.id);
      this.#sessions.delete(record.id);
      this.#store.sessions.revoke(record.id);
    }
    const before = restarted ? undefined : record.object.status;
    const lifecycle = consequences(wanted, this.#derive(record.id, wanted, before));
    const { status } = this.#derive(record.id, lifecycle, before);
    const sameStatus =
      record.object.status !== undefined && equals(openshell.SandboxStatusSchema, record.object.status, status);
    if (sameStatus && JSON.stringify(lifecycle) === JSON.stringify(record.lifecycle)) return record;
    const object = create(openshell.SandboxSchema, { ...record.object, status });
    const after = this.#store.sandboxes.update(record, object, lifecycle);
    if (!sameStatus) this.hub.publish(record.id, after.object);
    this.#onChange(after);
    return after;
  }

  #derive(id: string, lifecycle: Lifecycle, before: openshell.SandboxStatus | undefined): DerivedStatus {
    return deriveStatus({
      lifecycle,
      driver: this.#driver.get(id),
      isBeingCreated: this.#beingCreated.has(id),
      session: this.session(id),
      before,
      classify: this.#classify,
      nowMs: this.#now(),
    });
  }
}

/** Whether a status is that of a run that serves, or did until its supervisor was lost. */
function serves(status: openshell.SandboxStatus | undefined): boolean {
  const { phase, conditions = [] } = status ?? {};
  const ready = conditions.find(({ type }) => type === "Ready");
  return phase === openshell.SandboxPhase.READY || ready?.reason === "ReplacingSupervisor";
}

/** What follows from a phase: a run that was READY once, or one that can only end. */
function consequences(lifecycle: Lifecycle, { row, input, status }: DerivedStatus): Lifecycle {
  const ready = status.conditions.find((one) => one.type === "Ready");
  if (row.phase === "READY") return hasBegunToServe(lifecycle);
  if (row.phase !== "ERROR" || input.outcome !== "none" || ready === undefined) return lifecycle;
  const fail = input.driver === "failed" && isStarted(lifecycle) ? failedInDriver : failed;
  return fail(lifecycle, ready.reason, ready.message);
}
