import { OpenShellError } from "../common/errors.ts";

/** The grammar of a quantity, in RE2 too. */
export const quantityPattern = /^([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,3}))?$/;

const decimalExponents: Readonly<Record<string, number>> = {
  n: -9,
  u: -6,
  m: -3,
  k: 3,
  M: 6,
  G: 9,
  T: 12,
  P: 15,
  E: 18,
};
const binaryExponents: Readonly<Record<string, number>> = { Ki: 10, Mi: 20, Gi: 30, Ti: 40, Pi: 50, Ei: 60 };

/** The same above zero, so that Helm refuses the others as well. */
export const positiveQuantityPattern =
  /^\+?(?:0*[1-9]\d*(?:\.\d*)?|0*\.0*[1-9]\d*)(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,3})?$/;

/** A whole number above zero, with a unit or without. */
export const wholeQuantityPattern = /^\+?0*[1-9]\d*(?:[kMGTPE]|[KMGTPE]i|[eE]\+?\d{1,3})?$/;

/** True for a Kubernetes resource quantity (`500m`, `1.5Gi`, `2e3`); the grammar of apimachinery's resource.Quantity. */
export function isQuantity(text: string): boolean {
  return quantityPattern.test(text);
}

/** A quantity in units of 10^-9, exact; what lies below is rounded up, as Kubernetes does. */
export function parseQuantity(text: string): bigint {
  const match = quantityPattern.exec(text);
  if (match === null) {
    throw new OpenShellError(
      "invalid-argument",
      `"${text}" is not a Kubernetes quantity such as "500m", "1.5" or "2Gi"`,
    );
  }
  const [, sign, digits = "0", suffix = "", exponent] = match;
  const [whole = "", fraction = ""] = digits.split(".");
  const binary = binaryExponents[suffix];
  const power = (exponent === undefined ? (decimalExponents[suffix] ?? 0) : Number(exponent)) - fraction.length + 9;
  let nanos = BigInt(whole + fraction) << BigInt(binary ?? 0);
  if (power >= 0) nanos *= 10n ** BigInt(power);
  else {
    const divisor = 10n ** BigInt(-power);
    nanos = (nanos + divisor - 1n) / divisor;
  }
  return sign === "-" ? -nanos : nanos;
}

/** Negative, zero or positive, as `left` is less than, equal to or more than `right`. */
export function compareQuantities(left: string, right: string): number {
  const difference = parseQuantity(left) - parseQuantity(right);
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}
