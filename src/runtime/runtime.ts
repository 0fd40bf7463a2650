import { randomUUID } from "node:crypto";
import { constants } from "node:os";
import { checkVersion, localVersion, verifySessionGrant } from "../boundary/index.ts";
import { sleep } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { boundary } from "../wire/index.ts";
import { resolveCommand } from "./command.ts";
import { Connection } from "./connection.ts";
import type { Environment } from "./environment.ts";
import { type FenceState, permits, probing } from "./fence.ts";
import { Freezer } from "./freezer.ts";
import type { Identity } from "./identity.ts";
import { MainProcess } from "./main-process.ts";
import { type Child, isNotStarted, type NotStarted, type Processes } from "./processes.ts";
import { claim, disconnect, mayOpenChannel, type SessionState, terminate, waiting } from "./session.ts";
import { fenceStatus, mainProcessStatus, type RuntimeFrame, treeStatus } from "./status-frames.ts";
import { showTerminal } from "./terminal-log.ts";

export interface RuntimeOptions {
  readonly identity: Pick<Identity, "sandboxId" | "generationId" | "generationKey">;
  readonly processes: Processes;
  /** Environment of the image, for agent processes. */
  readonly environment: Environment;
  readonly log: Logger;
  /** Version of this program, for people. */
  readonly build: string;
  /** Between TERM and KILL at the end. @default 30_000 */
  readonly graceMs?: number;
}

const { SessionRefused_Reason: Reason } = boundary;

/**
 * For killed processes to go and the exit to be acknowledged, the grace period over or not needed. With the listener's end (0.5 s) the
 * program is gone 2 s after the grace period, before the kubelet loses patience.
 */
const afterGraceMs = 1_500;

/** A supervisor that was not accepted. */
export class Refused {
  readonly frame: RuntimeFrame;

  constructor(reason: boundary.SessionRefused_Reason, message: string) {
    this.frame = { payload: { case: "refused", value: { reason, message } } };
  }
}

interface HeldChannel {
  readonly tls: string;
  readonly lost: (error: OpenShellError) => void;
}

/**
 * The state of one sandbox run, in one place: who supervises it, whether the network is closed, whether the tree is frozen, what became
 * of the main process. Agent processes run only while a session is held, the fence stands and nothing froze the tree.
 */
export class Runtime {
  readonly #options: RuntimeOptions;
  readonly #instanceId = randomUUID();
  readonly #freezer: Freezer;
  readonly #main: MainProcess;
  readonly #ended = Promise.withResolvers<number>();
  #session: SessionState = waiting();
  #connection: Connection | undefined;
  #connections = 0;
  #fence: FenceState = probing(0);
  #acknowledged = false;
  #ending = false;
  readonly #channels = new Set<HeldChannel>();
  readonly #transfers = new Set<(error: OpenShellError) => void>();

  constructor(options: RuntimeOptions) {
    this.#options = options;
    this.#freezer = new Freezer(options.processes, options.log, () => {
      this.#tell({ payload: { case: "tree", value: treeStatus(this.#freezer) } });
    });
    this.#main = new MainProcess({
      start: (launch) => this.#startMain(launch),
      clear: (pid) => void options.processes.signalSession(pid, "SIGKILL"),
      log: options.log,
      changed: () => this.#tellMain(),
    });
  }

  /** Resolves with this program's exit code once the tree is gone. */
  get ended(): Promise<number> {
    return this.#ended.promise;
  }

  // --- the supervisor ---------------------------------------------------------------------------------------------------

  /**
   * Decides about a hello; the connection of an accepted one takes over from whoever was there before.
   * @param gone aborts when the hello's call is over
   * @throws the reason of `gone`: an attempt that was given up, and whose packets come late, takes nothing over
   */
  async admit(hello: boundary.SupervisorHello, tls: string, gone: AbortSignal): Promise<Connection | Refused> {
    const { identity, log } = this.#options;
    try {
      checkVersion(hello.version, "supervisor");
    } catch (error) {
      return new Refused(Reason.VERSION_SKEW, OpenShellError.from(error).message);
    }
    let grant: Awaited<ReturnType<typeof verifySessionGrant>>;
    try {
      grant = await verifySessionGrant(hello.sessionGrant, identity.generationKey);
    } catch (error) {
      return new Refused(Reason.BAD_GRANT, OpenShellError.from(error).message);
    }
    gone.throwIfAborted();
    if (grant.sandbox !== identity.sandboxId || grant.generation !== identity.generationId) {
      return new Refused(Reason.BAD_GRANT, "the session grant is for another sandbox or generation");
    }
    if (grant.tls !== tls) return new Refused(Reason.BAD_GRANT, "the session grant is for another TLS key");
    if (hello.instanceId === "") return new Refused(Reason.BAD_GRANT, "the hello names no instance id");

    this.#connections += 1;
    const id = this.#connections;
    const result = claim(this.#session, { grant, instanceId: hello.instanceId, connection: id });
    if (!result.accepted) return new Refused(Reason[result.refusal], result.message);
    this.#replace(grant.session);
    this.#session = result.state;
    for (const { lost } of [...this.#channels].filter((one) => one.tls !== tls)) {
      lost(new OpenShellError("cancelled", `the session was taken over (session ${grant.session})`));
    }
    const connection: Connection = new Connection(id, {
      beaten: () => {
        if (this.#main.isFinal && !this.#acknowledged) this.#tellMain();
      },
      // Its call may hang in a write that nobody takes, so the loss is not left to the call's end.
      lost: (why) => this.leave(connection, why),
    });
    this.#connection = connection;
    connection.send({ payload: { case: "hello", value: this.#hello() } });
    log.info({ session: grant.session, pod: grant.pod }, "a supervisor holds the session");
    this.#freezer.thaw("supervisor-lost");
    this.#converge();
    return connection;
  }

  /** A connection is over. Whatever it was, without a supervisor nothing of the agent's runs. */
  leave(connection: Connection, why = "its call ended"): void {
    connection.close();
    if (this.#connection !== connection) return;
    this.#connection = undefined;
    this.#session = disconnect(this.#session, connection.id);
    if (this.#session.kind !== "lost") return;
    this.#options.log.warn({ session: this.#session.session, why }, "the supervisor is lost");
    void this.#freezer.freeze("supervisor-lost", "the supervisor is not connected");
    this.#converge();
  }

  /** What an accepted supervisor says after its hello. */
  receive(connection: Connection, frame: boundary.SupervisorFrame): void {
    if (this.#connection !== connection) return;
    connection.heard();
    const { payload } = frame;
    switch (payload.case) {
      case "launch":
        if (this.#main.launched !== undefined) this.#tellMain();
        this.#main.launch(payload.value);
        break;
      case "exitAcknowledged":
        if (payload.value.instanceId === this.#main.instanceId && this.#main.isFinal) this.#acknowledged = true;
        break;
      case "terminate":
        void this.terminate(payload.value.reason || "the supervisor asked for it");
        break;
    }
  }

  // --- channels ------------------------------------------------------------------------------------------------------------

  /** @throws why a channel cannot be opened now over a connection with this TLS key */
  checkChannel(tls: string): void {
    if (this.#ending) throw new OpenShellError("unavailable", "the sandbox is ending");
    if (!mayOpenChannel(this.#session, tls)) {
      throw new OpenShellError("permission-denied", "this connection does not hold the session of the sandbox");
    }
    const { frozen, reason } = this.#freezer.status;
    if (frozen) throw new OpenShellError("unavailable", `the sandbox is frozen: ${reason}`, { retryAfterMs: 1_000 });
    if (!permits(this.#fence)) {
      const message = "the sandbox's network is not closed yet, so nothing may run in it";
      throw new OpenShellError("unavailable", message, { retryAfterMs: 1_000 });
    }
  }

  /**
   * Keeps a channel with who opened it: `lost` is called when another supervisor takes the session over.
   * @returns what forgets it
   */
  holdChannel(tls: string, lost: (error: OpenShellError) => void): () => void {
    const held = { tls, lost };
    this.#channels.add(held);
    return () => this.#channels.delete(held);
  }

  /**
   * Keeps a transfer of files, which no process ends: `lost` is called when the runtime begins to end, which then waits for it.
   * @returns what forgets it, for when nothing of it is left
   */
  holdTransfer(lost: (error: OpenShellError) => void): () => void {
    this.#transfers.add(lost);
    return () => this.#transfers.delete(lost);
  }

  get isFrozen(): boolean {
    return this.#freezer.status.frozen;
  }

  /** Environment of execs: the image's, and what user and template set for the sandbox. */
  get environment(): Environment {
    return { ...this.#options.environment, ...this.#main.launched?.baseEnvironment };
  }

  // --- the fence ------------------------------------------------------------------------------------------------------------

  fenceChanged(fence: FenceState): void {
    this.#options.log.info({ fence }, "fence");
    this.#fence = fence;
    if (fence.kind === "breached") {
      const reason =
        fence.reachable === undefined
          ? `the network fence cannot be probed: connecting fails with ${fence.untold}`
          : `the network fence is open: ${fence.reachable} can be reached`;
      void this.#freezer.freeze("fence-breached", reason);
    } else if (fence.kind === "fenced") {
      this.#freezer.thaw("fence-breached");
    }
    this.#tell({ payload: { case: "fence", value: fenceStatus(fence) } });
    this.#converge();
  }

  // --- the end ----------------------------------------------------------------------------------------------------------------

  /**
   * TERM to the tree, a grace period, KILL; then `ended` resolves, at most 1.5 s after the grace period. Transfers are broken off at once,
   * and what uploads were making is gone, too, unless that takes longer. Repeated calls change nothing.
   *
   * `ended` is the main process's exit code where that had ended by itself; else this program was ended as by the signal, and says so: a
   * kubelet that evicts a Pod keeps its reason only where a container failed.
   */
  async terminate(reason: string, signal: "SIGTERM" | "SIGINT" = "SIGTERM"): Promise<void> {
    if (this.#ending) return;
    this.#ending = true;
    const { processes, log, graceMs = 30_000 } = this.#options;
    const killAt = performance.now() + graceMs;
    log.info({ reason }, "ending");
    this.#session = terminate();
    this.#main.stop();
    for (const lost of this.#transfers) lost(new OpenShellError("unavailable", "the sandbox is ending"));
    // A process stopped for a lost supervisor may clean up; one that could reach the network may not.
    const breached = this.#freezer.has("fence-breached");
    if (!breached) {
      processes.signalAll("SIGTERM");
      this.#freezer.thaw("supervisor-lost");
      // Also what somebody else had stopped: a stopped process never sees its TERM and would cost the whole grace period.
      processes.signalAll("SIGCONT");
      await this.#gone(killAt);
    }
    const endAt = Math.min(killAt, performance.now()) + afterGraceMs;
    processes.signalAll("SIGKILL");
    await this.#gone(endAt);
    this.#freezer.stop();
    if (this.#main.isFinal && !this.#acknowledged)
      await this.#until(endAt, () => this.#acknowledged || !this.#connection);
    this.#connection?.close();
    this.#ended.resolve(this.#main.isFinal ? (this.#main.status.exitCode ?? 0) : 128 + constants.signals[signal]);
  }

  #gone(by: number): Promise<void> {
    return this.#until(by, () => {
      this.#options.processes.reap();
      return this.#options.processes.tryList()?.length === 0 && this.#transfers.size === 0;
    });
  }

  /** Waits for the condition, until `by` on the monotonic clock at the latest. */
  async #until(by: number, condition: () => boolean): Promise<void> {
    while (!condition() && performance.now() < by) await sleep(20);
  }

  // --- inside -------------------------------------------------------------------------------------------------------------------

  #converge(): void {
    this.#main.allow(this.#session.kind === "active" && permits(this.#fence) && !this.#freezer.status.frozen);
  }

  #replace(session: number): void {
    const old = this.#connection;
    if (old === undefined) return;
    this.#connection = undefined;
    old.send(new Refused(Reason.OLDER_SESSION, `replaced by a newer connection (session ${session})`).frame);
    old.close();
  }

  #startMain(launch: boundary.Launch): Child | NotStarted {
    const { processes, log } = this.#options;
    const terminal: Record<string, string> = launch.tty ? { TERM: "xterm-256color" } : {};
    const command = resolveCommand(
      {
        command: launch.command,
        environment: launch.environment,
        workdir: launch.workdir,
        noLoginShell: false,
      },
      { ...this.environment, ...terminal },
    );
    const started = processes.spawn({ ...command, stdio: launch.tty ? "terminal" : "log" });
    if (!isNotStarted(started) && started.stdout !== undefined) void showTerminal(started, log);
    return started;
  }

  #hello() {
    return {
      version: localVersion(this.#options.build),
      instanceId: this.#instanceId,
      fence: fenceStatus(this.#fence),
      mainProcess: mainProcessStatus(this.#main),
      tree: treeStatus(this.#freezer),
    };
  }

  #tellMain(): void {
    this.#tell({ payload: { case: "mainProcess", value: mainProcessStatus(this.#main) } });
  }

  #tell(frame: RuntimeFrame): void {
    this.#connection?.send(frame);
  }
}
