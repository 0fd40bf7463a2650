import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { editDistance, nearest } from "./nearest.ts";

describe("the nearest name", () => {
  it.each([
    ["pod_anti_afinity", "pod_anti_affinity"],
    ["bind_adress", "bind_address"],
    ["Required", "required"],
    ["supervisor_resource", "supervisor_resources"],
  ])("of %s is %s", (name, expected) => {
    expect(nearest(name, ["pod_anti_affinity", "bind_address", "required", "preferred", "supervisor_resources"])).toBe(
      expected,
    );
  });

  it("is nothing when nothing is close", () => {
    expect(nearest("topology", ["namespace", "gateway_id"])).toBeUndefined();
  });

  it("is measured symmetrically and is zero only for equal names", () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 12 }), fc.string({ maxLength: 12 }), (left, right) => {
        expect(editDistance(left, right)).toBe(editDistance(right, left));
        expect(editDistance(left, right) === 0).toBe(left === right);
      }),
    );
  });
});
