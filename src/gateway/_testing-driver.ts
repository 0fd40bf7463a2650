import { AsyncQueue } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import type { compute, Implementation } from "../wire/index.ts";
import type { GatewayDriver } from "./gateway.ts";
import type { ClassifyReason } from "./sandbox/driver-state.ts";

type Init<T> = Partial<T>;
type Reason = "Running" | "Pending" | "Stopped" | "Broken";

interface Held {
  readonly id: string;
  readonly name: string;
  readonly workspace: string;
  generation: string;
  reason: Reason;
}

export const classifyForTests: ClassifyReason = (reason) =>
  (({ Running: "ok", Pending: "waiting", Stopped: "stopped", Broken: "failed" }) as const)[reason as Reason];

/**
 * A compute driver that keeps its sandboxes in memory: the contract's answers without a cluster. What would happen by itself in a cluster
 * happens when a test says so (`report`), or at once with `automatic`.
 */
export class MemoryDriver implements GatewayDriver {
  readonly held = new Map<string, Held>();
  readonly calls: string[] = [];
  readonly created: compute.DriverSandbox[] = [];
  automatic = true;
  /** What the next call of a name is answered with instead. */
  readonly refuse = new Map<string, OpenShellError>();
  /** What a create waits for. */
  made: Promise<void> = Promise.resolve();
  readonly #watchers = new Set<AsyncQueue<compute.WatchSandboxesEvent>>();
  #generations = 0;

  readonly implementation: Implementation<typeof compute.ComputeDriver> = {
    getCapabilities: async () => ({
      driverName: "memory",
      driverVersion: "1",
      extension: {
        protocolVersion: { major: 1, minor: 0 },
        implementationName: "openshell/memory",
        implementationVersion: "1",
        supportedCapabilities: ["openshell.compute.contract"],
        requiredCapabilities: ["openshell.compute.contract"],
      },
    }),
    authenticateSandbox: async ({ credential }) => {
      const [, id = ""] = /^projected\.(.+)$/.exec(credential) ?? [];
      const held = this.held.get(id);
      if (held === undefined) throw new OpenShellError("unauthenticated", "the token is nobody's");
      return { sandboxId: id, runtimeIdentity: held.generation };
    },
    validateSandboxCreate: async () => this.#called("validate"),
    createSandbox: async ({ sandbox }) => {
      this.#called("create");
      await this.made;
      if (sandbox === undefined) throw new OpenShellError("invalid-argument", "no sandbox");
      this.created.push(sandbox);
      return this.#run(sandbox.id, sandbox.name, sandbox.workspace);
    },
    startSandbox: async ({ sandboxId, name }) => {
      this.#called("start");
      return this.#run(sandboxId, name, this.#known(sandboxId).workspace);
    },
    stopSandbox: async ({ sandboxId }) => {
      this.#called("stop");
      this.#known(sandboxId);
      if (this.automatic) this.report(sandboxId, "Stopped");
      return {};
    },
    deleteSandbox: async ({ sandboxId }) => {
      this.#called("delete");
      const deleted = this.held.has(sandboxId);
      if (deleted && this.automatic) this.vanish(sandboxId);
      return { deleted };
    },
    getSandbox: async ({ sandboxId }) => ({ sandbox: messageOf(this.#known(sandboxId)) }),
    listSandboxes: async () => ({ sandboxes: [...this.held.values()].map(messageOf) }),
    watchSandboxes: (_request, { signal }) => this.#watch(signal),
    ensureWorkspace: async () => this.#called("ensureWorkspace"),
    deleteWorkspace: async () => this.#called("deleteWorkspace"),
  };

  hasSynced = true;
  hasLease = true;

  async start(): Promise<void> {}
  async stop(): Promise<void> {}
  ready(): boolean {
    return this.hasSynced;
  }
  leads(): boolean {
    return this.hasLease;
  }

  report(id: string, reason: Reason): void {
    const held = this.#known(id);
    held.reason = reason;
    this.#tell({ case: "sandbox", value: { sandbox: messageOf(held) } });
  }

  /** Something happened to the sandbox's objects. */
  happen(sandboxId: string, event: Partial<compute.DriverPlatformEvent>): void {
    this.#tell({ case: "platformEvent", value: { sandboxId, event: event as compute.DriverPlatformEvent } });
  }

  /** The sandbox is gone from the cluster. */
  vanish(id: string): void {
    this.held.delete(id);
    this.#tell({ case: "deleted", value: { sandboxId: id } });
  }

  /** The stream of events breaks for everybody. */
  breakWatches(): void {
    for (const watcher of this.#watchers) watcher.end(new OpenShellError("aborted", "overflow"));
  }

  #run(id: string, name: string, workspace: string) {
    this.#generations += 1;
    const generation = `memory://${id}/${this.#generations}`;
    this.held.set(id, { id, name, workspace, generation, reason: "Pending" });
    this.report(id, this.automatic ? "Running" : "Pending");
    return { runtimeIdentity: generation };
  }

  async *#watch(signal: AbortSignal) {
    const queue = new AsyncQueue<compute.WatchSandboxesEvent>(1000);
    for (const held of this.held.values())
      queue.offer(eventOf({ case: "sandbox", value: { sandbox: messageOf(held) } }));
    this.#watchers.add(queue);
    const end = () => queue.end();
    signal.addEventListener("abort", end, { once: true });
    try {
      yield* queue;
    } finally {
      this.#watchers.delete(queue);
    }
  }

  #called(name: string): Record<string, never> {
    this.calls.push(name);
    const refusal = this.refuse.get(name);
    this.refuse.delete(name);
    if (refusal !== undefined) throw refusal;
    return {};
  }

  #known(id: string): Held {
    const held = this.held.get(id);
    if (held === undefined) throw new OpenShellError("not-found", `no sandbox ${id}`);
    return held;
  }

  #tell(payload: Payload): void {
    for (const watcher of this.#watchers) watcher.offer(eventOf(payload));
  }
}

type Payload =
  | { case: "sandbox"; value: { sandbox: compute.DriverSandbox } }
  | { case: "deleted"; value: { sandboxId: string } }
  | { case: "platformEvent"; value: { sandboxId: string; event: compute.DriverPlatformEvent } };

// The in-process client fills what is left out, as a socket would.
function eventOf(payload: Payload): compute.WatchSandboxesEvent {
  return { payload } as unknown as compute.WatchSandboxesEvent;
}

function messageOf({ id, name, workspace, reason }: Held): compute.DriverSandbox {
  const status = reason === "Running" ? "True" : "False";
  const conditions = ["PodsAdmitted", "Scheduled", "WorkloadReady"].map((type) => ({
    type,
    status,
    reason,
    message: "",
  }));
  const init: Init<unknown> = {
    id,
    name,
    workspace,
    status: { name: `${workspace}--${name}`, conditions, deleting: false },
  };
  return init as unknown as compute.DriverSandbox;
}
