import { randomUUID } from "node:crypto";
import { backoffMs } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { boundary } from "../wire/index.ts";
import { type Child, isNotStarted, type NotStarted } from "./processes.ts";

const { MainProcessStatus_State: State, RestartPolicy } = boundary;

export interface MainProcessOptions {
  /** Starts the program of a launch. */
  readonly start: (launch: boundary.Launch) => Child | NotStarted;
  /** Ends what is left of a run that another follows, whose leader had this pid: what it holds, a port say, the next one needs. */
  readonly clear: (pid: number) => void;
  readonly log: Logger;
  /** Told of every new status. */
  readonly changed?: () => void;
  /** Source of jitter, passed in by tests. @default Math.random */
  readonly random?: () => number;
}

export interface MainStatus {
  readonly state: boundary.MainProcessStatus_State;
  readonly startedAt?: number;
  readonly exitCode?: number;
  readonly restartCount: number;
  readonly nextRestartAt?: number;
  readonly message?: string;
}

/** A run this long was healthy, so the next restart is quick again. */
const healthyMs = 60_000;

/**
 * The sandbox's own command: started once per generation, when it is allowed, and again where its restart policy says so. It is not
 * started while the tree is frozen or the fence is open; `allow` opens and closes that gate.
 */
export class MainProcess {
  /** New for every runtime; what an exit is acknowledged by. */
  readonly instanceId = randomUUID();
  readonly #options: MainProcessOptions;
  #launch: boundary.Launch | undefined;
  #allowed = false;
  #due = false;
  #stopped = false;
  #failures = 0;
  #timer: NodeJS.Timeout | undefined;
  #child: Child | undefined;
  #status: MainStatus = { state: State.WAITING, restartCount: 0 };

  constructor(options: MainProcessOptions) {
    this.#options = options;
  }

  get status(): MainStatus {
    return this.#status;
  }

  /** The environment and directory that execs share with it. */
  get launched(): boundary.Launch | undefined {
    return this.#launch;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** True when it ended by itself and no further run will follow, so that its exit code is the sandbox's. */
  get isFinal(): boolean {
    return this.#status.state === State.EXITED || this.#status.state === State.FAILED_TO_START;
  }

  /** The first launch counts; a repeated one changes nothing. */
  launch(launch: boundary.Launch): void {
    if (this.#launch !== undefined) return;
    this.#launch = launch;
    if (launch.command.length === 0) this.#set({ state: State.IDLE, restartCount: 0 });
    else this.#due = true;
    this.#proceed();
  }

  allow(allowed: boolean): void {
    this.#allowed = allowed;
    this.#proceed();
  }

  /**
   * No restarts any more; a running one is ended by whoever ends the tree. How it ends then is not its own doing, and is no exit of the
   * sandbox: one whose node has no memory left is not completed because its agent obeys a TERM.
   */
  stop(): void {
    this.#stopped = true;
    this.#due = false;
    clearTimeout(this.#timer);
  }

  #proceed(): void {
    const launch = this.#launch;
    if (launch === undefined || !this.#due || !this.#allowed || this.#stopped) return;
    this.#due = false;
    const { restartCount } = this.#status;
    const child = this.#start(launch);
    if (isNotStarted(child)) this.#refused(child, restartCount);
    else void this.#attend(child, restartCount);
  }

  async #attend(child: Child, restartCount: number): Promise<void> {
    this.#child = child;
    const failure = await child.started;
    if (failure !== undefined) {
      this.#child = undefined;
      this.#refused(failure, restartCount);
      return;
    }
    const startedAt = Date.now();
    // By the clock that nobody sets.
    const healthyAt = performance.now() + healthyMs;
    this.#set({ state: State.RUNNING, restartCount, startedAt });
    const code = await child.exited;
    this.#child = undefined;
    // At once: while some of them live, their session's number is no other's.
    if (this.#isToRestart(code)) this.#options.clear(child.pid);
    if (performance.now() >= healthyAt) this.#failures = 0;
    this.#after(code, { state: State.EXITED, restartCount, startedAt });
  }

  #refused({ exitCode, message }: NotStarted, restartCount: number): void {
    this.#options.log.warn({ reason: message }, "the main process could not be started");
    this.#after(exitCode, { state: State.FAILED_TO_START, restartCount, message });
  }

  #start(launch: boundary.Launch): Child | NotStarted {
    try {
      return this.#options.start(launch);
    } catch (error) {
      return { notStarted: true, exitCode: 126, message: OpenShellError.from(error).message };
    }
  }

  #after(code: number, final: MainStatus): void {
    this.#options.log.info({ code, restarts: final.restartCount, stopped: this.#stopped }, "the main process ended");
    if (this.#stopped) return;
    if (!this.#isToRestart(code)) {
      this.#set({ ...final, exitCode: code });
      return;
    }
    const delay = backoffMs(this.#failures, {
      initialMs: 1_000,
      maxMs: 60_000,
      ...(this.#options.random === undefined ? {} : { random: this.#options.random }),
    });
    this.#failures += 1;
    this.#timer = setTimeout(() => {
      this.#due = true;
      this.#proceed();
    }, delay);
    this.#set({
      ...final,
      state: State.RESTARTING,
      exitCode: code,
      restartCount: final.restartCount + 1,
      nextRestartAt: Date.now() + delay,
    });
  }

  #set(status: MainStatus): void {
    this.#status = status;
    this.#options.changed?.();
  }

  #isToRestart(code: number): boolean {
    const policy = this.#launch?.restartPolicy;
    return !this.#stopped && (policy === RestartPolicy.ALWAYS || (policy === RestartPolicy.ON_FAILURE && code !== 0));
  }
}
