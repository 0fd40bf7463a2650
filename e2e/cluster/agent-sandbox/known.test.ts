import { describe, expect, test } from "vitest";
import type { Informer, Live, Pod } from "../../../src/kube/index.ts";
import { Known } from "./known.ts";

type Listener = (object: Live<Pod>) => void;

function pod(resourceVersion: string, uid = "u"): Live<Pod> {
  return { metadata: { name: "a", namespace: "ns", uid, resourceVersion } };
}

/** An informer that is told what to have seen. */
function known() {
  const listeners = new Map<string, Listener>();
  let held: Live<Pod> | undefined;
  const informer = {
    on: (type: string, listener: Listener) => listeners.set(type, listener),
    get: () => held,
    by: () => (held ? [held] : []),
  } as unknown as Informer<Pod>;
  return {
    known: new Known(informer),
    see(type: "added" | "modified" | "deleted", object: Live<Pod>) {
      held = type === "deleted" ? undefined : object;
      listeners.get(type)?.(object);
    },
  };
}

describe("what is known", () => {
  test("is our own write until the watch has seen it or something later", () => {
    const k = known();
    k.known.wrote(pod("10"));
    expect(k.known.get("ns", "a")).toEqual(pod("10"));
    expect(k.known.by("owner", "x", () => true)).toEqual([pod("10")]);
    k.see("added", pod("9"));
    expect(k.known.get("ns", "a")).toEqual(pod("10"));
    expect(k.known.by("owner", "x", () => true)).toEqual([pod("10")]);
    k.see("modified", pod("11"));
    expect(k.known.get("ns", "a")).toEqual(pod("11"));
  });

  test("is what the watch saw when it was faster than the answer", () => {
    const k = known();
    k.see("added", pod("12"));
    k.known.wrote(pod("10"));
    expect(k.known.get("ns", "a")).toEqual(pod("12"));
  });

  test("is nothing when the watch saw it come and go before the answer", () => {
    const k = known();
    k.see("added", pod("10"));
    k.see("deleted", pod("12"));
    k.known.wrote(pod("10"));
    expect(k.known.get("ns", "a")).toBeUndefined();
    k.known.wrote(pod("13", "another"));
    expect(k.known.get("ns", "a")).toEqual(pod("13", "another"));
  });

  test("is nothing after the deletion of what we wrote, but not after that of its predecessor", () => {
    const k = known();
    k.known.wrote(pod("10", "new"));
    k.see("deleted", pod("9", "old"));
    expect(k.known.get("ns", "a")).toEqual(pod("10", "new"));
    k.see("deleted", pod("11", "new"));
    expect(k.known.get("ns", "a")).toBeUndefined();
  });
});
