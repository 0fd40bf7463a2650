/** Values of options, parsed; each error says which value, what is wrong with it and what it looks like. */
import type { JsonObject } from "@bufbuild/protobuf";
import { OpenShellError } from "../common/errors.ts";

/** What stands before the first `--`, and the command after it. */
export interface SplitArguments {
  readonly own: readonly string[];
  /** Undefined without a `--`. */
  readonly command?: readonly string[];
}

/** Everything after the first `--` belongs to the command that is run, whatever it looks like. */
export function splitCommand(argv: readonly string[]): SplitArguments {
  const at = argv.indexOf("--");
  return at < 0 ? { own: argv } : { own: argv.slice(0, at), command: argv.slice(at + 1) };
}

/** `KEY=VALUE` options as a map, empty without any; a later one wins. */
export function parsePairs(option: string, pairs: readonly string[] = []): Record<string, string> {
  const entries = pairs.map((pair) => {
    const at = pair.indexOf("=");
    if (at <= 0) throw new OpenShellError("invalid-argument", `${option} "${pair}": write it as KEY=VALUE`);
    return [pair.slice(0, at), pair.slice(at + 1)] as const;
  });
  return Object.fromEntries(entries);
}

/**
 * A JSON object.
 * @throws invalid-argument with the position of the mistake
 */
export function parseJsonObject(option: string, text: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new OpenShellError("invalid-argument", `${option} is not JSON: ${(cause as Error).message}`, { cause });
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new OpenShellError("invalid-argument", `${option} must be a JSON object, such as {"kubernetes": {…}}`);
  }
  return value as JsonObject;
}

/** A decimal number of seconds, zero or more, as milliseconds, at least one; undefined for 0, which means no limit. */
export function parseSeconds(option: string, text: string): number | undefined {
  const seconds = Number(text);
  if (!/^(\d+\.?\d*|\.\d+)$/.test(text) || seconds > 2_000_000) {
    throw new OpenShellError("invalid-argument", `${option} "${text}": expected seconds, such as 30 (0 for no limit)`);
  }
  return seconds === 0 ? undefined : Math.max(1, Math.round(seconds * 1000));
}

/**
 * An amount of a resource as Kubernetes writes it: decimal, with an exponent or a suffix, and above zero, since zero asks for no limit at all.
 * @param example what the error shows
 */
export function parseAmount(option: string, text: string, example: string): string {
  const number = /^([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?$/.exec(text)?.[1];
  if (number === undefined) {
    throw new OpenShellError("invalid-argument", `${option} "${text}": expected an amount, such as ${example}`);
  }
  if (Number(number) > 0) return text;
  const remedy = "leave it out for what the operator gives";
  throw new OpenShellError("invalid-argument", `${option} "${text}": must be above zero; ${remedy}`);
}

/** `--gpu` or `--gpu=COUNT`. */
export function parseGpuCount(value: string | true): number | undefined {
  if (value === true) return undefined;
  const count = Number(value);
  if (!Number.isInteger(count) || count < 1 || count > 4_294_967_295) {
    throw new OpenShellError("invalid-argument", `--gpu "${value}": expected how many, such as --gpu=1`);
  }
  return count;
}

/** `LOCAL[:DESTINATION]`; a destination begins after the last colon. */
export function parseUpload(text: string): { readonly local: string; readonly destination?: string } {
  const at = text.lastIndexOf(":");
  if (at <= 0 || at === text.length - 1) return { local: text };
  return { local: text.slice(0, at), destination: text.slice(at + 1) };
}
