import { expect, test } from "vitest";
import type { Live, Namespace } from "../kube/index.ts";
import { isGone } from "./namespace-end.ts";

const shown = { name: "team-a", uid: "1", resourceVersion: "1" };
const there = (change: object = {}): Live<Namespace> => ({ metadata: { ...shown, ...change } });

test.each<[string, Live<Namespace>["metadata"], Live<Namespace> | undefined, boolean]>([
  ["that ended before our eyes", { ...shown, deletionTimestamp: "2026-12-01T12:00:00Z" }, undefined, true],
  ["that went while no watch was open", shown, undefined, true],
  ["that went and came again meanwhile", shown, there({ uid: "2" }), true],
  ["that is going", shown, there({ deletionTimestamp: "2026-12-01T12:00:00Z" }), true],
  ["that lost its label", shown, there(), false],
])("a namespace %s is taken for what it is", async (_what, metadata, found, gone) => {
  expect(await isGone(metadata, async () => found)).toBe(gone);
});

test("a namespace that cannot be asked for is asked for again", async () => {
  let asked = 0;
  const find = async () => {
    asked += 1;
    if (asked < 3) throw new Error("no answer");
    return there();
  };
  expect(await isGone(shown, find)).toBe(false);
});
