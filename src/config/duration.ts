import { OpenShellError } from "../common/errors.ts";

/** A whole number and a unit. */
const durationPattern = /^(\d{1,9})(ms|s|m|h)$/;
/** The same of at least one second, in RE2 too. */
export const noticeableDurationPattern = /^([1-9]\d{3,8}ms|[1-9]\d{0,8}[smh])$/;
const units: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** True for a whole number with one unit: `500ms`, `30s`, `10m`, `2h`. */
export function isDuration(text: string): boolean {
  return durationPattern.test(text);
}

/** A duration setting in milliseconds; the empty string (no limit) is undefined. */
export function parseDuration(text: string): number | undefined {
  if (text === "") return undefined;
  const match = durationPattern.exec(text);
  if (match === null) {
    throw new OpenShellError("invalid-argument", `"${text}" is not a duration such as "30s", "10m" or "2h"`);
  }
  return Number(match[1]) * (units[match[2] ?? ""] ?? 1);
}
