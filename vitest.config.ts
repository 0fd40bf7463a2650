import { availableParallelism } from "node:os";
import { join } from "node:path";
import { defineConfig } from "vitest/config";
import { cacheDirectory } from "./e2e/cluster/cache.ts";

export default defineConfig({
  // How long each file took, also for the next clone: the longest begin first.
  cacheDir: join(cacheDirectory, "vitest/unit"),
  test: {
    include: ["src/**/*.test.ts", "images/**/*.test.ts", "e2e/**/*.test.ts"],
    exclude: ["e2e/suites/**", "**/node_modules/**"],
    testTimeout: 20_000,
    // A bound, not a wait: what is polled for takes milliseconds on a machine that has nothing else to do.
    expect: { poll: { timeout: 15_000 } },
    // Loading the modules anew for every file costs more than most files' tests. A test that stubs something undoes it.
    isolate: false,
    // One more than there are cores: a few files wait for processes to end.
    maxWorkers: availableParallelism() + 1,
  },
});
