import { constants } from "node:os";
import { Descriptor } from "./descriptor.ts";
import { type Native, stdioModes } from "./native/index.ts";
import { listProcesses, type ProcessEntry } from "./process-list.ts";

export interface SpawnOptions {
  readonly file: string;
  readonly argv: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly workdir: string;
  readonly stdio: keyof typeof stdioModes;
  /** Of the terminal. @default 80 × 24 */
  readonly columns?: number;
  readonly rows?: number;
}

/** A child: leader of its own session and process group once its program runs. */
export interface Child {
  readonly pid: number;
  /** Resolves when its program runs, which takes as long as the disk needs for it; with the reason where it does not start. */
  readonly started: Promise<NotStarted | undefined>;
  readonly stdin: Descriptor | undefined;
  /** Output of the terminal, or standard output. */
  readonly stdout: Descriptor | undefined;
  readonly stderr: Descriptor | undefined;
  /** Resolves with the exit code, 128 + n for signal n; of a program that did not start it says nothing. */
  readonly exited: Promise<number>;
}

/** Why a program did not start, in the words and exit codes of shells. */
export interface NotStarted {
  readonly notStarted: true;
  /** 127 not found, 126 everything else. */
  readonly exitCode: 126 | 127;
  readonly message: string;
}

/** Every process below this one. Reaps all of them, orphans included, since Node is not asked to start any. */
export class Processes {
  readonly #native: Native;
  readonly #waiting = new Map<number, (code: number) => void>();
  readonly #reap = () => this.reap();

  constructor(native: Native) {
    this.#native = native;
    if (process.pid !== 1) native.adopt();
    process.on("SIGCHLD", this.#reap);
  }

  /** Begins a child; a reason instead where there can be none, for want of memory, descriptors or pids. */
  spawn(options: SpawnOptions): Child | NotStarted {
    const { file, workdir, columns = 80, rows = 24 } = options;
    const environment = Object.entries(options.environment).map(([name, value]) => `${name}=${value}`);
    const mode = stdioModes[options.stdio];
    const { promise: started, resolve: done } = Promise.withResolvers<NotStarted | undefined>();
    const result = this.#native.spawn(
      file,
      options.argv,
      environment,
      workdir,
      mode,
      columns || 80,
      rows || 24,
      (error, stage) => done(error === 0 ? undefined : explain(options, -error, stage)),
    );
    if (result.error !== 0) return explain(options, -result.error, 1);
    const exited = new Promise<number>((resolve) => this.#waiting.set(result.pid, resolve));
    const open = (fd: number, held = -1) => (fd < 0 ? undefined : new Descriptor(this.#native, fd, held));
    const stdout = open(result.stdout, result.terminal);
    return {
      pid: result.pid,
      started,
      stdin: options.stdio === "terminal" ? stdout : open(result.stdin),
      stdout,
      stderr: open(result.stderr),
      exited,
    };
  }

  /** Collects what ended. Called on SIGCHLD. */
  reap(): void {
    const ended = this.#native.reap();
    for (let index = 0; index + 2 < ended.length; index += 3) {
      const [pid = 0, code = 0, signal = 0] = ended.slice(index, index + 3);
      this.#waiting.get(pid)?.(signal === 0 ? code : 128 + signal);
      this.#waiting.delete(pid);
    }
  }

  /** Every living process below this one. @throws without a descriptor to read /proc with; the agent, having our user, can bring that about */
  list(): ProcessEntry[] {
    return listProcesses();
  }

  /** As `list`; undefined where it throws. */
  tryList(): ProcessEntry[] | undefined {
    try {
      return this.list();
    } catch {
      return undefined;
    }
  }

  signal(pid: number, signal: NodeJS.Signals): boolean {
    return this.#native.signal(pid, constants.signals[signal]) === 0;
  }

  /**
   * Signals a child's process group and whatever else stayed in its session; true when there was somebody.
   * @param among a list of now, for who signals many. @default a walk once the group has its signal
   */
  signalSession(leader: number, signal: NodeJS.Signals, among?: readonly ProcessEntry[]): boolean {
    // One that is only beginning has no group yet.
    let reached = this.signal(-leader, signal) || (this.#waiting.has(leader) && this.signal(leader, signal));
    for (const one of among ?? this.tryList() ?? []) {
      if (one.session === leader && one.group !== leader) reached = this.signal(one.pid, signal) || reached;
    }
    return reached;
  }

  /** Signals the whole tree; as PID 1 in one system call that no fork can escape. */
  signalAll(signal: NodeJS.Signals): void {
    if (process.pid === 1) this.signal(-1, signal);
    else for (const one of this.tryList() ?? []) this.signal(one.pid, signal);
  }

  stop(): void {
    process.off("SIGCHLD", this.#reap);
  }
}

/** True when `spawn` gave a reason instead of a child. */
export function isNotStarted(result: Child | NotStarted): result is NotStarted {
  return "notStarted" in result;
}

function explain(options: SpawnOptions, errno: number, stage: number): NotStarted {
  const name = options.argv[0] ?? options.file;
  const reason = errnoText(errno);
  if (stage === 2) {
    return { notStarted: true, exitCode: 126, message: `cannot change to directory ${options.workdir}: ${reason}` };
  }
  const exitCode = errno === constants.errno.ENOENT || errno === constants.errno.ENOTDIR ? 127 : 126;
  return { notStarted: true, exitCode, message: `${name}: ${reason}` };
}

const texts: ReadonlyMap<number, string> = new Map([
  [constants.errno.ENOENT, "No such file or directory"],
  [constants.errno.ENOTDIR, "Not a directory"],
  [constants.errno.EACCES, "Permission denied"],
  [constants.errno.EPERM, "Operation not permitted"],
  [constants.errno.ENOEXEC, "Exec format error"],
  [constants.errno.E2BIG, "Argument list too long"],
  [constants.errno.EAGAIN, "Resource temporarily unavailable"],
  [constants.errno.ENOMEM, "Cannot allocate memory"],
]);

function errnoText(errno: number): string {
  const name = Object.entries(constants.errno).find(([, number]) => number === errno)?.[0];
  return texts.get(errno) ?? name ?? `errno ${errno}`;
}
