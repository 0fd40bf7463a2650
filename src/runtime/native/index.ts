import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { OpenShellError } from "../../common/errors.ts";

/** What a child's standard streams are. */
export const stdioModes = {
  /** Three pipes. */
  pipes: 0,
  /** One pseudo-terminal, controlling terminal of the child; `stdout` is our end, and `terminal` the other. */
  terminal: 1,
  /** Nothing to read; output goes where ours goes. */
  log: 2,
} as const;

export interface SpawnResult {
  /** 0 when there is a child, or -errno. */
  readonly error: number;
  readonly pid: number;
  /** Our ends, non-blocking; -1 where there is none. */
  readonly stdin: number;
  readonly stdout: number;
  readonly stderr: number;
  /** The child's end of its terminal, for who reads to hold open; -1 where there is none. */
  readonly terminal: number;
}

/** native.c. Numbers are counts, or -errno when negative. */
export interface Native {
  /**
   * @param done called once if there is a child: with 0 when its program runs or it was ended before, else with -errno and what failed:
   * 1 preparation, 2 chdir, 3 execve
   */
  spawn(
    file: string,
    argv: readonly string[],
    environment: readonly string[],
    workdir: string,
    mode: number,
    columns: number,
    rows: number,
    done: (error: number, stage: number) => void,
  ): SpawnResult;
  /** Flat triples: pid, exit code, signal. */
  reap(): number[];
  signal(pid: number, signal: number): number;
  hide(): number;
  adopt(): number;
  read(fd: number, bytes: Uint8Array, offset: number): number;
  write(fd: number, bytes: Uint8Array, offset: number): number;
  close(fd: number): number;
  sync(fd: number): number;
  resize(fd: number, columns: number, rows: number): number;
  watch(fd: number, ready: (events: number) => void): object | number;
  arm(handle: object, events: number): number;
  unwatch(handle: object): void;
}

/**
 * Loads the addon: `OPENSHELL_NATIVE`, else beside this bundle, else `dist/` of a source tree.
 * @throws failed-precondition when there is none
 */
export function loadNative(path = process.env.OPENSHELL_NATIVE): Native {
  const candidates =
    path !== undefined && path !== ""
      ? [path]
      : ["./openshell.node", "../../../dist/openshell.node"].map((one) => fileURLToPath(new URL(one, import.meta.url)));
  const found = candidates.find((one) => existsSync(one));
  if (found === undefined) {
    throw new OpenShellError(
      "failed-precondition",
      `the native part is missing: none of ${candidates.join(", ")} exists`,
    );
  }
  return createRequire(import.meta.url)(found) as Native;
}
