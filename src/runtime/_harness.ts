/** What tests of a real runtime process import: its driver, and patience. */
import { vi } from "vitest";

export * from "./_driver.ts";

// Real processes on a busy machine: a start alone can take seconds.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });
