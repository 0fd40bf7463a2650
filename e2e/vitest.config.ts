import { defineConfig } from "vitest/config";

/** The conformance suite: real clusters, one file after the other, since some files change the gateway's settings or the nodes. */
export default defineConfig({
  test: {
    root: new URL("..", import.meta.url).pathname,
    include: ["e2e/suites/**/*.test.ts"],
    globalSetup: ["e2e/support/global-setup.ts"],
    fileParallelism: false,
    pool: "forks",
    testTimeout: 180_000,
    hookTimeout: 300_000,
    teardownTimeout: 60_000,
    // CI's machine is shared and its clock is the tests' deadline: one more try, which the output names "(retry x1)".
    retry: process.env.CI ? 1 : 0,
  },
});
