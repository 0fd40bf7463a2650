import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Change, ObjectCache } from "./_cache.ts";
import type { Pod } from "./resources.ts";
import type { Live } from "./types.ts";

/** A state of the cluster: few names and UIDs, so that states overlap. */
const state = fc
  .uniqueArray(
    fc.record({
      name: fc.constantFrom("a", "b", "c", "d"),
      uid: fc.constantFrom("1", "2"),
      resourceVersion: fc.constantFrom("1", "2", "3"),
      app: fc.constantFrom("x", "y"),
    }),
    { selector: (object) => object.name },
  )
  .map((objects) =>
    objects.map(
      ({ name, uid, resourceVersion, app }): Live<Pod> => ({
        metadata: { name, namespace: "ns", uid, resourceVersion, labels: { app: `${app}${uid}${resourceVersion}` } },
      }),
    ),
  );

const identity = ({ metadata: { name, uid } }: Live<Pod>): string => `${name}/${uid}`;
const appOf = (object: Live<Pod>): string[] => [object.metadata.labels?.app ?? ""];

/** What a listener believes that there is, if it knows nothing but the changes. */
function follow(believed: Map<string, Live<Pod>>, changes: readonly Change<Pod>[]): void {
  for (const { type, object } of changes) {
    if (type === "added") expect(believed.has(identity(object))).toBe(false);
    else expect(believed.has(identity(object))).toBe(true);
    if (type === "deleted") believed.delete(identity(object));
    else believed.set(identity(object), object);
  }
}

describe("the cache", () => {
  test("after a replacement holds exactly the listed objects, and a listener of its changes believes the same", () => {
    fc.assert(
      fc.property(fc.array(state, { maxLength: 5 }), (states) => {
        const cache = new ObjectCache<Pod>();
        cache.addIndex("app", appOf);
        const believed = new Map<string, Live<Pod>>();
        for (const objects of states) {
          follow(believed, cache.replace(objects));
          const held = (list: Iterable<Live<Pod>>) =>
            [...list].map((o) => [identity(o), o.metadata.resourceVersion]).sort();
          expect(held(cache.list())).toEqual(held(objects));
          expect(held(believed.values())).toEqual(held(objects));
        }
      }),
    );
  });

  test("has in each index exactly the objects it holds", () => {
    fc.assert(
      fc.property(fc.array(state, { maxLength: 4 }), state, (states, last) => {
        const cache = new ObjectCache<Pod>();
        cache.addIndex("app", appOf);
        for (const objects of states) cache.replace(objects);
        for (const object of last) cache.put(object);
        if (last[0]) cache.remove(last[0]);
        for (const app of new Set([...states.flat(), ...last].flatMap(appOf))) {
          const expected = cache.list().filter((object) => appOf(object)[0] === app);
          expect(new Set(cache.by("app", app))).toEqual(new Set(expected));
        }
        expect(cache.valuesOf("app").sort()).toEqual([...new Set(cache.list().flatMap(appOf))].sort());
      }),
    );
  });

  test("indexes what it held before the index was made", () => {
    const cache = new ObjectCache<Pod>();
    cache.put({ metadata: { name: "a", namespace: "ns", uid: "1", resourceVersion: "1", labels: { app: "x" } } });
    cache.addIndex("app", appOf);
    expect(cache.by("app", "x").map(identity)).toEqual(["a/1"]);
    expect(cache.by("nothing", "x")).toEqual([]);
    expect(cache.valuesOf("nothing")).toEqual([]);
  });

  test("reports an object that took another's name as deleted and added", () => {
    const cache = new ObjectCache<Pod>();
    const make = (uid: string): Live<Pod> => ({ metadata: { name: "a", namespace: "ns", uid, resourceVersion: uid } });
    cache.put(make("1"));
    expect(cache.put(make("2")).map(({ type, object }) => [type, object.metadata.uid])).toEqual([
      ["deleted", "1"],
      ["added", "2"],
    ]);
  });
});
