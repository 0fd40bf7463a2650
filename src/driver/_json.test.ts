import { expect, test } from "vitest";
import { same } from "./_json.ts";

test.each<[string, unknown, unknown, boolean]>([
  ["absent and empty", { a: {}, b: [], c: "" }, {}, true],
  ["a value and none", { a: 1 }, {}, false],
  ["lists in another order", [1, 2], [2, 1], false],
  ["an object that has an empty selector and one that has none", { namespaceSelector: {} }, {}, false],
  [
    "a policy's peer that came to be of all namespaces",
    { from: [{ podSelector: { matchLabels: { a: "b" } } }] },
    { from: [{ podSelector: { matchLabels: { a: "b" } }, namespaceSelector: {} }] },
    false,
  ],
])("%s", (_what, left, right, isSame) => {
  expect([same(left, right), same(right, left)]).toEqual([isSame, isSame]);
});
