import { join } from "node:path";
import { defineConfig } from "vitest/config";
import { cacheDirectory } from "./cluster/cache.ts";
import { workerReleases } from "./support/release.ts";

const patience = {
  testTimeout: 180_000,
  hookTimeout: 300_000,
  teardownTimeout: 60_000,
  expect: { poll: { timeout: 30_000 } },
  // CI's machine is shared and its clock is the tests' deadline: one more try, which the output names "(retry x1)".
  retry: process.env.CI ? 1 : 0,
};

/**
 * The conformance suite, on a real cluster. Files run side by side, each worker with a gateway of its own (e2e/support/release.ts);
 * those in suites/nodes change the nodes under everybody and run before the others, one at a time. Those in suites/faults take their time,
 * and `npm test` leaves them out.
 */
export default defineConfig({
  // Knows how long each file took, also for the next clone: the longest begin first, so that no worker is left alone with one at the end.
  cacheDir: join(cacheDirectory, "vitest/conformance"),
  test: {
    root: new URL("..", import.meta.url).pathname,
    globalSetup: ["e2e/support/global-setup.ts"],
    pool: "forks",
    projects: [
      {
        test: {
          ...patience,
          name: "pairs",
          // Loading all modules anew for each file costs two seconds of a core.
          isolate: false,
          include: ["e2e/suites/*.test.ts", "{src,e2e}/**/{cluster,*.cluster}.test.ts"],
          sequence: { groupOrder: 1 },
          maxWorkers: workerReleases.length,
        },
      },
      {
        test: {
          ...patience,
          name: "nodes",
          include: ["e2e/suites/nodes/*.test.ts"],
          sequence: { groupOrder: 0 },
          maxWorkers: 1,
        },
      },
      {
        test: {
          ...patience,
          name: "faults",
          include: ["e2e/suites/faults/*.test.ts"],
          sequence: { groupOrder: 2 },
          maxWorkers: 1,
          hookTimeout: 420_000,
        },
      },
    ],
  },
});
