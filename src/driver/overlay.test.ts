import { describe, expect, test } from "vitest";
import type { KubeObject, Live } from "../kube/index.ts";
import { labels } from "../manifests/index.ts";
import { WriteOverlay } from "./overlay.ts";

const object = (version: string, uid = "u1"): Live<KubeObject> => ({
  metadata: { name: "x", uid, resourceVersion: version, labels: { [labels.sandboxId]: "s" } },
});
const versions = (objects: Live<KubeObject>[]) => objects.map(({ metadata }) => metadata.resourceVersion);

describe("answers to our own writes", () => {
  test("stand in for what the watch does not show yet", () => {
    const overlay = new WriteOverlay(() => 0);
    overlay.put("s", "pods", object("9"));
    expect(versions(overlay.merge("s", "pods", []))).toEqual(["9"]);
    expect(versions(overlay.merge("s", "pods", [object("8")]))).toEqual(["9"]);
    expect(overlay.sandboxIds()).toEqual(["s"]);
  });

  test("give way to what the watch shows later, compared as numbers", () => {
    const overlay = new WriteOverlay(() => 0);
    overlay.put("s", "pods", object("9"));
    expect(versions(overlay.merge("s", "pods", [object("10")]))).toEqual(["10"]);
    expect(overlay.sandboxIds()).toEqual([]);
  });

  test("are forgotten when the watch shows the deletion, also when that comes first", () => {
    const overlay = new WriteOverlay(() => 0);
    overlay.put("s", "pods", object("9"));
    overlay.gone("u1");
    overlay.put("s", "pods", object("9"));
    expect(overlay.merge("s", "pods", [])).toEqual([]);
  });

  test("are not believed against a watch that shows nothing for ten seconds", () => {
    let now = 0;
    const overlay = new WriteOverlay(() => now);
    overlay.put("s", "pods", object("9"));
    now = 10_001;
    expect(overlay.merge("s", "pods", [])).toEqual([]);
  });

  test("are believed as long as the watch has not come past them: one that fell silent shows nothing", () => {
    let [now, reached] = [0, "8"];
    const overlay = new WriteOverlay(
      () => now,
      (plural) => (plural === "pods" ? reached : undefined),
    );
    overlay.put("s", "pods", object("9"));
    now = 60_000;
    expect(versions(overlay.merge("s", "pods", []))).toEqual(["9"]);
    expect(overlay.sandboxIds()).toEqual(["s"]);
    reached = "10";
    expect(overlay.sandboxIds()).toEqual([]);
    expect(overlay.merge("s", "pods", [])).toEqual([]);
  });

  test("are kept apart by kind", () => {
    const overlay = new WriteOverlay(() => 0);
    overlay.put("s", "services", object("9"));
    expect(overlay.merge("s", "pods", [])).toEqual([]);
    expect(versions(overlay.merge("s", "services", []))).toEqual(["9"]);
  });

  test("of a namespace are forgotten with it, and those of the same id elsewhere are not", () => {
    const overlay = new WriteOverlay(() => 0);
    const within = (namespace: string, uid: string) => {
      const { metadata } = object("9", uid);
      return { metadata: { ...metadata, namespace } };
    };
    overlay.put("s", "pods", within("team-a", "u1"));
    overlay.depart("s", "pods", within("team-a", "u2"));
    overlay.put("s", "pods", within("team-b", "u3"));
    overlay.depart("s", "pods", within("team-b", "u4"));
    expect(overlay.forgetNamespace("team-b")).toEqual(["s"]);
    const uidsOf = (objects: Live<KubeObject>[]) => objects.map(({ metadata }) => metadata.uid);
    expect(uidsOf(overlay.merge("s", "pods", []))).toEqual(["u1"]);
    expect(uidsOf(overlay.departed("s", "pods"))).toEqual(["u2"]);
  });

  test("an accepted DELETE counts until the object is seen gone", () => {
    const overlay = new WriteOverlay(() => 0);
    overlay.markDeleted("u1");
    expect(overlay.isDeleted("u1")).toBe(true);
    overlay.gone("u1");
    expect(overlay.isDeleted("u1")).toBe(false);
  });
});
