import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { type Client, compute, type Implementation, localClient } from "../wire/index.ts";
import { Convergence } from "./convergence.ts";
import type { Core } from "./core.ts";
import { DriverWatch } from "./driver-watch.ts";
import { type DriverCapabilities, handshake } from "./info.ts";
import type { SandboxRecord } from "./store/sandboxes.ts";
import { WorkspaceDeletions } from "./workspace-deletions.ts";

/** What runs the sandboxes; src/driver has one. */
export interface GatewayDriver {
  readonly implementation: Implementation<typeof compute.ComputeDriver>;
  /** Resolves when it can be asked; rejects when it never can. */
  start(signal: AbortSignal): Promise<void>;
  /** What it answers from memory is complete. */
  ready(): boolean;
  /** It may write to the cluster now. */
  leads(): boolean;
  stop(): Promise<void>;
}

export interface DriverLinkOptions extends Pick<Core, "store" | "sandboxes" | "exits"> {
  readonly driver: GatewayDriver;
  readonly version: string;
  readonly log: Logger;
  /** Ends everything that goes on with the driver. */
  readonly signal: AbortSignal;
}

/** The gateway's side of its driver: introduces itself, tells it what is wanted, follows what it reports. */
export class DriverLink {
  readonly client: Client<typeof compute.ComputeDriver>;
  readonly convergence: Convergence;
  readonly workspaceDeletions: WorkspaceDeletions;
  readonly #options: DriverLinkOptions;
  readonly #watch: DriverWatch;
  #capabilities: DriverCapabilities | undefined;
  #streamRestarts = 0;

  constructor(options: DriverLinkOptions) {
    const { sandboxes, store, log, signal } = options;
    this.#options = options;
    const driver = localClient(compute.ComputeDriver, options.driver.implementation, undefined);
    this.client = driver;
    this.convergence = new Convergence({ sandboxes, driver, log, signal });
    this.workspaceDeletions = new WorkspaceDeletions({ workspaces: store.workspaces, driver, log, signal });
    const onRestart = () => {
      this.#streamRestarts += 1;
    };
    this.#watch = new DriverWatch({ sandboxes, driver, log, signal, onRestart });
  }

  /** Why the driver cannot be relied on now; undefined when it can. */
  unready(): string | undefined {
    if (this.#capabilities === undefined || !this.#options.driver.ready()) return "the compute driver is not ready";
    return this.#watch.synced ? undefined : "the driver's sandboxes are not compared with the store yet";
  }

  /** Why nothing can be written to the cluster now; undefined when it can. Sandboxes that run go on meanwhile. */
  degraded(): string | undefined {
    return this.#options.driver.leads() ? undefined : "the compute driver does not hold its lease";
  }

  /** @throws unavailable before the driver has introduced itself */
  capabilities(): DriverCapabilities {
    if (this.#capabilities !== undefined) return this.#capabilities;
    throw new OpenShellError("unavailable", "the compute driver is not ready", { retryAfterMs: 2_000 });
  }

  /** Times the driver's stream of events was opened again. */
  get streamRestarts(): number {
    return this.#streamRestarts;
  }

  /** Goes on with a sandbox, once the driver can be told. */
  kick(record: SandboxRecord): void {
    if (this.#capabilities !== undefined) this.convergence.kick(record);
  }

  /**
   * Starts the driver, goes on with what the store says is unfinished, and follows the driver until the signal aborts.
   * @throws what the driver cannot start with, and failed-precondition when the two do not speak the same protocol
   */
  async run(): Promise<void> {
    const { driver, version, sandboxes, exits, signal } = this.#options;
    await driver.start(signal);
    this.#capabilities = await handshake(this.client, version);
    for (const id of Array.from(sandboxes.all(), (one) => one.id)) {
      const record = sandboxes.byId(id);
      if (record === undefined) continue;
      this.convergence.kick(record);
      exits.review(record);
    }
    this.workspaceDeletions.resume();
    await this.#watch.run();
  }
}
