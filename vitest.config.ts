import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["src/**/*.test.ts", "images/**/*.test.ts", "e2e/**/*.test.ts"],
    exclude: ["e2e/suites/**", "**/node_modules/**"],
    testTimeout: 20_000,
  },
});
