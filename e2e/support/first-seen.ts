import type { Informer, KubeObject, Live } from "../../src/kube/index.ts";

/** When the cluster first said something of an object, for what is told of it afterwards to be measured by. */
export interface FirstSeen extends Disposable {
  /** Milliseconds from then until now; how long it takes to hear of it does not count. */
  lag(): Promise<number>;
}

/** Listens, from now on, for the first object that `fits`. */
export function firstSeen<T extends KubeObject>(
  informer: Informer<T>,
  what: string,
  fits: (object: Live<T>) => boolean,
): FirstSeen {
  let at: number | undefined;
  const stop = informer.on("changed", (object) => {
    if (at === undefined && fits(object)) at = performance.now();
  });
  return {
    async lag() {
      const now = performance.now();
      const since = await informer.until(`${what} to have been seen`, () => at);
      return Math.max(0, now - since);
    },
    [Symbol.dispose]: stop,
  };
}
