import { describe, expect, it } from "vitest";
import type { Conformance } from "./conformance.ts";
import { CountingSandbox } from "./counting-sandbox.ts";
import { failureOf } from "./outcome.ts";
import { podQuota } from "./resource-quota.ts";

const never = async () => {
  throw new Error("not in time");
};

/** A suite that makes everything at once, of which nothing ever comes to what is waited for. */
function fruitless() {
  const left = new Set<object>();
  const made = async () => {
    const one = { ready: never, until: never, [Symbol.asyncDispose]: async () => void left.delete(one) };
    left.add(one);
    return one;
  };
  const parts = { release: { sandboxNamespace: "here" }, create: made, applied: made, kubectl: never };
  return { suite: parts as unknown as Conformance, left };
}

describe("what comes to nothing is taken away again:", () => {
  it.each<[string, (world: ReturnType<typeof fruitless>) => Promise<unknown>]>([
    ["a quota that does not come into force", ({ suite }) => podQuota(suite, 1)],
    ["a sandbox that does not count", ({ suite }) => CountingSandbox.running(suite)],
    ["a sandbox that does not fail", ({ suite }) => failureOf(suite.create())],
  ])("%s", async (_what, make) => {
    const world = fruitless();
    await expect(make(world)).rejects.toThrow("not in time");
    expect([...world.left]).toEqual([]);
  });
});
