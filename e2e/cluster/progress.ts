/** Where long steps say what they are doing. One line a call, without a trailing newline. */
export interface Progress {
  /** A step began or something worth knowing happened. */
  note(line: string): void;
}

/** Lines with the seconds since the start. */
export function progressTo(output: { write(text: string): unknown }): Progress {
  const start = performance.now();
  return {
    note: (line) => void output.write(`${((performance.now() - start) / 1000).toFixed(1).padStart(6)}s  ${line}\n`),
  };
}

/** On standard error: standard output stays a command's result. */
export function stderrProgress(): Progress {
  return progressTo(process.stderr);
}

/** Says nothing. */
export const silent: Progress = { note: () => {} };
