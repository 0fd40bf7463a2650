import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Output } from "./output.ts";
import type { Case } from "./results.ts";

export interface Finished {
  readonly code: number;
  /** The end of what it said, both streams as they came. */
  readonly output: string;
  readonly seconds: number;
}

export interface CommandOptions {
  readonly cwd: string;
  readonly signal: AbortSignal;
  /** Ends it, and everything that it started, after this time. */
  readonly timeoutMs: number;
  readonly env?: Readonly<Record<string, string>>;
  /** Where its output goes as it comes. @default nowhere */
  readonly output?: Output;
}

const keptCharacters = 200_000;

/** Runs a command in a process group of its own, so that a timeout or an interrupt ends all of it; none once the run is interrupted. */
export async function finish(command: string, args: readonly string[], options: CommandOptions): Promise<Finished> {
  // A signal that is aborted already never says so again.
  if (options.signal.aborted) return { code: 130, output: "interrupted", seconds: 0 };
  const started = performance.now();
  const signal = AbortSignal.any([options.signal, AbortSignal.timeout(options.timeoutMs)]);
  const child = spawn(command, args, {
    cwd: options.cwd,
    env: { ...process.env, ...options.env },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  let output = "";
  for (const from of [child.stdout, child.stderr]) {
    from.setEncoding("utf8");
    from.on("data", (text: string) => {
      output = (output + text).slice(-keptCharacters);
      options.output?.write(text);
    });
  }
  const kill = (name: NodeJS.Signals) => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, name);
    } catch {
      // The group is gone already.
    }
  };
  let grace: NodeJS.Timeout | undefined;
  const stop = () => {
    kill("SIGTERM");
    grace = setTimeout(() => kill("SIGKILL"), 20_000);
  };
  signal.addEventListener("abort", stop, { once: true });
  try {
    const [code, endedBy] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
    const seconds = (performance.now() - started) / 1000;
    if (options.signal.aborted) return { code: 130, output: `${output}\ninterrupted`, seconds };
    if (signal.aborted) return { code: 124, output: `${output}\nended after ${options.timeoutMs / 1000} s`, seconds };
    // An end from outside, such as the kernel's when memory is short, leaves no word of its own.
    if (endedBy !== null) return { code: 1, output: `${output}\nended by ${endedBy} from outside`, seconds };
    return { code: code ?? 1, output, seconds };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return { code: 127, output: `${command} cannot be started: ${message}`, seconds: 0 };
  } finally {
    clearTimeout(grace);
    signal.removeEventListener("abort", stop);
    kill("SIGKILL");
  }
}

/** A command as one test: passed when it ends with code 0. */
export async function checkedBy(
  name: string,
  command: string,
  args: readonly string[],
  { output: to, ...options }: CommandOptions,
): Promise<Case> {
  const { code, output, seconds } = await finish(command, args, options);
  const suite = [command, ...args].join(" ");
  to?.write(`  ${code === 0 ? "✓" : "✗"} ${name} (${seconds.toFixed(1)} s)\n`);
  if (code === 0) return { suite, name, outcome: "passed", seconds };
  return { suite, name, outcome: "failed", seconds, detail: output.trim() || `exit code ${code}` };
}
