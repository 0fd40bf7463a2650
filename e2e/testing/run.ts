import type { CommandOptions } from "./commands.ts";
import type { Output } from "./output.ts";

/** One run of `npm test`. */
export interface Run {
  readonly root: string;
  /** Directory of its reports. */
  readonly reports: string;
  readonly output: Output;
  readonly signal: AbortSignal;
  /** Where and with what it ran, for the head of the report. */
  readonly facts: Record<string, string>;
}

export const minute = 60_000;
export const isCi: boolean = /^(1|true)$/i.test(process.env.CI ?? "");

export function commandOptions({ root, signal, output }: Run, timeoutMs: number): CommandOptions {
  return { cwd: root, signal, output, timeoutMs };
}
