import { reservedPrefixes } from "../../config/index.ts";
import { bytes, type Violations } from "./violations.ts";

const maxEntries = 128;
const labelName = /^[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$/;
const prefix = /^(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/;

type Entries = Readonly<Record<string, string>>;

/** Labels in Kubernetes' grammar, outside our prefixes. */
export function checkLabels(violations: Violations, field: string, labels: Entries): void {
  checkKeys(violations, field, labels);
  for (const [key, value] of Object.entries(labels)) {
    const valid = value === "" || labelName.test(value);
    violations.check(
      valid,
      `${field}[${key}]`,
      "a label value has up to 63 of A-Z a-z 0-9 - _ . and begins and ends alphanumeric",
    );
  }
}

/** Annotations: keys as for labels, values free, 256 KiB in all. */
export function checkAnnotations(violations: Violations, field: string, annotations: Entries): void {
  checkKeys(violations, field, annotations);
  const total = Object.entries(annotations).reduce((sum, [key, value]) => sum + bytes(key) + bytes(value), 0);
  violations.check(total <= 256 * 1024, field, "annotations take more than 256 KiB in all");
}

function checkKeys(violations: Violations, field: string, entries: Entries): void {
  const keys = Object.keys(entries);
  violations.check(keys.length <= maxEntries, field, `has ${keys.length} entries, at most ${maxEntries} are accepted`);
  for (const key of keys) {
    const [name = "", ...domain] = key.split("/").reverse();
    const valid = domain.length <= 1 && labelName.test(name) && (domain[0] === undefined || prefix.test(domain[0]));
    violations.check(
      valid,
      `${field}[${key.slice(0, 64)}]`,
      "is no valid key: [dns-name/]name with up to 63 characters",
    );
    const reserved = reservedPrefixes.find((one) => key.startsWith(one));
    if (reserved !== undefined) violations.add(`${field}[${key}]`, `keys under ${reserved} are the gateway's own`);
  }
}

const variable = /^[A-Za-z_][A-Za-z0-9_]*$/;

export interface EnvironmentLimits {
  /** Bytes of one value. */
  readonly value: number;
  /** Bytes of all keys and values together. */
  readonly total: number;
  /** Reserved names that pass all the same. */
  readonly except?: readonly string[];
}

/** Environment variables; names under OPENSHELL_ are the runtime's. */
export function checkEnvironment(
  violations: Violations,
  field: string,
  entries: Entries,
  limits: EnvironmentLimits,
): void {
  const pairs = Object.entries(entries);
  violations.check(
    pairs.length <= maxEntries,
    field,
    `has ${pairs.length} entries, at most ${maxEntries} are accepted`,
  );
  let total = 0;
  for (const [key, value] of pairs) {
    total += bytes(key) + bytes(value);
    const at = `${field}[${key.slice(0, 64)}]`;
    violations.check(
      variable.test(key) && key.length <= 256,
      at,
      "is no variable name: letters, digits and _, not beginning with a digit, up to 256",
    );
    const reserved = key.startsWith("OPENSHELL_") && limits.except?.includes(key) !== true;
    violations.check(!reserved, at, "names beginning with OPENSHELL_ are the sandbox's own");
    violations.check(bytes(value) <= limits.value, at, `the value has more than ${limits.value} bytes`);
    violations.check(!/[\0\r\n]/.test(value), at, "the value holds NUL, CR or LF");
  }
  violations.check(total <= limits.total, field, `takes ${total} bytes, at most ${limits.total} are accepted`);
}
