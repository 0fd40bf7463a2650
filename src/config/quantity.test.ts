import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parseDuration } from "./duration.ts";
import { compareQuantities, isQuantity, parseQuantity, positiveQuantityPattern } from "./quantity.ts";

describe("Kubernetes quantities", () => {
  it.each([
    ["1", 1_000_000_000n],
    ["500m", 500_000_000n],
    ["0.5", 500_000_000n],
    [".5", 500_000_000n],
    ["1.", 1_000_000_000n],
    ["1Ki", 1_024_000_000_000n],
    ["1.5Gi", 1_610_612_736_000_000_000n],
    ["2e3", 2_000_000_000_000n],
    ["2E3", 2_000_000_000_000n],
    ["1E", 10n ** 27n],
    ["1e-10", 1n],
    ["-1", -1_000_000_000n],
  ])("reads %s exactly", (text, nanos) => {
    expect(parseQuantity(text)).toBe(nanos);
  });

  it.each(["", "1 Gi", "1GiB", "5x", "1,5", "Gi", "1e", "0x10", "."])("refuses %j", (text) => {
    expect(isQuantity(text)).toBe(false);
  });

  it("is above zero by its pattern just when it is by its value", () => {
    const sign = fc.constantFrom("", "+", "-");
    const digits = fc.constantFrom("0", "00", "7", "010", "0.0", "0.30", ".5", ".0", "1.");
    const unit = fc.constantFrom("", "m", "Ki", "E", "e3", "e-12", "x");
    fc.assert(
      fc.property(sign, digits, unit, (...parts) => {
        const text = parts.join("");
        expect(positiveQuantityPattern.test(text)).toBe(isQuantity(text) && parseQuantity(text) > 0n);
      }),
    );
  });

  it.each([
    ["1Gi", "1G", 1],
    ["1000m", "1", 0],
    ["128Mi", "0.125Gi", 0],
    ["100m", "0.2", -1],
  ])("compares %s with %s", (left, right, sign) => {
    expect(compareQuantities(left, right)).toBe(sign);
  });

  it("orders whole numbers as numbers, whatever their unit", () => {
    fc.assert(
      fc.property(fc.nat(), fc.nat(), fc.constantFrom("m", "", "k", "Mi", "Ti"), (left, right, unit) => {
        expect(compareQuantities(`${left}${unit}`, `${right}${unit}`)).toBe(Math.sign(left - right));
      }),
    );
  });
});

describe("durations", () => {
  it("reads milliseconds to hours, and nothing as no limit", () => {
    expect([
      parseDuration("500ms"),
      parseDuration("30s"),
      parseDuration("10m"),
      parseDuration("2h"),
      parseDuration(""),
    ]).toEqual([500, 30_000, 600_000, 7_200_000, undefined]);
  });
});
