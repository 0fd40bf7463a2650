import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { pageSize, pageToken, parseSelector, positionOf } from "./paging.ts";

describe("a page token", () => {
  it("leads back to its position in its list, and in no other", () => {
    fc.assert(
      fc.property(
        fc.array(fc.string()),
        fc.array(fc.string(), { minLength: 1 }),
        fc.string(),
        (list, position, other) => {
          const token = pageToken(list, position);
          expect(token).toMatch(/^[\w-]+$/);
          expect(positionOf(list, token)).toEqual(position);
          expect(() => positionOf([...list, other], token)).toThrow(/is not a token of this list/);
        },
      ),
    );
  });

  it("made by somebody else is refused", () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1 }), (token) => {
        expect(() => positionOf(["a"], token)).toThrow(/is not a token of this list/);
      }),
    );
    expect(positionOf(["a"], "")).toBeUndefined();
  });
});

describe("a page size", () => {
  it("is 100 when nothing is asked and 1000 at most", () => {
    expect([0, 1, 1000, 5000].map(pageSize)).toEqual([100, 1, 1000, 1000]);
    expect(() => pageSize(-1)).toThrow("page_size: is negative");
  });
});

describe("a label selector", () => {
  it("holds when every pair does", () => {
    const labels = { team: "a", "x.io/y": "" };
    for (const text of ["", "team=a", " team = a , x.io/y=", "team==a"])
      expect(parseSelector(text)(labels), text).toBe(true);
    for (const text of ["team=b", "team=a,z=1", "constructor="]) expect(parseSelector(text)(labels), text).toBe(false);
  });

  it("that is no list of pairs is refused, naming the part", () => {
    for (const text of ["team", "team!=a", "team in (a)", "a=b,,c=d"])
      expect(() => parseSelector(text), text).toThrow(/label_selector/);
    expect(() => parseSelector(Array.from({ length: 65 }, () => "a=b").join(","))).toThrow(/more than 64 pairs/);
  });
});
