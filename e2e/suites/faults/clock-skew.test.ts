import { afterEach, describe, expect, it } from "vitest";
import { CountingSandbox } from "../../support/counting-sandbox.ts";
import { canBreak, FaultSuite } from "../../support/fault-suite.ts";
import { leftOf } from "../../support/outcome.ts";
import { phase } from "../../support/waits.ts";

const hour = 3_600_000;

/** Makes a Node.js process's clock wrong, for everything that is said about time in JavaScript. */
function skewed(ms: number): string {
  const source = `const D = Date; globalThis.Date = class Date extends D {
    constructor(...a) { a.length ? super(...a) : super(D.now() + ${ms}); }
    static now() { return D.now() + ${ms}; }
  }`;
  return `--import=data:text/javascript,${encodeURIComponent(source)}`;
}

let bench: FaultSuite | undefined;

afterEach(async () => {
  await bench?.[Symbol.asyncDispose]();
  bench = undefined;
});

describe("a gateway whose clock is", { skip: !canBreak }, () => {
  it.each([
    ["an hour ahead of the cluster's", hour],
    ["an hour behind the cluster's", -hour],
  ])(
    "%s creates, replaces supervisors, stops, starts and deletes as any other",
    async (_what, ms) => {
      bench = await FaultSuite.open({}, { NODE_OPTIONS: skewed(ms) });
      const { suite } = bench;
      await bench.quiet();
      const at = performance.now();
      await using sandbox = await CountingSandbox.running(suite);
      const first = await suite.pair(sandbox);
      let { supervisor } = first;
      // The second replacement is held back by the age of what it replaces.
      for (const _ of [1, 2]) {
        const count = await sandbox.count();
        await suite.kubectl(["-n", suite.release.sandboxNamespace, "delete", "pod", supervisor.metadata.name]);
        const lost = supervisor.metadata.uid;
        const after = await suite.pair(sandbox, "another supervisor", (pair) => pair.supervisor.metadata.uid !== lost);
        supervisor = after.supervisor;
        await sandbox.countsOn(count);
        expect(after.workload.metadata.uid).toBe(first.workload.metadata.uid);
      }
      await sandbox.sandbox.stop();
      await sandbox.until(phase("STOPPED"));
      await sandbox.sandbox.start();
      await sandbox.until(phase("READY"));
      await sandbox.sandbox.delete();
      await sandbox.sandbox.gone();
      await expect.poll(() => leftOf(suite, sandbox), { timeout: 60_000 }).toEqual([]);
      await bench.quiet();
      // A create, two replacements, a stop, a start and a delete are some thirty.
      expect(bench.since(at).length).toBeLessThan(60);
    },
    300_000,
  );
});
