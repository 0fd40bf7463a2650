/** Where long steps say what they are doing. One line a call, without a trailing newline. */
export interface Progress {
  /** A step began or something worth knowing happened. */
  note(line: string): void;
}

/** Lines on standard error with the seconds since the start: standard output stays a command's result. */
export function stderrProgress(now: () => number = performance.now.bind(performance)): Progress {
  const start = now();
  return {
    note: (line) => process.stderr.write(`${((now() - start) / 1000).toFixed(1).padStart(6)}s  ${line}\n`),
  };
}

/** Says nothing. */
export const silent: Progress = { note: () => {} };
